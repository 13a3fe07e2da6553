package node

import (
	"testing"

	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/cluster/route"
)

// TestStatusOfUnknownTablet: the status of a node includes replicas of tablets missing in the
// tablet map, such as one without a leader since the node's start.
func TestStatusOfUnknownTablet(t *testing.T) {
	n, ctx := openForReopen(t)
	router := route.NewRouter()
	for _, id := range []uint64{2, cluster.MetaTablet} {
		router.Attach(id, n.router.Port(id))
	}
	replicas := &tablets{router: router, ticker: n.tablets.ticker, policy: n.policy}
	got := replicas.statuses(ctx, false)
	if len(got) != 2 || got[0].Tablet.TabletId != cluster.MetaTablet || got[1].Tablet.TabletId != 2 {
		t.Errorf("%d statuses; want those of meta and of tablet 2: %v", len(got), got)
	}
	if led := replicas.statuses(ctx, true); len(led) > 0 {
		t.Errorf("no replica has said that it leads, and %d statuses of leaders", len(led))
	}
}
