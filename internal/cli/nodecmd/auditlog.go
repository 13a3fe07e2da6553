package nodecmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/percolator-go/percolator/internal/rpc"
)

// This file keeps the audit log in a file of its own (--audit-log), beside the node's log. It
// owns the file. Lines come from many goroutines, of which one writes at a time: there are
// few acts.

// maxRefusedLines bounds the lines a second about what was refused: anybody with a
// certificate causes those, and could fill the disk.
const maxRefusedLines = 100

// auditTee is a log's handler that also has what is audited written to the file.
type auditTee struct {
	slog.Handler
	file *auditFile
}

// Handle implements slog.Handler. A file that cannot be written does not keep operators from
// acting, who may be about to mend that; the log says so.
func (t auditTee) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == rpc.AuditMessage {
		if err := t.file.write(ctx, r); err != nil {
			lost := slog.NewRecord(r.Time, slog.LevelError, "the audit log's file can't be written", 0)
			lost.AddAttrs(slog.String("file", t.file.path), slog.Any("error", err))
			_ = t.Handler.Handle(ctx, lost)
		}
	}
	return t.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler. Lines of the file have the act's own attributes only.
func (t auditTee) WithAttrs(attrs []slog.Attr) slog.Handler {
	return auditTee{t.Handler.WithAttrs(attrs), t.file}
}

// WithGroup implements slog.Handler, as WithAttrs.
func (t auditTee) WithGroup(name string) slog.Handler {
	return auditTee{t.Handler.WithGroup(name), t.file}
}

// auditFile is a file with a line of JSON for each act.
type auditFile struct {
	path string

	mu        sync.Mutex
	file      *os.File // nil: it could not be opened
	line      bytes.Buffer
	encode    slog.Handler // puts a record into line
	torn      bool         // the file may not end with a whole line
	second    time.Time    // in which refused lines were written
	refused   int
	unwritten int // lines since the last one
}

// openAudit opens the file, and makes it if there is none.
func openAudit(path string) (*auditFile, error) {
	f := &auditFile{path: path}
	f.encode = slog.NewJSONHandler(&f.line, nil)
	return f, f.reopen()
}

// write appends a line. What was done is on the disk when it returns; what was refused need
// not be.
func (f *auditFile) write(ctx context.Context, r slog.Record) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	refused := false
	r.Attrs(func(a slog.Attr) bool {
		refused = refused || a.Key == "outcome" && a.Value.String() == "refused"
		return !refused
	})
	if second := r.Time.Truncate(time.Second); refused && !second.Equal(f.second) {
		f.second, f.refused = second, 0
	}
	if refused {
		if f.refused++; f.refused > maxRefusedLines {
			f.unwritten++
			return nil
		}
	}
	r = r.Clone() // others have it too
	if f.unwritten > 0 {
		r.AddAttrs(slog.Int("refusals_unwritten", f.unwritten))
	}
	f.line.Reset()
	if f.torn {
		f.line.WriteByte('\n')
	}
	err := f.encode.Handle(ctx, r)
	if err == nil {
		err = f.reopen()
	}
	if err != nil {
		return err
	}
	n, err := f.file.Write(f.line.Bytes())
	if err != nil {
		f.torn = f.torn || n > 0
		return err
	}
	f.torn, f.unwritten = false, 0
	if refused {
		return nil
	}
	return f.file.Sync()
}

// reopen makes the path the file that is written to: it may have been moved away or removed
// since the last line, as whoever rotates logs does.
func (f *auditFile) reopen() error {
	there, err := os.Stat(f.path)
	switch {
	case err == nil && !there.Mode().IsRegular():
		return fmt.Errorf("%s is not a regular file", f.path)
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return err
	case err == nil && f.file != nil:
		own, err := f.file.Stat()
		if err == nil && os.SameFile(own, there) {
			return nil
		}
	}
	file, err := os.OpenFile(f.path, os.O_APPEND|os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	// A process that was killed, or a disk that was full, may have left half a line.
	last := []byte{'\n'}
	if end, err := file.Seek(0, io.SeekEnd); err == nil && end > 0 {
		_, err = file.ReadAt(last, end-1)
		if err != nil {
			return errors.Join(err, file.Close())
		}
	}
	f.torn = last[0] != '\n'
	err = f.closeFile()
	f.file = file
	return err
}

// close closes the file. Nothing is written after it.
func (f *auditFile) close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.closeFile()
}

func (f *auditFile) closeFile() error {
	if f.file == nil {
		return nil
	}
	return f.file.Close()
}
