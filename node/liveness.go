package node

import (
	"context"
	"math/rand/v2"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster/liveness"
	"github.com/percolator-go/percolator/internal/version"
)

// newLiveness creates the liveness.Node, by which this node gives promises to other nodes and receives
// theirs. It must be called before any replica runs: the time for which this process waits out the
// promises of an earlier one begins here.
func (n *Node) newLiveness() *liveness.Node {
	began := time.Now()
	cfg := liveness.Config{
		Incarnation: n.identity.Incarnation, Epoch: rand.Uint64()>>1 | 1,
		Promised:   n.joining.self.Supports(),
		MayPromise: func() bool { return n.gate.Has(version.Leases) },
		MayAsk: func() bool {
			p := n.policy.Now()
			return (p.Leases == nil || *p.Leases) && n.gate.Has(version.Leases)
		},
		Clock: n.parts.Uptime,
	}
	if _, ok := liveness.Boottime(); cfg.Clock == nil && ok {
		cfg.Clock = func() time.Duration {
			now, _ := liveness.Boottime()
			return now
		}
	} else if cfg.Clock == nil {
		// A clock that stops while the machine is suspended suffices to give promises: they only
		// last longer.
		cfg.Clock, cfg.MayAsk = func() time.Duration { return time.Since(began) }, nil
	}
	return liveness.New(cfg)
}

// runLiveness asks other nodes for their support until ctx ends.
func (n *Node) runLiveness(ctx context.Context) {
	n.liveness.Run(ctx, n.peerNodes, n.joining.self.NoteSupport, n.cfg.Logger)
}

// clockSpeeds converts the comparisons of other nodes' clocks with this one's.
func clockSpeeds(speeds []liveness.Speed) (out []*pb.ClockSpeed) {
	for _, s := range speeds {
		out = append(out, &pb.ClockSpeed{
			NodeId: s.Node, FasterPpm: int64(s.Faster * 1e6), ErrorPpm: uint64(s.Error * 1e6),
		})
	}
	return out
}
