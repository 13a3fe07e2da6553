// Package hashed spreads rows that are written in ascending order, such as times and sequence
// numbers, over a whole table, so that no single tablet receives all writes.
//
// The first element of a row is a shard number, computed from a hash of the other elements, so
// that a reader can compute it too. A scan in order merges one scan per shard, which is the
// cost of spreading. A table with split keys at the shards has tablets on all nodes from the
// start.
package hashed

import (
	"container/heap"
	"context"
	"fmt"
	"hash/fnv"
	"iter"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/tuple"
)

// Table is a table with spread rows. It is stateless, and its methods are safe for concurrent
// use.
type Table struct {
	name   string
	shards int
}

// MaxShards is the maximum number of shards of a Table: Scan opens one scan per shard.
const MaxShards = 256

// New returns a Table with the number of shards, which must not change while the table has rows.
// It panics with percolator.ErrInvalid if name is empty or shards is not between 1 and MaxShards.
func New(name string, shards int) Table {
	if name == "" || shards < 1 || shards > MaxShards {
		panic(fmt.Errorf("%w: hashed: table %q with %d shards: it must have a name and 1 to %d",
			percolator.ErrInvalid, name, shards, MaxShards))
	}
	return Table{name: name, shards: shards}
}

// Register registers the table with the split keys of Spec.
func (t Table) Register(r *percolator.Registry) { r.Table(t.Spec()) }

// Spec returns the spec of the table, with a split key per shard except the first.
func (t Table) Spec() percolator.TableSpec {
	spec := percolator.TableSpec{Name: t.name}
	for shard := 1; shard < t.shards; shard++ {
		spec.SplitKeys = append(spec.SplitKeys, tuple.Pack(shard))
	}
	return spec
}

// Row returns the row of the elements, which may be of any type that tuple.Pack accepts.
func (t Table) Row(elements ...any) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(tuple.Pack(elements...))) // Write of a hash never fails
	return tuple.Pack(append([]any{int(h.Sum64() % uint64(t.shards))}, elements...)...)
}

// Elements returns the packed elements of a row without its shard, for tuple.Unpack. The error
// is that of tuple.Parse, or percolator.ErrInvalid for an empty row.
func Elements(row string) (string, error) {
	all, err := tuple.Parse(row)
	if err != nil {
		return "", err
	}
	if len(all) == 0 {
		return "", fmt.Errorf("%w: hashed: a row without a shard", percolator.ErrInvalid)
	}
	return tuple.Pack(all[1:]...), nil
}

// Scan yields the cells of the rows whose elements begin with prefix (of all rows if it is
// empty), ordered by elements, then by column. The rows of the cells include the shard; see
// Elements. An error is the last element of the sequence. Scan keeps one scan per shard open.
func (t Table) Scan(ctx context.Context, r percolator.Reader, prefix []any,
	cols ...percolator.Column) iter.Seq2[percolator.Cell, error] {
	return func(yield func(percolator.Cell, error) bool) {
		var heads shards
		defer func() {
			for _, s := range heads {
				s.stop()
			}
		}()
		for shard := range t.shards {
			rows := percolator.Rows(t.name).Prefix(tuple.Prefix(append([]any{shard}, prefix...)...))
			next, stop := iter.Pull2(r.Scan(ctx, rows, cols...))
			s := &scan{next: next, stop: stop, skip: len(tuple.Pack(shard))}
			more, err := s.advance()
			if err != nil {
				stop()
				yield(percolator.Cell{}, err)
				return
			}
			if more {
				heads = append(heads, s)
			}
		}
		heap.Init(&heads)
		for len(heads) > 0 {
			first := heads[0]
			if !yield(first.cell, nil) {
				return
			}
			more, err := first.advance()
			switch {
			case err != nil:
				yield(percolator.Cell{}, err)
				return
			case more:
				heap.Fix(&heads, 0)
			default:
				heap.Pop(&heads)
			}
		}
	}
}

// scan is the scan of one shard, positioned at its next cell.
type scan struct {
	next func() (percolator.Cell, error, bool)
	stop func()
	skip int // bytes of the shard's element
	cell percolator.Cell
}

// advance moves to the next cell. If there is none, it stops the scan and reports false.
func (s *scan) advance() (more bool, err error) {
	s.cell, err, more = s.next()
	if !more {
		s.stop()
	}
	return more, err
}

// shards is a heap of scans, ordered by the row of the next cell without its shard.
type shards []*scan

func (h shards) Len() int { return len(h) }
func (h shards) Less(i, j int) bool {
	return h[i].cell.Row[h[i].skip:] < h[j].cell.Row[h[j].skip:]
}
func (h shards) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *shards) Push(x any)   { *h = append(*h, x.(*scan)) }
func (h *shards) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
