package bulk

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/percolator-go/percolator/internal/cli/shell"
	"github.com/percolator-go/percolator/internal/coded"
)

// load and export record their progress as JSON in FILE.progress, so that the same command resumes
// after a failure or crash. The file is replaced atomically; everything that it counts must already be
// durable.

// progressBytes limits what is read of a progress file, which contains a few hundred bytes, up to four
// rows of at most 4 KiB, and names of columns.
const progressBytes = 1 << 20

// job identifies the cluster and table of a progress file.
type job struct {
	Version int    `json:"version"` // 1
	Cluster string `json:"cluster"`
	Table   string `json:"table"`
	TableID uint32 `json:"table_id"`
}

// isOf reports whether the progress is of the same cluster and table, whatever the table's current
// name.
func (j job) isOf(other job) bool {
	other.Table = j.Table
	return j == other
}

// saveProgress writes state durably.
func saveProgress(name string, state any) error {
	next := name + ".next"
	f, err := os.Create(next)
	if err == nil {
		err = errors.Join(json.NewEncoder(f).Encode(state), f.Sync(), f.Close())
	}
	// Sync before the rename: after a power loss the file contains the old state or the new one.
	if err == nil {
		err = os.Rename(next, name)
	}
	if err == nil {
		err = syncDir(name)
	}
	if err != nil {
		return coded.Errorf("", "write the progress file: %w", err)
	}
	return nil
}

// loadProgress reads state and reports whether the file exists.
func loadProgress(name string, state any) (there bool, err error) {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil { // an unrelated file of that name may have any size
		err = errors.Join(json.NewDecoder(io.LimitReader(f, progressBytes)).Decode(state), f.Close())
	}
	if err != nil {
		return false, shell.WithHint(coded.Errorf("", "read progress file %s: %w", name, err),
			"--restart starts over and replaces it")
	}
	return true, nil
}

// removeProgress durably removes a progress file. A missing one is no error.
func removeProgress(name string) error {
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return syncDir(name)
}

// openPart opens a file to append to, locks it for this process and truncates it to the bytes
// that its progress file counts.
func openPart(name string, durable int64) (part *os.File, err error) {
	if part, err = os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = part.Close()
		}
	}()
	// The kernel releases the lock however this process ends.
	if err := syscall.Flock(int(part.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, shell.WithHint(coded.Errorf("", "lock %s, which another process may be writing: %w", name, err),
			"if another process is writing the file, wait until that process has finished")
	}
	end, err := part.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, err
	}
	// Shorter than recorded: the file was changed or replaced.
	if end < durable {
		return nil, shell.WithHint(fmt.Errorf("%s has %d bytes, but its progress file counts %d", name, end, durable),
			"--restart starts over")
	}
	if err := part.Truncate(durable); err != nil {
		return nil, err
	}
	_, err = part.Seek(durable, io.SeekStart)
	return part, err
}

// syncDir makes renames and removals in a file's directory durable.
func syncDir(name string) error {
	d, err := os.Open(filepath.Dir(name))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
