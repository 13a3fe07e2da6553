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

// The audit log's own file (--audit-log), in addition to the node's log. Lines come from many
// goroutines, which write one at a time: audited actions are rare.

// maxRefusedLines limits the lines per second for refused requests: any holder of a certificate can
// cause them, and could fill the disk.
const maxRefusedLines = 100

// auditTee is a slog.Handler that also writes audit records to the file.
type auditTee struct {
	slog.Handler
	file *auditFile
}

// Handle implements slog.Handler. If the file cannot be written it only logs that, so that operators
// can still act, perhaps to repair it.
func (t auditTee) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == rpc.AuditMessage {
		if err := t.file.write(ctx, r); err != nil {
			lost := slog.NewRecord(r.Time, slog.LevelError, "cannot write the audit log's file", 0)
			lost.AddAttrs(slog.String("file", t.file.path), slog.Any("error", err))
			_ = t.Handler.Handle(ctx, lost)
		}
	}
	return t.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler. Lines of the file contain only the action's own attributes.
func (t auditTee) WithAttrs(attrs []slog.Attr) slog.Handler {
	return auditTee{t.Handler.WithAttrs(attrs), t.file}
}

// WithGroup implements slog.Handler, as WithAttrs.
func (t auditTee) WithGroup(name string) slog.Handler {
	return auditTee{t.Handler.WithGroup(name), t.file}
}

// auditFile is a file with a line of JSON per action.
type auditFile struct {
	path string

	mu        sync.Mutex
	file      *os.File // nil: not open
	line      bytes.Buffer
	encode    slog.Handler // puts a record into line
	torn      bool         // the file may end with a partial line
	second    time.Time    // the second in which refused counts
	refused   int          // lines for refused requests in that second, dropped ones included
	unwritten int          // refused lines dropped since the last written one
}

// openAudit opens the file, and creates it if it does not exist.
func openAudit(path string) (*auditFile, error) {
	f := &auditFile{path: path}
	f.encode = slog.NewJSONHandler(&f.line, nil)
	return f, f.reopen()
}

// write appends a line. Lines for executed actions are durable when it returns; those for refused
// requests may not be, and beyond maxRefusedLines a second they are only counted.
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
	r = r.Clone() // shared with other handlers
	if f.unwritten > 0 {
		r.AddAttrs(slog.Int("refusals_unwritten", f.unwritten))
	}
	if err := f.reopen(); err != nil {
		return err
	}
	f.line.Reset()
	if f.torn { // asked after reopen, which sets it if log rotation has replaced the file
		f.line.WriteByte('\n')
	}
	if err := f.encode.Handle(ctx, r); err != nil {
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

// reopen opens the path again if log rotation has moved or removed the file since the last line.
func (f *auditFile) reopen() error {
	there, err := os.Stat(f.path)
	switch {
	case err == nil && !there.Mode().IsRegular():
		return fmt.Errorf("%s is not a regular file: name another one", f.path)
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
	// A killed process or a full disk may have left a partial line.
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

// close closes the file. The caller must not write afterwards, which would open it again.
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
