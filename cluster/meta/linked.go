package meta

import (
	"context"
	"slices"
	"strconv"

	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// Each node's linked observers, one row per node, written by the node itself when it starts and
// when its observers change. Any node reads them to find observers that no node runs.

// prefixLinked is the prefix of the rows with the observers that each node runs.
const prefixLinked = "linked/"

// Link records the observers that a node runs. It replaces the record of this or an earlier
// incarnation, and leaves a later one's unchanged, so that a late call of an earlier incarnation
// changes nothing.
func (obs *Observers) Link(ctx context.Context, w mvcc.Worker, names []string) error {
	// Sorted, so that the same set gives the same record and is not written again.
	names = slices.Sorted(slices.Values(names))
	_, err := update(ctx, obs.records, prefixLinked+strconv.FormatUint(w.Node, 10),
		func(have *wire.LinkedObservers) (*wire.LinkedObservers, []change, error) {
			if have.GetIncarnation() > w.Incarnation {
				return have, nil, nil
			}
			return &wire.LinkedObservers{
				NodeId: w.Node, Incarnation: w.Incarnation, Names: names,
			}, nil, nil
		})
	return err
}

// Linked returns the observers run by nodes for which alive returns true. The changes of any
// other observer wait until a node that links it starts.
func (obs *Observers) Linked(ctx context.Context,
	alive func(node uint64) bool) (map[string]bool, error) {
	nodes, err := list[*wire.LinkedObservers](ctx, obs.records, prefixLinked)
	if err != nil {
		return nil, err
	}
	out := map[string]bool{}
	for _, n := range nodes {
		if !alive(n.NodeId) {
			continue
		}
		for _, name := range n.Names {
			out[name] = true
		}
	}
	return out, nil
}
