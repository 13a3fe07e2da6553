package txn

import (
	"context"
	"iter"
	"sync/atomic"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// getMulti reads many cells and returns their values in the order of keys. overlay, if not
// nil, supplies the values of some of them.
func (r *reader) getMulti(ctx context.Context, keys []Key,
	overlay func(mvcc.Cell) (Value, bool)) ([]Value, error) {
	values := make([]Value, len(keys))
	cells, where := make([]mvcc.Cell, 0, len(keys)), make([]int, 0, len(keys))
	for i, k := range keys {
		cell, err := r.c.cell(ctx, k)
		if err != nil {
			return nil, err
		}
		if overlay != nil {
			if v, ok := overlay(cell); ok {
				values[i] = v
				continue
			}
		}
		cells, where = append(cells, cell), append(where, i)
	}
	results, err := r.GetRecords(ctx, cells...)
	if err != nil {
		return nil, err
	}
	for i, res := range results {
		if res.Found {
			values[where[i]] = Value{Bytes: handOut(res.Value), CommitTS: res.CommitTS, Found: true}
		}
	}
	return values, nil
}

// Snapshot reads at one timestamp without a transaction.
type Snapshot struct {
	reader
	ended atomic.Bool
}

// Timestamp returns the timestamp of the snapshot.
func (s *Snapshot) Timestamp() mvcc.Timestamp { return s.at }

// Close ends the snapshot and its hold on history.
func (s *Snapshot) Close() error {
	if !s.ended.Swap(true) {
		s.c.leases.Remove(s.at)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.guesses.finish(&s.reader)
	}
	return nil
}

// Get reads one cell.
func (s *Snapshot) Get(ctx context.Context, k Key) (value []byte, ok bool, err error) {
	if s.ended.Load() {
		return nil, false, Errorf("%w: snapshot used after Close", ErrClosed)
	}
	cell, err := s.c.cell(ctx, k)
	if err != nil {
		return nil, false, err
	}
	res, err := s.readOne(ctx, cell)
	if err != nil || !res.Found {
		return nil, false, err
	}
	return handOut(res.Value), true, nil
}

// GetMulti reads many cells.
func (s *Snapshot) GetMulti(ctx context.Context, keys []Key) ([]Value, error) {
	if s.ended.Load() {
		return nil, Errorf("%w: snapshot used after Close", ErrClosed)
	}
	return s.getMulti(ctx, keys, nil)
}

// Scan yields the cells of a range.
func (s *Snapshot) Scan(ctx context.Context, spec ScanSpec) iter.Seq2[mvcc.ReadCell, error] {
	if s.ended.Load() {
		return func(yield func(mvcc.ReadCell, error) bool) {
			yield(mvcc.ReadCell{}, Errorf("%w: snapshot used after Close", ErrClosed))
		}
	}
	return s.scan(ctx, spec, nil)
}

// Settled reports whether the snapshot includes all effects of the tables' observers for commits
// up to its timestamp. Without tables it means all observers. False may also mean unknown.
func (s *Snapshot) Settled(ctx context.Context, tables ...string) (bool, error) {
	if s.ended.Load() {
		return false, Errorf("%w: snapshot used after Close", ErrClosed)
	}
	ids := make([]uint32, len(tables))
	for i, name := range tables {
		id, err := s.c.meta.TableID(ctx, name)
		if err != nil {
			return false, err
		}
		ids[i] = uint32(id)
	}
	return s.c.observers.Settled(ctx, s.at, ids)
}
