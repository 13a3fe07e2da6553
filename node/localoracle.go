package node

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/percolator-go/percolator/actors/oracle"
	"github.com/percolator-go/percolator/actors/tablet"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/cluster/route"
	"github.com/percolator-go/percolator/internal/actorkit"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/tracing"
)

// localOracle owns this node's oracle, which issues timestamps while this node leads meta, and the
// oracle.Judge, which decides whether they may follow this node's clock. Open's and Close's
// goroutines start and stop it. Tablets and other nodes request timestamps on any goroutine; before
// start and after stop no oracle runs. In flight may be checks of the clock, and requests to the
// meta tablet to confirm its leadership.
type localOracle struct {
	self      uint64
	router    *route.Router
	peerNodes *cluster.PeerNodes
	clock     func() time.Time
	tracer    *tracing.Tracer // nil: no tracing

	running atomic.Pointer[oracle.Oracle] // nil: it does not run
	judge   *oracle.Judge
	// metaLeadership reports whether the meta tablet leads as its group's only voter or under a lease,
	// so that timestamps can be issued without a message to it.
	metaLeadership tablet.PublishedLeadership
}

// start starts the oracle. While this node does not lead meta, requests fail with a NotLeader that
// has the leader's id, 0 if unknown. The end of life cancels judgements of the clock. clock is nil
// for the system's.
func (l *localOracle) start(life context.Context, system *actor.ActorSystem,
	turns *actorkit.Dispatcher, cfg Config, clock func() time.Time) error {
	// The judge is made before the oracle, which asks it before it issues anything.
	l.judge = oracle.NewJudge(life, oracle.JudgeConfig{
		Self: l.self, Now: l.clock, Limit: cfg.MaxClockAhead, Peers: l.peerNodes.Alive,
		Voters: l.otherVoters,
		Ask:    l.peerNodes.Clock, HandOver: l.transferMeta, Logger: cfg.Logger,
		NotLeader: func(leader uint64) error { return &route.NotLeader{Leader: leader} },
	})
	// The oracle confirms its leadership through Mark and Confirmed below.
	o, err := oracle.Spawn(system, l, oracle.Config{
		Batch: actorkit.BatchConfig(cfg.Batch.Oracle), Clock: clock, Logger: cfg.Logger, Dispatcher: turns,
		Tracer: l.tracer,
		Judge:  l.judge.Judge,
		Voters: func() int { return len(l.otherVoters()) },
	})
	if err == nil {
		l.running.Store(o)
	}
	return err
}

// stop ends the oracle and the judge, as far as they were started. The oracle ends first,
// because it asks the judge.
func (l *localOracle) stop() (err error) {
	if o := l.running.Swap(nil); o != nil {
		err = o.Stop()
	}
	if l.judge != nil {
		l.judge.Close()
	}
	return err
}

// port returns the oracle's port; nil means it does not run.
func (l *localOracle) port() *oracle.Port {
	if o := l.running.Load(); o != nil {
		return o.Port()
	}
	return nil
}

// now returns the first of count consecutive timestamps, if they can be had without
// waiting.
func (l *localOracle) now(count int) (mvcc.Timestamp, bool) {
	if o := l.running.Load(); o != nil {
		return o.Now(count)
	}
	return 0, false
}

// Confirmed implements oracle.Meta. It succeeds while meta's replica on this node leads and is the
// only voter or holds a lease.
func (l *localOracle) Confirmed() (term, mark uint64, alone, ok bool) {
	return l.metaLeadership.Confirmed()
}

// Mark implements oracle.Meta. The meta tablet raises its mark, if it leads, and confirms that it
// does. It calls the callback then once: on the tablet's goroutine, or before Mark returns if no
// replica of meta runs here.
func (l *localOracle) Mark(raiseTo uint64, then func(term, mark uint64, err error)) {
	port := l.router.Port(cluster.MetaTablet)
	if port == nil {
		then(0, 0, &route.NotLeader{Leader: l.router.Leader(cluster.MetaTablet)})
		return
	}
	req := &pb.TabletRequest{Op: &pb.TabletRequest_Mark{Mark: &pb.MarkRequest{RaiseTo: raiseTo}}}
	// Without a deadline and beyond the queue's limit: timestamps of the whole cluster
	// may wait for this request.
	err := port.Tell(req, time.Time{}, true, func(r actorkit.Result[*pb.TabletResponse]) {
		switch e := r.Value.GetError(); {
		case r.Err != nil:
			then(0, 0, r.Err)
		case e.GetCode() == pb.Error_CODE_NOT_LEADER:
			then(0, 0, &route.NotLeader{Leader: e.LeaderNode})
		// The oracle distinguishes a full disk from other errors, because waiting may help.
		case e.GetCode() == pb.Error_CODE_DISK_FULL:
			then(0, 0, fmt.Errorf("%w: %s", oracle.ErrNoRoom, e.Message))
		case e != nil:
			then(0, 0, fmt.Errorf("ask the meta tablet for the oracle's mark: %s", e.Message))
		default:
			then(r.Value.GetMark().GetTerm(), r.Value.GetMark().GetMark(), nil)
		}
	})
	if err != nil {
		then(0, 0, err)
	}
}

// otherVoters returns the other nodes that vote in meta, as far as this one knows; none
// if the node is alone. A voter that is on its way out does not count.
func (l *localOracle) otherVoters() (out []uint64) {
	if l.peerNodes.Alone() {
		return nil
	}
	for _, r := range l.router.Descriptor(cluster.MetaTablet).GetReplicas() {
		if !r.Learner && !r.Outgoing && r.NodeId != l.self {
			out = append(out, r.NodeId)
		}
	}
	return out
}

// transferMeta transfers meta's leadership to the node. It waits for the new leader and returns
// it; 0 means it is not known, or this node has no replica of meta.
func (l *localOracle) transferMeta(ctx context.Context, node uint64) (leader uint64, err error) {
	port := l.router.Port(cluster.MetaTablet)
	if port == nil {
		return 0, nil // this node has no replica of meta
	}
	leader, err = tablet.TransferTo(ctx, port, node)
	if err == nil {
		recordLeader(l.router, cluster.MetaTablet, l.self, leader)
	}
	return leader, err
}

// stats returns the last timestamp issued, how many were issued, and in how many batches;
// zeros if the oracle does not run.
func (l *localOracle) stats() (last mvcc.Timestamp, served, batches uint64) {
	if o := l.running.Load(); o != nil {
		last, served, batches = o.Stats()
	}
	return last, served, batches
}
