package disk

import (
	"errors"
	"io/fs"
	"path/filepath"
	"syscall"
)

// Usage returns the bytes that the files in a directory occupy, without the holes of sparse ones,
// and the number of files. Files may disappear during the walk.
func Usage(dir string) (bytes, files int64, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && path != dir {
			return nil
		}
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		files++
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			bytes += st.Blocks * 512
		}
		return nil
	})
	return bytes, files, err
}
