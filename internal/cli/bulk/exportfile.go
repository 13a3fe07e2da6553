package bulk

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"syscall"

	"github.com/percolator-go/percolator/internal/cli/shell"
	"github.com/percolator-go/percolator/internal/coded"
)

// exportState is the content of FILE.progress: the request, and how much of FILE.part is
// durable.
type exportState struct {
	Version int               `json:"version"`
	Cluster string            `json:"cluster"`
	Table   string            `json:"table"`
	TableID uint32            `json:"table_id"`
	Prefix  shell.JSONBytes   `json:"prefix,omitempty"`
	From    shell.JSONBytes   `json:"from,omitempty"`
	Before  shell.JSONBytes   `json:"before,omitempty"`
	Columns []shell.JSONBytes `json:"columns,omitempty"`
	TS      uint64            `json:"ts"`            // the snapshot
	Row     *shell.JSONBytes  `json:"row,omitempty"` // the last one written; nil: none yet
	Rows    int64             `json:"rows"`
	// durable bytes of FILE.part; the rest is truncated
	Bytes int64 `json:"bytes"`
	Done  bool  `json:"done,omitempty"`
}

// begunAs reports whether the state belongs to the same request.
func (s *exportState) begunAs(want *exportState) bool {
	return s.Version == want.Version && s.Cluster == want.Cluster && s.TableID == want.TableID &&
		s.Prefix == want.Prefix &&
		s.From == want.From && s.Before == want.Before && slices.Equal(s.Columns, want.Columns)
}

// exportFile is FILE while it is being written: rows go to FILE.part, progress to
// FILE.progress.
//
// The order of its steps makes a crash between any two of them harmless: data before the
// state that counts it, the state "done" before the rename, and the state goes last. A
// run that finds "done" only has to finish.
type exportFile struct {
	name, partName, progressName string
	part                         *os.File
	state                        exportState // as saved last
}

// openExport resumes an interrupted export, or begins one.
func openExport(name string, want exportState, restart,
	overwrite bool) (*exportFile, exportState, error) {
	f := &exportFile{name: name, partName: name + ".part", progressName: name + ".progress"}
	var state exportState
	there := false
	if !restart { // an old state may be what is broken
		var err error
		if there, err = loadCheckpoint(f.progressName, &state); err != nil {
			return nil, state, err
		}
	}
	// Halves of two different exports would make a file that only looks complete.
	if there && !state.begunAs(&want) {
		return nil, state, shell.WithHint(fmt.Errorf(
			"%s is of another export (table %s): this one differs in its cluster, table, range "+
				"or columns", f.progressName, shell.Printable(state.Table)),
			"run that one's command to go on with it, or give --restart to begin this one anew")
	}
	if !there {
		state = want
		if err := mayReplace(name, overwrite); err != nil {
			return nil, state, err
		}
	}
	if state.Done { // FILE.part is whole, and may have been renamed already
		f.state = state
		return f, state, nil
	}
	return f, state, f.open(state.Bytes)
}

// mayReplace fails if the file exists and --overwrite was not given.
func mayReplace(name string, overwrite bool) error {
	_, err := os.Stat(name)
	if errors.Is(err, fs.ErrNotExist) || overwrite {
		return nil
	}
	if err != nil {
		return err
	}
	return shell.WithHint(fmt.Errorf("%s is there already", name),
		"give another FILE, or --overwrite to replace it once the export is done")
}

// open locks FILE.part for this process and truncates it to its durable bytes.
func (f *exportFile) open(durable int64) (err error) {
	if f.part, err = os.OpenFile(f.partName, os.O_RDWR|os.O_CREATE, 0o644); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = f.part.Close()
		}
	}()
	// The kernel releases the lock however this process ends.
	if err := syscall.Flock(int(f.part.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return shell.WithHint(coded.Errorf("", "%s: another process writes it: %w", f.partName, err),
			"wait until it is done")
	}
	info, err := f.part.Stat()
	if err != nil {
		return err
	}
	// Shorter than was synced: somebody has changed it, or it is another file.
	if info.Size() < durable {
		return shell.WithHint(fmt.Errorf("%s has %d bytes, but %s counts %d", f.partName, info.Size(),
			f.progressName, durable),
			"--restart begins anew")
	}
	if err := f.part.Truncate(durable); err != nil {
		return err
	}
	_, err = f.part.Seek(durable, io.SeekStart)
	return err
}

// save makes what was written durable, then records the state.
func (f *exportFile) save(state exportState) error {
	if err := f.part.Sync(); err != nil {
		return err
	}
	f.state = state
	return saveCheckpoint(f.progressName, state)
}

// finish turns FILE.part into FILE.
func (f *exportFile) finish() error {
	// "Done" first: a crash between rename and removal must not make the next run begin
	// anew over a FILE that is whole.
	if !f.state.Done {
		f.state.Done = true
		if err := saveCheckpoint(f.progressName, f.state); err != nil {
			return err
		}
	}
	switch err := os.Rename(f.partName, f.name); {
	// renamed by an earlier run, which did not come to the rest
	case errors.Is(err, fs.ErrNotExist):
		info, err := os.Stat(f.name)
		if err != nil || info.Size() != f.state.Bytes {
			return shell.WithHint(fmt.Errorf("%s says that %s is done, but it is not there as it was "+
				"written", f.progressName, f.name), "--restart begins anew")
		}
	case err != nil:
		return err
	}
	if err := syncDir(f.name); err != nil {
		return err
	}
	return removeCheckpoint(f.progressName)
}

// close closes the file, which releases its lock.
func (f *exportFile) close() error {
	if f.part == nil {
		return nil
	}
	return f.part.Close()
}
