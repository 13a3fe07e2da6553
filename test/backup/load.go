package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	percolator "github.com/percolator-go/percolator"
)

// Writing, changing and comparing the rows.

const (
	tableName  = "big"
	valueBytes = 1000
	fillAtOnce = 64
	tablets    = 8
)

var column = percolator.Column{Table: tableName, Name: "c"}

func rowName(i int) string { return fmt.Sprintf("row/%09d", i) }

// value returns words, which compress about as well as real data.
func value(r *rand.Rand) []byte {
	out := make([]byte, 0, valueBytes+16)
	for len(out) < valueBytes {
		out = fmt.Appendf(out, "word%d ", r.IntN(1<<16))
	}
	return out[:valueBytes]
}

// load changes rows until it is stopped.
type load struct {
	db           *percolator.DB
	rows         int
	callers      int
	seed         uint64
	done, failed atomic.Int64
	workers      sync.WaitGroup
	end          context.CancelFunc
}

// fill writes all rows.
func (t *trial) fill(ctx context.Context, db *percolator.DB) (*load, error) {
	l := &load{db: db, rows: int(t.size / valueBytes), callers: t.callers, seed: t.seed, end: func() {}}
	spec := percolator.TableSpec{Name: tableName}
	for i := range tablets - 1 {
		spec.SplitKeys = append(spec.SplitKeys, rowName((i+1)*l.rows/tablets))
	}
	if err := db.CreateTable(ctx, spec); err != nil {
		return nil, err
	}
	group, within := errgroup.WithContext(ctx)
	group.SetLimit(16)
	for first := 0; first < l.rows; first += fillAtOnce {
		group.Go(func() error {
			r := rand.New(rand.NewPCG(t.seed, uint64(first)))
			return db.Transact(within, func(_ context.Context, tx *percolator.Tx) error {
				for i := first; i < min(first+fillAtOnce, l.rows); i++ {
					tx.Set(rowName(i), column, value(r))
				}
				return nil
			})
		})
	}
	err := group.Wait()
	t.say("%d rows of %d bytes written", l.rows, valueBytes)
	return l, err
}

// begin starts the callers. Nodes are killed under them, so some of their transactions fail.
func (l *load) begin(ctx context.Context) {
	ctx, l.end = context.WithCancel(ctx)
	for caller := range l.callers {
		l.workers.Go(func() {
			r := rand.New(rand.NewPCG(l.seed, uint64(caller)))
			for ctx.Err() == nil {
				one, other, v := rowName(r.IntN(l.rows)), rowName(r.IntN(l.rows)), value(r)
				kind := r.IntN(4)
				within, cancel := context.WithTimeout(ctx, 30*time.Second)
				err := l.db.Transact(within, func(_ context.Context, tx *percolator.Tx) error {
					switch kind {
					case 0: // two rows, mostly in different tablets
						tx.Set(one, column, v)
						tx.Delete(other, column)
					case 1: // may create a row after the backup's plan
						tx.Set(one+"/more", column, v)
					default:
						tx.Set(one, column, v)
					}
					return nil
				})
				cancel()
				if err != nil {
					l.failed.Add(1)
				} else {
					l.done.Add(1)
				}
			}
		})
	}
}

// stop ends the callers; a second call does nothing.
func (l *load) stop() {
	l.end()
	l.workers.Wait()
}

// digest identifies a table's contents: per cell its row, and a hash of row, column, value and
// commit timestamp.
type digest struct {
	cells []uint64
	last  string // the last row
	rows  func(i int) string
}

// digestAt reads the table at the timestamp.
func digestAt(ctx context.Context, db *percolator.DB, table string, at percolator.Timestamp) (digest, error) {
	s, err := db.SnapshotAt(ctx, at)
	if err != nil {
		return digest{}, err
	}
	return digestOf(ctx, s, table)
}

// digestNow reads the table at a current timestamp.
func digestNow(ctx context.Context, db *percolator.DB, table string) (digest, error) {
	s, err := db.Snapshot(ctx)
	if err != nil {
		return digest{}, err
	}
	return digestOf(ctx, s, table)
}

func digestOf(ctx context.Context, s *percolator.Snapshot, table string) (d digest, err error) {
	defer func() { _ = s.Close() }()
	var names []string
	for c, err := range s.Scan(ctx, percolator.Rows(table)) {
		if err != nil {
			return d, err
		}
		h := fnv.New64a()
		for _, part := range [][]byte{[]byte(c.Row), []byte(c.Column.Name), c.Value} {
			_, _ = h.Write(binary.BigEndian.AppendUint32(nil, uint32(len(part))))
			_, _ = h.Write(part)
		}
		_, _ = h.Write(binary.BigEndian.AppendUint64(nil, uint64(c.CommitTS)))
		d.cells, names, d.last = append(d.cells, h.Sum64()), append(names, c.Row), c.Row
	}
	d.rows = func(i int) string { return names[i] }
	return d, nil
}

// equals returns an error that names the first difference from the wanted digest.
func (d digest) equals(want digest) error {
	for i := range min(len(d.cells), len(want.cells)) {
		if d.cells[i] != want.cells[i] {
			return fmt.Errorf("cell %d is of row %q; the source has row %q there, or another value or timestamp", i,
				d.rows(i), want.rows(i))
		}
	}
	if len(d.cells) != len(want.cells) {
		return fmt.Errorf("%d cells up to row %q; the source has %d up to %q", len(d.cells), d.last,
			len(want.cells), want.last)
	}
	return nil
}
