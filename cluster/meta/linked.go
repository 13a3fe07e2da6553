package meta

import (
	"context"
	"slices"
	"strconv"

	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// prefixLinked begins the rows that say which observers a node runs, one a node.
const prefixLinked = "linked/"

// Link records which observers a node runs. A node's earlier incarnation is replaced; a
// later one stays.
func (m *Meta) Link(ctx context.Context, w mvcc.Worker, names []string) error {
	row := prefixLinked + strconv.FormatUint(w.Node, 10)
	names = slices.Sorted(slices.Values(names))
	return retry(ctx, func() (bool, error) {
		old, err := m.get(ctx, row)
		if err != nil {
			return false, err
		}
		have := &wire.LinkedObservers{}
		if err := decode(row, old, have); err != nil {
			return false, err
		}
		if have.Incarnation > w.Incarnation || slices.Equal(have.Names, names) {
			return true, nil
		}
		value, err := encode(&wire.LinkedObservers{
			NodeId: w.Node, Incarnation: w.Incarnation, Names: names,
		})
		if err != nil {
			return false, err
		}
		return m.swap(ctx, change{row: row, old: old, value: value})
	})
}

// Linked are the observers that are run by nodes of which alive says so: whatever waits
// for another waits in vain for now.
func (m *Meta) Linked(ctx context.Context, alive func(node uint64) bool) (map[string]bool, error) {
	out := map[string]bool{}
	err := m.records(ctx, prefixLinked, func(row string, value []byte) error {
		r := &wire.LinkedObservers{}
		if err := decode(row, value, r); err != nil {
			return err
		}
		if alive(r.NodeId) {
			for _, name := range r.Names {
				out[name] = true
			}
		}
		return nil
	})
	return out, err
}
