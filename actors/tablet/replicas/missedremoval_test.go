package replicas

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/leaktest"
)

// A replica that has missed its removal is destroyed once meta's record of a later epoch omits it,
// and not before.
func TestMissedRemoval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leaktest.Settle(t)
		r := newReplicaRig(t, of(2, 5, "a", "m", 1), of(3, 5, "m", "z", 1))
		r.owner.mu.Lock()
		r.owner.meta[2] = of(2, 5, "a", "m", 7) // of the same epoch: impossible
		r.owner.meta[3] = of(3, 6, "m", "z", 1)
		r.owner.mu.Unlock()
		<-time.After(2 * silentFor)
		synctest.Wait()
		if r.replica(2) != 1 || r.replica(3) != 1 {
			t.Fatalf("replicas %d and %d", r.replica(2), r.replica(3))
		}
		r.owner.mu.Lock()
		if r.owner.asked == 0 {
			t.Error("meta was not asked")
		}
		r.owner.meta[3] = of(3, 7, "m", "z", 7)
		r.owner.mu.Unlock()
		<-time.After(2 * askAgain)
		synctest.Wait()
		if r.replica(2) != 1 || r.replica(3) != 0 || !slices.Equal(r.owner.gone, []uint64{3}) {
			t.Fatalf("replicas %d and %d, destroyed %v", r.replica(2), r.replica(3), r.owner.gone)
		}
	})
}

// TestOneReadingForAll: however many quiescent replicas have had no message, the tablet map is read
// once for all of them.
func TestOneReadingForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leaktest.Settle(t)
		var held []*pb.TabletDescriptor
		for i := range askAtOnce {
			held = append(held, of(uint64(i)+2, 5, fmt.Sprintf("%04d", i), fmt.Sprintf("%04d", i+1),
				1))
		}
		r := newReplicaRig(t, held...)
		r.owner.mu.Lock()
		for _, d := range held {
			r.owner.meta[d.TabletId] = d
		}
		r.owner.mu.Unlock()
		<-time.After(silentFor + 4*inspectInterval)
		synctest.Wait()
		r.owner.mu.Lock()
		defer r.owner.mu.Unlock()
		if r.owner.asked != 1 {
			t.Errorf("the map was read %d times for %d replicas", r.owner.asked, len(held))
		}
	})
}

// TestWaitingIsNotRemoved: meta's record from before a replica was added does not remove it,
// although a replica that waits for its first snapshot has no epoch.
func TestWaitingIsNotRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leaktest.Settle(t)
		r := newReplicaRig(t)
		added := of(3, 5, "m", "z", 100)
		added.NextReplicaId = 101
		r.Deliver(message(added, 100))
		synctest.Wait()
		r.owner.mu.Lock()
		r.owner.meta[3] = of(3, 4, "m", "z")
		r.owner.mu.Unlock()
		<-time.After(2 * silentFor)
		synctest.Wait()
		if r.replica(3) != 100 {
			t.Error("a replica that was just added is destroyed for good")
		}
		r.owner.mu.Lock()
		asked := r.owner.asked
		gone := of(3, 6, "m", "z")
		gone.NextReplicaId = 101
		r.owner.meta[3] = gone
		r.owner.mu.Unlock()
		<-time.After(2 * askAgain)
		synctest.Wait()
		if r.replica(3) != 0 || asked == 0 {
			t.Errorf("replica %d is still here after its removal; meta was queried %d times before",
				r.replica(3), asked)
		}
	})
}
