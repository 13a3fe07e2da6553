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

// This file collects the State that a plan is made from: the durable tables from meta, and
// what gossip and the tablets' leaders say. It runs on the actor's goroutine at the start
// of a turn and leaves nothing in flight.

// gather returns the present state. It reads the durable tables first, so that leaders' reports are
// newer than the map. It also updates meta: descriptors that the map lacks, and the times since
// which nodes have been absent.
func (w *work) gather(ctx context.Context, now time.Time) (*State, error) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
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
	removeDamaged(damaged, heard)
	ts := mvcc.Timestamp(0)
	// A timestamp can cost a write to meta, so ask only when some node's absence matters.
	if anyAway(records, heard) {
		if ts, err = w.cfg.Cluster.Timestamp(ctx); err != nil {
			return nil, err
		}
	}
	statuses, err := w.cfg.Cluster.Statuses(ctx)
	if err != nil {
		return nil, err
	}
	s := &State{Replicas: w.cfg.Replicas, Orders: orders}
	var news []*pb.TabletDescriptor
	s.Tablets, news = w.tablets(now, tablets, statuses)
	for _, d := range news {
		if err := w.cfg.Meta.Report(ctx, d); err != nil {
			return nil, err
		}
	}
	addHeardByLeaders(s.Tablets, heard)
	removeDamaged(damaged, heard) // again: leaders may still hear from them
	ahead, full := w.cfg.Cluster.AheadClocks(), w.cfg.Cluster.FullDisks()
	for _, r := range records {
		if r, err = w.recordPresence(ctx, r, heard[r.NodeId], ts); err != nil {
			return nil, err
		}
		s.Nodes = append(s.Nodes, Node{
			ID: r.NodeId, Zone: r.Labels["zone"], State: r.State, Alive: heard[r.NodeId],
			Ahead: slices.Contains(ahead, r.NodeId), Full: slices.Contains(full, r.NodeId),
			Gone: awayFor(r, ts, w.cfg.GoneAfter),
			Old:  w.cfg.ForgetAfter > 0 && awayFor(r, ts, w.cfg.ForgetAfter),
		})
	}
	return s, nil
}

// anyAway reports whether gossip misses a node, or one is recorded as absent.
func anyAway(records []*wire.NodeRecord, alive map[uint64]bool) bool {
	return slices.ContainsFunc(records, func(r *wire.NodeRecord) bool {
		return r.GoneSince != 0 || !alive[r.NodeId]
	})
}

// awayFor reports whether the node has been recorded as absent for at least d.
func awayFor(r *wire.NodeRecord, now mvcc.Timestamp, d time.Duration) bool {
	return r.GoneSince != 0 && mvcc.Timestamp(r.GoneSince).Millis()+d.Milliseconds() <= now.Millis()
}

// recordPresence records in meta the oracle time since which a node has been silent, or that it has
// returned. It returns the new record.
func (w *work) recordPresence(ctx context.Context, r *wire.NodeRecord, heard bool,
	now mvcc.Timestamp) (*wire.NodeRecord, error) {
	since := uint64(0)
	switch {
	case heard && r.GoneSince == 0 && r.State != pb.NodeState_NODE_STATE_GONE, !heard &&
		r.GoneSince != 0:
		return r, nil
	case !heard:
		since = uint64(now)
	}
	r, err := w.cfg.Meta.SetNodeGone(ctx, r.NodeId, r.Incarnation, since)
	if err != nil {
		return nil, fmt.Errorf("placement: record a node's absence or return: %w", err)
	}
	return r, nil
}

// addHeardByLeaders adds the leaders that have answered, and the nodes from which they have
// recently received messages. A quiescent leader receives none: it adds nothing.
func addHeardByLeaders(tablets []Tablet, heard map[uint64]bool) {
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

// removeDamaged removes nodes with damaged stores: they serve nothing any more, although
// some of their replicas may still answer others.
func removeDamaged(damaged []uint64, heard map[uint64]bool) {
	for _, id := range damaged {
		delete(heard, id)
	}
}

// tablets merges the tablet map with the leaders' reports, which are newer, and returns the tablets
// in range order, meta first. Of two replicas that claim to lead a tablet it believes the one with
// the higher term. news contains the descriptors that the map lacks.
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
			// a split, or a change, that the map does not have yet
			byID[id], news = s.Tablet, append(news, s.Tablet)
		}
	}
	out = make([]Tablet, 0, len(byID))
	for id, d := range byID {
		t := Tablet{D: d, Status: leading[id], Meta: wire.StartOf(d) == wire.Position{}}
		if t.Status != nil && t.Status.Tablet.Epoch < d.Epoch {
			t.Status = nil // not the leader any more, or it has not applied what the map has
		}
		t.Load, t.Resting, t.LeaderResting = w.cooldown.observe(now, id, t.Status)
		out = append(out, t)
	}
	slices.SortFunc(out, func(a, b Tablet) int { return wire.StartOf(a.D).Compare(wire.StartOf(b.D)) })
	w.cooldown.forget(byID)
	return out, news
}
