package placement

import (
	"context"
	"fmt"
	"slices"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// gather is the state as it is now, what is durable first; it also records in meta which
// nodes have gone and come back.
func (w *work) gather(ctx context.Context, now time.Time) (*State, error) {
	ctx, cancel := context.WithTimeout(ctx, w.cfg.Timeout)
	defer cancel()
	records, err := w.cfg.Meta.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	tablets, err := w.cfg.Meta.Tablets(ctx)
	if err != nil {
		return nil, err
	}
	orders, err := w.cfg.Meta.MoveOrders(ctx)
	if err != nil {
		return nil, err
	}
	heard := map[uint64]bool{}
	for _, id := range w.cfg.Cluster.Alive() {
		heard[id] = true
	}
	damaged := w.cfg.Cluster.DamagedStores()
	lose(damaged, heard)
	ts := mvcc.Timestamp(0)
	if away(records, heard) { // else it would be one write to meta after another, for nothing
		if ts, err = w.cfg.Cluster.Timestamp(ctx); err != nil {
			return nil, err
		}
	}
	statuses, err := w.cfg.Cluster.Statuses(ctx)
	if err != nil {
		return nil, err
	}
	s := &State{Replicas: w.cfg.Replicas, MaxChanging: w.cfg.MaxChanging, MaxIncoming: w.cfg.MaxIncoming, Orders: orders}
	var news []*pb.TabletDescriptor
	s.Tablets, news = w.tablets(now, tablets, statuses)
	for _, d := range news {
		if err := w.cfg.Meta.Report(ctx, d); err != nil {
			return nil, err
		}
	}
	heardOf(s.Tablets, heard)
	lose(damaged, heard)
	ahead, full := w.cfg.Cluster.AheadClocks(), w.cfg.Cluster.FullDisks()
	for _, r := range records {
		if r, err = w.seen(ctx, r, heard[r.NodeId], ts); err != nil {
			return nil, err
		}
		s.Nodes = append(s.Nodes, Node{
			ID: r.NodeId, Zone: r.Labels["zone"], State: r.State, Alive: heard[r.NodeId], Ahead: slices.Contains(ahead, r.NodeId),
			Gone: awayFor(r, ts, w.cfg.GoneAfter), Old: w.cfg.ForgetAfter > 0 && awayFor(r, ts, w.cfg.ForgetAfter),
			Full: slices.Contains(full, r.NodeId),
		})
	}
	return s, nil
}

// away reports whether the time matters for a node: gossip does not know it, or it has
// been recorded as away.
func away(records []*wire.NodeRecord, alive map[uint64]bool) bool {
	return slices.ContainsFunc(records, func(r *wire.NodeRecord) bool { return r.GoneSince != 0 || !alive[r.NodeId] })
}

// awayFor reports whether the node has been recorded as away for so long.
func awayFor(r *wire.NodeRecord, now mvcc.Timestamp, d time.Duration) bool {
	return r.GoneSince != 0 && mvcc.Timestamp(r.GoneSince).Millis()+d.Milliseconds() <= now.Millis()
}

// seen records since when a node has not been heard of, in oracle time (invariant 3).
func (w *work) seen(ctx context.Context, r *wire.NodeRecord, heard bool, now mvcc.Timestamp) (*wire.NodeRecord, error) {
	since := uint64(0)
	switch {
	case heard && r.GoneSince == 0 && r.State != pb.NodeState_NODE_STATE_GONE, !heard && r.GoneSince != 0:
		return r, nil
	case !heard:
		since = uint64(now)
	}
	r, err := w.cfg.Meta.SetNodeGone(ctx, r.NodeId, r.Incarnation, since)
	if err != nil {
		return nil, fmt.Errorf("placement: record that a node has gone or come back: %w", err)
	}
	return r, nil
}

// heardOf adds the nodes that a tablet's leader has heard of lately. One that sleeps does not know.
func heardOf(tablets []Tablet, heard map[uint64]bool) {
	for _, t := range tablets {
		if t.Status == nil || t.Status.Quiescent {
			continue
		}
		heard[t.leader()] = true
		for _, p := range t.Status.Replicas {
			if p.Active {
				heard[p.GetReplica().GetNodeId()] = true
			}
		}
	}
}

// lose takes nodes with damaged stores for unheard of: they serve nothing any more, though some of
// their replicas may still answer others.
func lose(damaged []uint64, heard map[uint64]bool) {
	for _, id := range damaged {
		delete(heard, id)
	}
}

// tablets joins the map with what leaders say, which is newer; meta comes first. Of two
// that take themselves for the leader the one with the later term is believed.
//
// news is what the map does not have.
func (w *work) tablets(
	now time.Time, descriptors []*pb.TabletDescriptor, statuses []*pb.StatusResponse,
) (out []Tablet, news []*pb.TabletDescriptor) {
	leading := map[uint64]*pb.StatusResponse{}
	for _, s := range statuses {
		id := s.GetTablet().GetTabletId()
		if s.GetLeader() && (leading[id] == nil || leading[id].Term < s.Term) {
			leading[id] = s
		}
	}
	byID := map[uint64]*pb.TabletDescriptor{}
	for _, d := range descriptors {
		byID[d.TabletId] = d
	}
	for id, s := range leading {
		if byID[id] == nil || byID[id].Epoch < s.Tablet.Epoch {
			byID[id], news = s.Tablet, append(news, s.Tablet) // a split, or a change, that the map does not have yet
		}
	}
	out = make([]Tablet, 0, len(byID))
	for id, d := range byID {
		t := Tablet{D: d, Status: leading[id], Meta: wire.StartOf(d) == wire.Position{}}
		if t.Status != nil && t.Status.Tablet.Epoch < d.Epoch {
			t.Status = nil // not the leader any more, or it has not applied what the map has
		}
		t.Load, t.Resting, t.LeaderResting = w.memory.look(now, id, t.Status)
		out = append(out, t)
	}
	slices.SortFunc(out, func(a, b Tablet) int {
		if wire.StartOf(a.D).Less(wire.StartOf(b.D)) {
			return -1
		}
		return 1
	})
	w.memory.forget(byID)
	return out, news
}
