package node

import (
	"cmp"
	"context"
	"fmt"

	"github.com/percolator-go/percolator/actors/collector"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/policy"
	"github.com/percolator-go/percolator/internal/wire"
)

// startCollector starts the job that bounds history (invariant 11 of design section 4).
func (l *leaderJobs) startCollector() error {
	n := l.n
	tune, history := n.cfg.Collection, policy.Millis(l.policy.GetHistoryMs())
	if l.policy.GetNoCollection() {
		return nil
	}
	age := cmp.Or(tune.Interval, min(collector.DefaultInterval, history/10)) / 2
	c, err := collector.Spawn(n.system, collector.Config{
		Client: n.client, Record: n.meta, Drops: drops{n}, Overview: lately{n.census, age}, History: history, Interval: tune.Interval,
		ForceAfter: tune.ForceAfter, MaxHold: policy.Millis(l.policy.GetMaxHoldMs()), Logger: n.cfg.Logger,
	})
	if err != nil {
		return fmt.Errorf("node: %w", err)
	}
	l.began(c, func() { l.collector = c })
	return nil
}

// drops looks after the catalogue's dropped tables.
type drops struct{ n *Node }

// Tend implements collector.Drops. No safepoint is being raised while it is called: a
// tablet that has passed a drop has begun to delete, and says so until it is done.
func (d drops) Tend(ctx context.Context, tablets []*pb.StatusResponse) (waiting bool, err error) {
	c, err := d.n.meta.Catalogue(ctx)
	if err != nil || len(c.GetDroppedTables()) == 0 {
		return false, err
	}
	if err := d.n.meta.DateDrops(ctx, d.n.client.Timestamp); err != nil {
		return false, err
	}
	for _, t := range tablets {
		if t.CatalogueVersion < c.Version { // a push that was cut short: the tablet does not know what to delete
			return true, d.n.meta.Sync(ctx)
		}
	}
	err = d.n.meta.ForgetDrops(ctx, func(id mvcc.TableID, droppedAt mvcc.Timestamp) bool {
		gone := false
		for _, t := range tablets {
			if _, holds := wire.Clip(t.Tablet, mvcc.Span{Table: id}); !holds {
				continue
			}
			if gone = t.Garbage == 0 && mvcc.Timestamp(t.Safepoint) > droppedAt; !gone {
				break
			}
		}
		waiting = waiting || !gone
		return gone
	})
	return waiting, err
}

// historyStatus is how far collection has come: the collector's view and the tablets' own figures.
func (n *Node) historyStatus(tablets []*pb.StatusResponse) *pb.HistoryStatus {
	out := &pb.HistoryStatus{BlockedBy: "collection is off"}
	if c := n.changes.jobs.collection(); c != nil {
		out = c
	} else if !n.policy.now().GetNoCollection() {
		out.BlockedBy = "the node that leads meta knows" // and tells: this one does not
	}
	first := true
	for _, t := range tablets {
		if end, bounded := wire.EndOf(t.GetTablet()); bounded && !(wire.Position{Table: mvcc.FirstUserTable}).Less(end) {
			continue // meta has no history
		}
		if first || t.Bound < out.Bound {
			out.Bound = t.Bound
		}
		if first || t.Safepoint < out.Safepoint {
			out.Safepoint = t.Safepoint
		}
		first = false
		out.Collected += t.Collected
	}
	return out
}

// diskStatus says how much room there is.
func (n *Node) diskStatus(out *pb.NodeStatusResponse) {
	if n.cfg.Store.InMemory {
		return
	}
	if free, err := n.store.FreeBytes(); err == nil {
		out.DiskFree = free
	}
	st := n.store.Stats()
	out.DiskUsed = st.DiskBytes
	out.Log = &pb.LogStatus{
		Dir: n.cfg.LogDir, DiskFree: st.LogFreeBytes,
		Segments: uint64(st.Log.Segments), Bytes: uint64(st.Log.Bytes), LiveBytes: uint64(st.Log.LiveBytes),
		Written: st.Log.Written, Syncs: st.Log.Syncs,
		Unchecked: st.Unchecked, CheckpointAgeMs: st.CheckpointAge.Milliseconds(),
	}
}
