package tablet

import (
	"slices"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/store"
)

// answerPending counts what waits for each observer of the catalogue, and sums up what
// WaitIdle waits for: that of the observers that anybody runs.
func answerPending(v *readView, req *pb.PendingRequest) (*pb.TabletResponse, error) {
	out := &pb.PendingResponse{NotifyWritten: v.notifies}
	for _, o := range v.catalogue.message.GetObservers() {
		p, err := v.pending(o)
		if err != nil {
			return nil, err
		}
		out.Observers = append(out.Observers, p)
		out.Parked += p.Parked
		switch {
		case o.Retired || o.Paused || slices.Contains(req.GetUnlinked(), o.Name):
			out.Unlinked += p.Notifications + p.Intents
		default:
			out.Notifications += p.Notifications
			out.Intents += p.Intents
		}
	}
	v.locks.tree.Scan(func(e lockEntry) bool {
		if v.catalogue.observed(e.cell.Table, e.cell.Column) != mvcc.NotObserved {
			out.Locks++
		}
		return true
	})
	return &pb.TabletResponse{Result: &pb.TabletResponse_Pending{Pending: out}}, nil
}

// maxPending bounds how many entries are counted on disk while the index does not know
// their number yet.
const maxPending = 2048

// pending counts the entries of one observed column.
func (v *readView) pending(o *pb.ObserverInfo) (*pb.ObserverPending, error) {
	key := observerKey(o)
	n := v.notify[key]
	if !n.uncounted {
		return &pb.ObserverPending{
			Name: o.Name, Notifications: uint64(n.pending), Parked: uint64(n.parked), Intents: uint64(n.waiting), OldestTs: uint64(n.oldest),
		}, nil
	}
	out := &pb.ObserverPending{Name: o.Name}
	span, ok := wire.Clip(v.descriptor, mvcc.Span{Table: key.table})
	if !ok {
		return out, nil
	}
	var seen tally
	err := eachNotify(v.Snap, key, span, func(n store.CellNotify) bool {
		seen.countNotify(&n.Notify, 1)
		return seen.pending < maxPending
	})
	if err == nil {
		err = eachIntent(v.Snap, key, span, func(store.CellIntent) bool {
			seen.intents++
			return seen.intents < maxPending
		})
	}
	out.Notifications, out.Parked, out.Intents = uint64(seen.pending), uint64(seen.parked), uint64(seen.intents)
	out.OldestTs = uint64(seen.ages.oldest())
	return out, err
}
