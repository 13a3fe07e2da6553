package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/percolator-go/percolator/actors/tablet"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// Why a replica is not made, or a snapshot not taken, here and now.
var (
	errUnlisted  = errors.New("node: the sender's descriptor does not list the replica")
	errTombstone = errors.New("node: the replica was removed from here")
	errOverlap   = errors.New("node: its range overlaps another replica's")
	errHigher    = errors.New("node: a replica with a higher id is here")
	errElsewhere = errors.New("node: no such replica is here")
	errBusy      = errors.New("node: too much else is going on; try again")
	errArriving  = errors.New("node: another snapshot for this replica is arriving, of the last leader perhaps")
	errUnsplit   = errors.New("node: a split has just made it")
)

// create makes a replica that waits for a snapshot, after a lower one has been destroyed,
// and opens it. The tablet is busy.
func (r *replicas) create(id, replica uint64, d *pb.TabletDescriptor) error {
	if d.GetTabletId() != id || replicaNode(d, replica) != r.node {
		return errUnlisted
	}
	r.mu.Lock()
	have := r.held[id].id
	r.mu.Unlock()
	switch {
	case have > replica:
		return errHigher
	case have == replica:
		return nil
	case have != 0: // removed, or this node could not have another
		if err := r.destroy(id, replica-1); err != nil {
			return err
		}
	}
	if err := r.mayCreate(id, replica, d); err != nil {
		return err
	}
	defer r.unreserve(id)
	if err := tablet.Create(r.logs, id, replica); err != nil {
		return err
	}
	return r.open(id, replica)
}

// mayCreate reserves the tablet's range if the replica may be made here.
func (r *replicas) mayCreate(id, replica uint64, d *pb.TabletDescriptor) error {
	snap := r.store.Snap()
	next, err := tablet.NextReplica(snap, id)
	snap.Close()
	switch {
	case err != nil:
		return err
	case next > replica:
		return errTombstone
	}
	return r.reserve(id, d, true)
}

// reserve keeps others from holding rows of d until unreserve, if nobody does yet. fresh
// says that there must be nothing of the tablet itself either.
func (r *replicas) reserve(id uint64, d *pb.TabletDescriptor, fresh bool) error {
	r.placing.Lock()
	defer r.placing.Unlock()
	stored, err := tablet.StoredReplicas(r.store)
	if err != nil {
		return err
	}
	for _, s := range stored {
		switch {
		case s.Tablet == id && fresh:
			return errUnsplit
		case s.Tablet != id && tablet.Overlap(s.Descriptor, d):
			return fmt.Errorf("%w: tablet %d", errOverlap, s.Tablet)
		}
	}
	for other, range_ := range r.reserved {
		if other != id && tablet.Overlap(range_, d) {
			return fmt.Errorf("%w: tablet %d, which is being made or filled", errOverlap, other)
		}
	}
	if _, taken := r.reserved[id]; taken {
		return errBusy
	}
	r.reserved[id] = d
	return nil
}

func (r *replicas) unreserve(id uint64) {
	r.placing.Lock()
	defer r.placing.Unlock()
	delete(r.reserved, id)
}

// replicaNode is where the descriptor has the replica; 0: it has none of that id.
func replicaNode(d *pb.TabletDescriptor, replica uint64) uint64 {
	for _, p := range d.GetReplicas() {
		if p.ReplicaId == replica {
			return p.NodeId
		}
	}
	return 0
}

// A replica that was away while it was removed hears from nobody, for it is nobody's any
// more. After a while meta is asked.
const (
	lookInterval = 10 * time.Second
	quietFor     = time.Minute
	askAgain     = 5 * time.Minute
	askAtOnce    = 256
	askTimeout   = 5 * time.Second
)

// lookForRemoved is the worker that finds them.
func (r *replicas) lookForRemoved() {
	tick := time.NewTicker(lookInterval)
	defer tick.Stop()
	for {
		select {
		case <-r.life.Done():
			return
		case <-tick.C:
			r.askAbout(r.quiet(time.Now()))
			r.dropIdle(time.Now())
			r.openClosed()
		}
	}
}

// quiet are a few replicas that have not been heard of for long, by tablet.
func (r *replicas) quiet(now time.Time) map[uint64]uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[uint64]uint64{}
	for id, h := range r.held {
		if h.id == 0 || h.busy || now.Sub(h.heard) < quietFor || now.Sub(h.asked) < askAgain {
			continue
		}
		h.asked = now
		if out[id] = h.id; len(out) == askAtOnce {
			break
		}
	}
	return out
}

// askAbout has replicas, by tablet, destroyed if meta's records of later epochs do not
// list them. Meta is read once for all: replicas that rest are quiet too, and there may
// be thousands of them.
func (r *replicas) askAbout(quiet map[uint64]uint64) {
	if len(quiet) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(r.life, askTimeout)
	defer cancel()
	described, err := r.owner.reread(ctx)
	if err != nil {
		return // they are asked about again
	}
	for id, replica := range quiet {
		r.judge(id, replica, described(id))
	}
}

// judge has the replica destroyed if it is not in d, meta's record of its tablet, and was.
func (r *replicas) judge(id, replica uint64, d *pb.TabletDescriptor) {
	s, ok, err := tablet.StoredReplica(r.store, id)
	if !ok || err != nil || s.ReplicaID != replica || d == nil {
		return
	}
	// A record from before the replica was added does not list it either: then its id has
	// not been given away yet.
	if d.TabletId == id && d.Epoch > s.Descriptor.GetEpoch() && replica < d.NextReplicaId && replicaNode(d, replica) == 0 {
		r.logger.Info("a replica missed that it was removed", "tablet", id, "replica", replica)
		r.Removed(id, replica)
	}
}
