package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	"github.com/percolator-go/percolator/actors/backfill"
	"github.com/percolator-go/percolator/actors/observer"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// startBackfills starts the job that fills for observers and removes retired ones. It
// does not need observers to be registered: one that was retired, and is linked again,
// waits for its removal.
func (l *leaderJobs) startBackfills() error {
	j, err := backfill.Spawn(l.n.system, backfill.Config{Meta: l.n.meta, Client: l.n.client, Logger: l.n.cfg.Logger})
	if err != nil {
		return fmt.Errorf("node: back-fills: %w", err)
	}
	l.began(j, func() { l.backfills = j })
	return nil
}

// honour makes this node's observers do what the newest catalogue says of them, and reads
// the cluster's policy. Whoever learns of a newer version calls it; calls are one after
// another, so that an older version never comes last.
func (n *Node) honour(ctx context.Context) error {
	if _, err := n.readPolicy(ctx); err != nil {
		return err
	}
	select {
	case n.honouring <- struct{}{}:
		defer func() { <-n.honouring }()
	case <-ctx.Done():
		return ctx.Err()
	}
	return n.honourNow(ctx)
}

// honourNow is honour for who holds honouring.
func (n *Node) honourNow(ctx context.Context) error {
	c, err := n.meta.Catalogue(ctx)
	if err != nil {
		return err
	}
	x := n.notify.Load()
	if x == nil {
		return nil
	}
	c, failed := n.relink(ctx, x, c)
	if err := x.dispatcher.Control(ctx, append(c.GetObservers(), forgotten(c, x.dispatcher.Registered())...)); err != nil {
		return errors.Join(failed, err)
	}
	return errors.Join(failed, n.rescan(ctx, x))
}

// forgotten are those of the observers that have no entry in the catalogue although their
// table is still there: they were retired, and what they left was removed before this
// node read that they were. One that start could not enter in time counts as forgotten
// too, until it is entered: no tablet notifies anybody of its column before that.
func forgotten(c *pb.Catalogue, registered []observer.Registered) []*pb.ObserverInfo {
	var out []*pb.ObserverInfo
	for _, o := range registered {
		entered := slices.ContainsFunc(c.GetObservers(), func(i *pb.ObserverInfo) bool { return i.Name == o.Spec.Name })
		if o.Table == 0 || entered || cluster.IsDropped(c, uint32(o.Table)) {
			continue
		}
		info := infoOf(o.Spec, o.Table)
		info.Retired = true
		out = append(out, info)
	}
	return out
}

// honourEverywhere has every node that is alive honour the newest catalogue. A node that
// dies meanwhile, or is not there now, reads it before it runs anything.
func (n *Node) honourEverywhere(ctx context.Context) error {
	if err := n.honour(ctx); err != nil {
		return err
	}
	if n.peers == nil {
		return nil
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, m := range n.members.Alive() {
		if m.NodeID != n.identity.NodeID {
			group.Go(func() error { return n.haveHonoured(ctx, m.NodeID) })
		}
	}
	return group.Wait()
}

// honourAttempt bounds one question to another node, honourPause is the pause before the next.
const (
	honourAttempt = 2 * time.Second
	honourPause   = 50 * time.Millisecond
)

// haveHonoured asks one node until it has honoured the catalogue or is not believed to be
// alive any more.
func (n *Node) haveHonoured(ctx context.Context, node uint64) error {
	for {
		attempt, cancel := context.WithTimeout(ctx, honourAttempt)
		r, err := n.peers.Call(attempt, node, &wire.PeerRequest{Body: &wire.PeerRequest_Honour{Honour: &wire.HonourCatalogue{}}})
		cancel()
		if err == nil && r.GetError() == nil {
			return nil
		}
		if _, alive := n.members.Member(node); !alive {
			return nil
		}
		timer := time.NewTimer(honourPause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("node %d is alive and has not honoured the catalogue: %w", node, ctx.Err())
		}
	}
}

// wakeBackfills has whoever leads meta look for back-fills. It is a hint: without it they
// are found a few seconds later.
func (n *Node) wakeBackfills() {
	n.changes.jobs.wakeBackfills()
	if leader := n.router.Leader(cluster.MetaTablet); n.peers != nil && leader != 0 && leader != n.identity.NodeID {
		req := &wire.PeerRequest{Body: &wire.PeerRequest_Honour{Honour: &wire.HonourCatalogue{}}}
		n.peers.Tell(leader, time.Now().Add(honourAttempt), req, func(*wire.PeerResponse, error) {})
	}
}

// observersWaiting lists the catalogue's observers with what waits for them, without what
// nodes do about it.
func (n *Node) observersWaiting(ctx context.Context) ([]*pb.ObserverState, error) {
	c, err := n.meta.Catalogue(ctx)
	if err != nil {
		return nil, err
	}
	pending, err := n.client.PendingObservers(ctx)
	if err != nil {
		return nil, err
	}
	fills, err := n.meta.Backfills(ctx, c.GetObservers())
	if err != nil {
		return nil, err
	}
	linked, err := n.linked(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]*pb.ObserverState, 0, len(c.GetObservers()))
	for _, o := range c.GetObservers() {
		p := pending[o.Name]
		out = append(out, &pb.ObserverState{
			Info: proto.CloneOf(o), Linked: linked[o.Name], Notifications: p.GetNotifications(), Parked: p.GetParked(),
			Intents: p.GetIntents(), OldestTs: p.GetOldestTs(), Backfill: fills[o.Name],
		})
	}
	return out, nil
}

// observerStates is what waits for observers, for the metrics: as of now, else as it was
// last found, and how long ago.
func (n *Node) observerStates() (states []*pb.ObserverState, age time.Duration, ok bool) {
	ctx, cancel := context.WithTimeout(n.life, time.Second)
	defer cancel()
	if states, err := n.observersWaiting(ctx); err == nil {
		n.known.observers.Set(states)
	} else {
		n.cfg.Logger.Debug("observers could not be counted for the metrics", "error", err)
	}
	return n.known.observers.Get()
}

// age is how long ago the timestamp was given out; 0 for none. The oracle's clock is this
// node's, or ahead of it.
func (n *Node) age(ts uint64) time.Duration {
	if ts == 0 {
		return 0
	}
	now := max(n.oracles.Seen().Millis(), time.Now().UnixMilli())
	return max(0, time.Duration(now-mvcc.Timestamp(ts).Millis())*time.Millisecond)
}

// linked are the observers that some node which is alive runs.
func (n *Node) linked(ctx context.Context) (map[string]bool, error) {
	if n.peers == nil { // no question to meta: this node's status must not wait for it
		here := map[string]bool{}
		for _, s := range n.notify.Load().status() {
			here[s.Name] = true
		}
		return here, nil
	}
	return n.meta.Linked(ctx, func(node uint64) bool {
		_, alive := n.members.Member(node)
		return alive
	})
}
