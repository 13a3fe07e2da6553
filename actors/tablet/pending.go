package tablet

import (
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// maxPending bounds how many entries are counted on disk while the index does not know
// their number yet.
const maxPending = 2048

// Waiting implements evaluate.View: it counts the entries of one observed column.
func (v *readView) Waiting(o *pb.ObserverInfo) (*pb.ObserverPending, error) {
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
	err := eachNotify(v.Snap, key, span, func(n mvcc.CellNotify) bool {
		seen.countNotify(&n.Notify, 1)
		return seen.pending < maxPending
	})
	if err == nil {
		err = eachIntent(v.Snap, key, span, func(mvcc.CellIntent) bool {
			seen.intents++
			return seen.intents < maxPending
		})
	}
	out.Notifications, out.Parked, out.Intents = uint64(seen.pending), uint64(seen.parked), uint64(seen.intents)
	out.OldestTs = uint64(seen.ages.oldest())
	return out, err
}
