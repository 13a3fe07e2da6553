package backup

import (
	"context"
	"errors"
	"io"
	"slices"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// Reads of a range of a chain of backups as of a timestamp. A merge belongs to one goroutine, and
// holds a block of one file of each backup.

// source yields one backup's records of a range, file by file.
type source struct {
	from   *Location
	m      *Manifest
	rows   mvcc.Span
	files  []*File // the backup's files of the range that are not read yet
	reader *dataReader
	head   *mvcc.ReadCell // the next record of the range; nil if there is none
}

// newSource returns a source whose first call of next moves head to its first record.
func newSource(l *Location, m *Manifest, r *Range) *source {
	s := &source{from: l, m: m, rows: r.span()}
	for i := range m.Files {
		if f := &m.Files[i]; f.Table == r.Table && f.overlaps(r) {
			s.files = append(s.files, f)
		}
	}
	return s
}

// next moves head to the next record of the range. It closes a file at the first record behind the
// range: only a file without such a record is read to its end and compared with the manifest.
func (s *source) next(ctx context.Context) (err error) {
	s.head = nil
	for {
		if s.reader == nil {
			if len(s.files) == 0 {
				return nil
			}
			if s.reader, err = s.from.openData(ctx, s.m, s.files[0]); err != nil {
				return err
			}
			s.files = s.files[1:]
		}
		c, err := s.reader.next()
		switch {
		case errors.Is(err, io.EOF):
			s.close()
		case err != nil:
			return err
		case c.Cell.Row < s.rows.Start:
		case !s.rows.Contains(c.Cell.Row):
			s.files = nil
			s.close()
		default:
			s.head = c
			return nil
		}
	}
}

func (s *source) close() {
	if s.reader != nil {
		s.reader.close()
		s.reader = nil
	}
}

// merge yields the newest record at or below a timestamp of each cell of a range.
type merge struct {
	at      uint64
	sources []*source // one for each backup of the chain, the full one first
}

// newMerge returns the merge of the chain's records of a range.
func newMerge(l *Location, chain []*Manifest, r *Range, at uint64) *merge {
	m := &merge{at: at}
	for _, b := range chain {
		m.sources = append(m.sources, newSource(l, b, r))
	}
	return m
}

// each calls fn with that record of every cell, in the order of cells, unless it is a deletion.
func (m *merge) each(ctx context.Context, fn func(*mvcc.ReadCell) error) error {
	defer func() {
		for _, s := range m.sources {
			s.close()
		}
	}()
	for _, s := range m.sources {
		if err := s.next(ctx); err != nil {
			return err
		}
	}
	for {
		cell, ok := m.least()
		if !ok {
			return nil
		}
		newest, err := m.take(ctx, cell)
		if err != nil {
			return err
		}
		if newest == nil || newest.Deleted {
			continue
		}
		if err := fn(newest); err != nil {
			return err
		}
	}
}

// least returns the smallest cell with an unread record.
func (m *merge) least() (cell mvcc.Cell, ok bool) {
	for _, s := range m.sources {
		if s.head != nil && (!ok || s.head.Cell.Compare(cell) < 0) {
			cell, ok = s.head.Cell, true
		}
	}
	return cell, ok
}

// take consumes all records of the cell and returns the newest at or below the timestamp. Records
// of a later backup of the chain are newer than all earlier ones.
func (m *merge) take(ctx context.Context, cell mvcc.Cell) (newest *mvcc.ReadCell, err error) {
	for _, s := range slices.Backward(m.sources) {
		for s.head != nil && s.head.Cell == cell {
			if newest == nil && uint64(s.head.CommitTS) <= m.at {
				newest = s.head
			}
			if err := s.next(ctx); err != nil {
				return nil, err
			}
		}
	}
	return newest, nil
}
