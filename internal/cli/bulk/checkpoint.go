package bulk

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/percolator-go/percolator/internal/cli/shell"
	"github.com/percolator-go/percolator/internal/coded"
)

// A long command records its progress in a small JSON file beside the data, so that it
// can resume after any kind of end, crashes included. The file is replaced atomically.

// checkpointBytes limits the size of a progress file. Ours take a few hundred bytes and a
// row of up to 4 KiB.
const checkpointBytes = 1 << 20

// saveCheckpoint writes state durably. Whatever state claims must already be durable.
func saveCheckpoint(name string, state any) error {
	text, err := json.Marshal(state)
	if err != nil {
		return err
	}
	// Sync, rename, sync of the directory: after a power loss the old state or the new
	// one is there, never a name without its bytes.
	next := name + ".next"
	if err := writeDurably(next, append(text, '\n')); err != nil {
		return coded.Errorf("", "progress file: %w", err)
	}
	if err := os.Rename(next, name); err != nil {
		return coded.Errorf("", "progress file: %w", err)
	}
	return syncDir(name)
}

// loadCheckpoint reads state and reports whether there was any.
func loadCheckpoint(name string, state any) (there bool, err error) {
	info, err := os.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	// A file of that name may be somebody else's, of any size.
	if err == nil && info.Size() > checkpointBytes {
		err = fmt.Errorf("%d bytes are too many", info.Size())
	}
	var text []byte
	if err == nil {
		text, err = os.ReadFile(name)
	}
	if err == nil {
		err = json.Unmarshal(text, state)
	}
	if err != nil {
		return false, shell.WithHint(coded.Errorf("", "progress file %s: %w", name, err),
			"--restart begins anew, and replaces it")
	}
	return true, nil
}

// removeCheckpoint removes a progress file. A missing one is no error.
func removeCheckpoint(name string) error {
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return syncDir(name)
}

// writeDurably writes a whole file and syncs it.
func writeDurably(name string, text []byte) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// syncDir makes renames and removals in a file's directory durable.
func syncDir(name string) error {
	d, err := os.Open(filepath.Dir(name))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
