package meta

import (
	"context"
	"slices"
	"strconv"

	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// This file records which observers each node links, one row per node, written by the
// node itself when it starts and when its observers change. Any node reads them to tell
// observers that wait for work from those that nobody runs. It owns nothing in memory.

// prefixLinked begins the rows that say which observers a node runs, one per node.
const prefixLinked = "linked/"

// Link records which observers a node runs. A node's earlier incarnation is replaced; a
// later one stays.
func (m *Meta) Link(ctx context.Context, w mvcc.Worker, names []string) error {
	row := prefixLinked + strconv.FormatUint(w.Node, 10)
	// Sorted, so that the same set is the same record and is not written again.
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

// Linked returns the observers that are run by nodes for which alive returns true. Work
// for any other observer waits until a node that links it comes.
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
