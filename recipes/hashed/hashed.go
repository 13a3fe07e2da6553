// Package hashed spreads rows that come in order, such as times and numbers, over the whole
// of a table, so that no tablet takes all writes.
//
// The first element of a row is a shard, taken from a hash of the others. A row is found
// without knowing its shard. A scan in order merges one scan of each shard, which is what
// spreading costs; a table with split keys at the shards has its tablets on all nodes from
// the start.
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

// Table is a table whose rows are spread. It holds no state, and its methods may be called
// concurrently.
type Table struct {
	name   string
	shards int
}

// MaxShards bounds the shards of a Table: each is a scan of its own.
const MaxShards = 256

// New returns the table with as many shards, which must stay as they are while it has rows. It
// panics with percolator.ErrInvalid if they are not 1 to MaxShards, a fault of the program.
func New(name string, shards int) Table {
	if name == "" || shards < 1 || shards > MaxShards {
		panic(fmt.Errorf("%w: hashed: table %q with %d shards: it may have 1 to %d",
			percolator.ErrInvalid, name, shards, MaxShards))
	}
	return Table{name: name, shards: shards}
}

// Spec is what makes the table, with a split at each shard: for Registry.Table.
func (t Table) Spec() percolator.TableSpec {
	spec := percolator.TableSpec{Name: t.name}
	for shard := 1; shard < t.shards; shard++ {
		spec.SplitKeys = append(spec.SplitKeys, tuple.Pack(shard))
	}
	return spec
}

// Row returns the row of the elements, which are those that tuple.Pack takes.
func (t Table) Row(elements ...any) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(tuple.Pack(elements...))) // a hash takes everything
	return tuple.Pack(append([]any{int(h.Sum64() % uint64(t.shards))}, elements...)...)
}

// Elements returns the packed elements of a row, without its shard: for tuple.Unpack. The
// error is tuple's.
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

// Scan yields the cells of the rows whose elements begin with the prefix (none: of all), in the
// order of their elements, then of columns. Cells have the table's rows, with their shards.
// After an error it ends. It holds as many scans open as there are shards.
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

// scan is that of one shard, at its next cell.
type scan struct {
	next func() (percolator.Cell, error, bool)
	stop func()
	skip int // bytes of the shard's element
	cell percolator.Cell
}

// advance goes to the next cell. Without more the scan is over, and stopped.
func (s *scan) advance() (more bool, err error) {
	s.cell, err, more = s.next()
	if !more {
		s.stop()
	}
	return more, err
}

// shards has the scan whose next cell comes first on top. Rows of different shards differ
// behind the shard.
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
