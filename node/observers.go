package node

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/percolator-go/percolator/actors/backfill"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
)

// startBackfills starts the job that fills for observers and removes retired ones. Before observers are registered: one
// that was retired, and is linked again, waits for its removal.
func (n *Node) startBackfills() error {
	j, err := backfill.Spawn(n.system, backfill.Config{Meta: n.meta, Client: n.client, Logger: n.cfg.Logger})
	if err != nil {
		return fmt.Errorf("node: back-fills: %w", err)
	}
	n.backfills = j
	n.jobs = append(n.jobs, j)
	return nil
}

// honour makes this node's observers do what the newest catalogue says of them. Whoever learns of a newer version calls
// it; calls are one after another, so that an older version never comes last.
func (n *Node) honour(ctx context.Context) error {
	n.honouring.Lock()
	defer n.honouring.Unlock()
	c, err := n.meta.Catalogue(ctx)
	if err != nil {
		return err
	}
	if n.notify == nil {
		return nil
	}
	return n.notify.dispatcher.Control(ctx, c.GetObservers())
}

// ControlObserver implements txn.Admin: when it returns, no tablet and no dispatcher of this node does otherwise.
func (a *admin) ControlObserver(ctx context.Context, req *pb.ControlObserverRequest) (*pb.ObserverInfo, error) {
	info, err := a.n.meta.ControlObserver(ctx, req)
	if err != nil {
		return nil, err
	}
	if err := a.n.honour(ctx); err != nil {
		return nil, err
	}
	if info.Retired {
		a.n.backfills.Wake()
	}
	return info, nil
}

// Backfill implements txn.Admin.
func (a *admin) Backfill(ctx context.Context, req *pb.BackfillRequest) (*pb.Backfill, error) {
	switch req.GetAction() {
	case pb.BackfillRequest_ACTION_START:
		// Fresh: above every change that the back-fill is to tell of, and every acknowledgment so far.
		ts, err := a.n.client.Timestamp(ctx)
		if err != nil {
			return nil, err
		}
		b, err := a.n.meta.StartBackfill(ctx, req.GetName(), uint64(ts))
		a.n.backfills.Wake()
		return b, err
	case pb.BackfillRequest_ACTION_CANCEL:
		return a.n.meta.CancelBackfill(ctx, req.GetName())
	default:
		return a.n.meta.Backfill(ctx, req.GetName())
	}
}

// Observers implements txn.Admin.
func (a *admin) Observers(ctx context.Context) ([]*pb.ObserverState, error) {
	c, err := a.n.meta.Catalogue(ctx)
	if err != nil {
		return nil, err
	}
	pending, err := a.n.client.PendingObservers(ctx)
	if err != nil {
		return nil, err
	}
	fills, err := a.n.meta.Backfills(ctx, c.GetObservers())
	if err != nil {
		return nil, err
	}
	here := map[string]*pb.ObserverStatus{}
	for _, s := range a.n.notify.status() {
		here[s.Name] = s
	}
	out := make([]*pb.ObserverState, 0, len(c.GetObservers()))
	for _, o := range c.GetObservers() {
		p := pending[o.Name]
		out = append(out, &pb.ObserverState{
			Info: proto.CloneOf(o), Linked: here[o.Name] != nil, Notifications: p.GetNotifications(), Parked: p.GetParked(),
			Intents: p.GetIntents(), OldestTs: p.GetOldestTs(), Status: here[o.Name], Backfill: fills[o.Name],
		})
	}
	return out, nil
}

// observerStates is Observers for the metrics; none if it takes too long.
func (n *Node) observerStates() []*pb.ObserverState {
	ctx, cancel := context.WithTimeout(n.life, time.Second)
	defer cancel()
	states, err := (&admin{n: n}).Observers(ctx)
	if err != nil {
		n.cfg.Logger.Debug("observers could not be counted for the metrics", "error", err)
	}
	return states
}

// age is how long ago the timestamp was given out; 0 for none. The oracle's clock is this node's, or ahead of it.
func (n *Node) age(ts uint64) time.Duration {
	if ts == 0 {
		return 0
	}
	last, _, _ := n.oracle.Stats()
	now := max(last.Millis(), time.Now().UnixMilli())
	return max(0, time.Duration(now-mvcc.Timestamp(ts).Millis())*time.Millisecond)
}
