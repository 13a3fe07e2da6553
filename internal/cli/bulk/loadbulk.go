package bulk

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync/atomic"

	"github.com/percolator-go/percolator/backup"
	"github.com/percolator-go/percolator/internal/cli/shell"
	"github.com/percolator-go/percolator/internal/coded"
	"github.com/percolator-go/percolator/internal/inspect"
)

// `load --bulk` writes the sorted rows of a file into an empty table, by backup.Load. The file's
// parts are loaded concurrently. The parts depend on the file alone, so that a run with other flags
// can resume an interrupted one.

// Bounds of a part, in bytes: an eighth of the file, within these limits.
const (
	minBulkPart = 4 << 20
	maxBulkPart = 64 << 20 // below the default size at which a tablet is split
)

// bulkLoad is one run of load --bulk.
type bulkLoad struct {
	*loading
	consumed atomic.Int64 // bytes of the file
	rows     atomic.Int64
}

// foreignFlag returns the name of a given flag that cannot be combined with --bulk or, if --bulk is
// not set, that requires it; "" if no such flag is given.
func (l *loading) foreignFlag(given func(flag string) bool) string {
	foreign := []string{"notify"}
	if l.bulk {
		foreign = []string{"restart", "backlog", "batch", "checkpoint"}
	}
	for _, name := range foreign {
		if given(name) {
			return name
		}
	}
	return ""
}

// runBulk loads the file. It refuses a table with strong observers unless notifyGiven.
func (l *loading) runBulk(ctx context.Context, s *shell.Session, notifyGiven bool) error {
	b := &bulkLoad{loading: l}
	if !notifyGiven {
		if err := refuseObserved(ctx, s, l.table); err != nil {
			return err
		}
	}
	o := backup.LoadOptions{Table: l.table, Notify: l.notify}
	o.Workers, o.By = l.workers, shell.WhoAmI()
	var err error
	if o.Source, o.Parts, err = b.parts(); err != nil {
		return err
	}
	l.meter = l.out.NewMeter("load", shell.Tally{Total: l.input.size}, l.quiet)
	o.Progress = func(backup.Progress) { l.meter.Show(b.tally()) }
	r, err := backup.Load(ctx, s.Client, o)
	switch {
	case errors.Is(err, backup.ErrNotEmpty):
		return shell.WithHint(err, "--bulk loads into an empty table only; `load` without it writes into any")
	case errors.Is(err, backup.ErrNotSorted), errors.Is(err, errBadLine):
		return shell.WithHint(err, "sort the file with `LC_ALL=C sort`, or correct it; then drop the table and load again")
	case err != nil:
		l.meter.End(b.tally(), "stopped")
		return l.conn.WithResumeHint(err, "the rows loaded so far; until it completes the table cannot be opened")
	}
	if r.Before {
		l.out.Note("an earlier run has loaded %s completely; nothing was written", l.input.name)
		l.meter.End(b.tally(), "unchanged")
		return l.answer(shell.Tally{})
	}
	l.meter.End(b.tally(), "done")
	return l.answer(b.tally())
}

func (b *bulkLoad) tally() shell.Tally {
	b.mu.Lock()
	defer b.mu.Unlock()
	return shell.Tally{
		Rows: b.rows.Load(), Bytes: b.consumed.Load(), Skipped: b.done.Skipped, Total: b.input.size,
	}
}

// refuseObserved rejects a table with strong observers, which the user may expect to run.
func refuseObserved(ctx context.Context, s *shell.Session, table string) error {
	names, catalogue, err := s.Schema(ctx)
	if err != nil {
		return err
	}
	id, err := names.Table(table)
	if err != nil {
		return nil // the table is being restored, or does not exist: backup.Load reports it
	}
	for _, o := range catalogue.GetObservers() {
		if o.Table == uint32(id) && !o.Weak && !o.Retired {
			return shell.WithHint(fmt.Errorf("observer %s observes table %s, and --bulk notifies no observer by itself",
				inspect.Printable(o.Name), inspect.Printable(table)),
				"--notify runs the observers when all rows are loaded, --notify=false does not")
		}
	}
	return nil
}

