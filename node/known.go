package node

import (
	"context"
	"slices"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/cluster/admin"
)

// What operators ask for is partly kept in meta, and meta may be without a quorum just when
// they ask. A node then answers with what it was told last, and how long ago that was. This
// file owns those last answers, but for the node table, which package admin has: whoever
// asks meta on any goroutine of the node leaves its answer here.

// known are the last answers that a node keeps.
type known struct {
	linked    admin.LastAnswer[[]string] // observers, sorted
	placement admin.LastAnswer[*pb.PlacementStatus]
}

// linkedPatience bounds the question to meta that a status is made with.
const linkedPatience = 300 * time.Millisecond

// metaStatus fills in which observers are linked, and whether meta, which knows that, answers.
func (n *Node) metaStatus(ctx context.Context, out *pb.NodeStatusResponse) {
	asking, cancel := context.WithTimeout(ctx, linkedPatience)
	defer cancel()
	began := time.Now()
	linked, err := n.observers.linked(asking)
	if err == nil {
		names := make([]string, 0, len(linked))
		for name := range linked {
			names = append(names, name)
		}
		slices.Sort(names)
		n.known.linked.Set(names)
	}
	out.Linked, out.LinkedAgeMs = n.known.linked.GetMs()
	if err == nil {
		out.LinkedAgeMs = 0
	}
	if n.peers == nil {
		return // meta was not asked: it is here
	}
	if ctx.Err() == nil {
		n.changes.sight.record(began, err)
	}
	out.Meta = n.changes.sight.status()
	out.Meta.LeaderNode = n.router.Leader(cluster.MetaTablet)
}
