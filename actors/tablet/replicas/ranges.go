package replicas

import (
	"errors"
	"fmt"
	"sync"

	"github.com/percolator-go/percolator/actors/tablet/snapshot"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/store"
)

// ranges prevents replicas from holding rows in common. It owns the ranges of
// replicas that are being created or filled; those of the others are in the store, which is
// read while a range is reserved. Workers of the queue call it concurrently.
type ranges struct {
	store *store.Store

	// Also held while the store is read: of two concurrent reservations, one must see the other, in
	// the store or in reserved.
	mu       sync.Mutex
	reserved map[uint64]*pb.TabletDescriptor
}

var (
	errOverlap = errors.New("replicas: the replica's range overlaps that of another")
	errUnsplit = errors.New("replicas: a split has just created the tablet")
)

// reserve prevents other tablets from holding rows of d until release. It fails if one already
// does, or if the tablet has a reservation; with fresh, also if the store has anything of the
// tablet itself. Replicas that the tablet's own replica needs, to take their rows, are ignored.
func (r *ranges) reserve(id uint64, d *pb.TabletDescriptor, fresh bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	stored, err := snapshot.StoredReplicas(r.store)
	if err != nil {
		return err
	}
	for _, s := range stored {
		switch {
		case s.Tablet == id && fresh:
			return errUnsplit
		case takenBy(&s, stored, id, d):
		// Markers are listed too, with the range that is being filled or cleared.
		case s.Tablet != id && wire.Overlap(s.Descriptor, d):
			return fmt.Errorf("%w: tablet %d", errOverlap, s.Tablet)
		}
	}
	for other, taken := range r.reserved {
		if other != id && wire.Overlap(taken, d) {
			return fmt.Errorf("%w: tablet %d, which is being created or filled", errOverlap, other)
		}
	}
	if _, taken := r.reserved[id]; taken {
		return errReserved
	}
	r.reserved[id] = d
	return nil
}

// release removes the tablet's reservation, if any.
func (r *ranges) release(id uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.reserved, id)
}