// parts divides the input and names it. Standard input is one part.
func (b *bulkLoad) parts() (source string, parts []backup.LoadPart, err error) {
	if !b.input.resumable() {
		// The name is random: a later run, whose input may have other rows, must not resume this
		// one.
		return fmt.Sprintf("standard input (%s)", rand.Text()), []backup.LoadPart{{Rows: b.part(b.input.from, 0)}}, nil
	}
	size := b.input.size
	each := min(max(size/8, minBulkPart), maxBulkPart)
	for from := int64(0); from < size; from += each {
		start, err := b.lineAfter(from)
		if err != nil {
			return "", nil, err
		}
		end, err := b.lineAfter(min(from+each, size))
		if err != nil {
			return "", nil, err
		}
		if start == end {
			continue // no line begins in this section: a long one spans it
		}
		section := func() io.Reader { return io.NewSectionReader(b.input.file, start, end-start) }
		first, err := newRowReader(section(), b.maxLine).nextGood()
		if errors.Is(err, io.EOF) {
			if len(parts) > 0 || end < size { // no good line in one of several parts
				return "", nil, coded.Errorf("", "%w: %d bytes from byte %d on have no good line", errBadLine, end-start, start)
			}
			break
		}
		if err != nil {
			return "", nil, err
		}
		parts = append(parts, backup.LoadPart{Start: first.row, Rows: b.part(section(), start)})
	}
	digest, err := fileDigest(b.input.file, size)
	if err != nil {
		return "", nil, err
	}
	if len(parts) == 0 {
		return "", nil, fmt.Errorf("%s has no rows", b.input.name)
	}
	return fmt.Sprintf("file %s (%d bytes, %.12s, %d parts)", filepath.Base(b.input.name), size, digest, len(parts)),
		parts, nil
}

// lineAfter returns the start of the first line that begins at the offset or after it.
func (b *bulkLoad) lineAfter(offset int64) (int64, error) {
	if offset == 0 || offset == b.input.size {
		return offset, nil
	}
	r := bufio.NewReader(io.NewSectionReader(b.input.file, offset-1, b.input.size-offset+1))
	for at := offset - 1; ; {
		rest, err := r.ReadSlice('\n')
		at += int64(len(rest))
		switch {
		case err == nil:
			return at, nil
		case errors.Is(err, io.EOF):
			return b.input.size, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return 0, err
		}
	}
}

// nextGood returns the next row, and skips bad lines.
func (r *rowReader) nextGood() (*rowCells, error) {
	for {
		row, err := r.next()
		if !errors.Is(err, errBadLine) {
			return row, err
		}
	}
}

// part returns the rows of a section of the file that begins at the offset.
func (b *bulkLoad) part(from io.Reader, offset int64) func(context.Context, func(string, []backup.LoadCell) error) error {
	return func(ctx context.Context, fn func(string, []backup.LoadCell) error) error {
		rows := newRowReader(from, b.maxLine)
		var cells []backup.LoadCell
		for counted := int64(0); ; {
			row, err := rows.next()
			at := rows.lines.offset
			b.consumed.Add(at - counted)
			counted = at
			switch {
			case errors.Is(err, io.EOF):
				return nil
			case errors.Is(err, errBadLine):
				line := b.lineAt(offset+at-1, rows.lines.line)
				if err := b.passOver(line, err); err != nil {
					return err
				}
				continue
			case err != nil:
				return err
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			cells = cells[:0]
			for _, c := range row.cells {
				if !c.remove { // the empty table has nothing to delete
					cells = append(cells, backup.LoadCell{Column: c.column, Value: c.value})
				}
			}
			if err := fn(row.row, cells); err != nil {
				if errors.Is(err, backup.ErrNotSorted) {
					err = coded.Errorf("", "%s line %d: %w", b.input.name, b.lineAt(offset+at-1, rows.lines.line), err)
				}
				return err
			}
			b.rows.Add(1)
		}
	}
}

// lineAt returns the number of the line with the byte at the offset, for messages. line is its number
// in its part.
func (b *bulkLoad) lineAt(offset, line int64) int64 {
	if !b.input.resumable() {
		return line
	}
	n, buffer := int64(1), make([]byte, 1<<20)
	for r := io.NewSectionReader(b.input.file, 0, offset); ; {
		read, err := r.Read(buffer)
		n += int64(bytes.Count(buffer[:read], []byte{'\n'}))
		if err != nil {
			return n
		}
	}
}
