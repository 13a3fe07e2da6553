package certs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

const (
	keyMode  = 0o600
	certMode = 0o644
	dirMode  = 0o755
)

// file is a file to be written.
type file struct {
	name string
	data []byte
	mode os.FileMode
}

// write writes the files into Dir, each as a whole or not at all. Without Force it writes nothing if
// one of them exists.
func (r Request) write(files []file, notAfter time.Time) (Created, error) {
	if err := os.MkdirAll(r.Dir, dirMode); err != nil {
		return Created{}, fmt.Errorf("certs: create the folder: %w", err)
	}
	for _, f := range files {
		path := filepath.Join(r.Dir, f.name)
		if _, err := os.Lstat(path); err == nil && !r.Force {
			return Created{}, fmt.Errorf("%w: %s; nothing was written; --force overwrites it",
				ErrExists, path)
		} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return Created{}, fmt.Errorf("certs: check for an existing file: %w", err)
		}
	}
	created := Created{NotAfter: notAfter}
	for _, f := range files {
		path := filepath.Join(r.Dir, f.name)
		if err := writeFile(path, f.data, f.mode); err != nil {
			return created, err
		}
		created.Files = append(created.Files, path)
	}
	return created, nil
}

// writeFile replaces a file by renaming, so that readers see the old contents or the new.
func writeFile(path string, data []byte, mode os.FileMode) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*") // mode 0600
	if err != nil {
		return fmt.Errorf("certs: create a temporary file: %w", err)
	}
	_, err = tmp.Write(data)
	err = errors.Join(err, tmp.Chmod(mode), tmp.Sync(), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("certs: write %s: %w", path, errors.Join(err, os.Remove(tmp.Name())))
	}
	return nil
}
