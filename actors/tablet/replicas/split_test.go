package replicas

import (
	"errors"
	"testing"

	"github.com/percolator-go/percolator/actors/tablet"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/store"
)

// split commits the effects of a split of tablet 2: its new state, and that of tablet 3.
func (r *replicaRig) split(index uint64) (child *pb.TabletDescriptor) {
	r.t.Helper()
	child = of(3, 2, "m", "z", 1)
	b := &store.Batch{}
	tablet.Bootstrap(b, of(2, 2, "a", "m", 1), 1)
	b.PutApplied(2, store.Applied{Index: index, Term: 6, Epoch: 2})
	b.InitialLog(2, index, 6) // as if all entries up to it had been applied and truncated
	tablet.Bootstrap(b, child, 1)
	if err := r.store.StateWriter().Commit([]*store.Batch{b}); err != nil {
		r.t.Error(err)
	}
	return child
}

func (r *replicaRig) runs(id uint64) bool {
	r.owner.mu.Lock()
	defer r.owner.mu.Unlock()
	return r.owner.runs[id]
}

// A replica's actor is stopped for a snapshot after the split that it has applied is in the store
// and before it has reported it. The new tablet still runs, without a message from another node.
func TestSplitWithoutTheWord(t *testing.T) {
	r := newReplicaRig(t, of(2, 1, "a", "z", 1))
	pieces := snapshotOf(t, of(2, 2, "a", "m", 1), 1, 40, nil, 3)
	r.owner.mu.Lock()
	r.owner.hold = func() {
		r.owner.mu.Lock()
		r.owner.hold = nil
		r.owner.mu.Unlock()
		r.split(41) // the snapshot is obsolete
	}
	r.owner.mu.Unlock()
	if a := r.send(pieces[0]); !a.Installed {
		t.Fatalf("the snapshot: %v", a)
	}
	r.settle()
	if !r.runs(2) || !r.runs(3) {
		t.Errorf("tablet 2 runs: %v, tablet 3: %v", r.runs(2), r.runs(3))
	}
}

// A message opens a tablet that a split has created and not reported.
func TestMessageForAnUnopenedSplit(t *testing.T) {
	r := newReplicaRig(t, of(2, 1, "a", "z", 1))
	child := r.split(41)
	r.Deliver(message(child, 1))
	r.settle()
	if n := r.received(3); !r.runs(3) || n != 1 {
		t.Errorf("tablet 3 runs: %v, with %d messages", r.runs(3), n)
	}
}

// The new tablet's snapshot arrives before the split is applied here: it is refused and leaves
// nothing; after the split it is accepted.
func TestSnapshotBeforeTheSplit(t *testing.T) {
	r := newReplicaRig(t, of(2, 1, "a", "z", 1))
	pieces := snapshotOf(t, of(3, 2, "m", "z", 1), 1, 40, rowsBetween(0, 4), 9)
	r.Deliver(message(of(3, 2, "m", "z", 1), 1))
	r.settle()
	if a := r.send(pieces[0]); a.Refused == "" {
		t.Fatalf("the snapshot of a tablet whose rows are still another's: %v", a)
	}
	r.split(41)
	r.SplitApplied(3)
	r.settle()
	if a := r.send(pieces[0]); !a.Installed {
		t.Fatalf("after the split: %v", a)
	}
	r.settle()
	if n := r.rows(); n != 4 || !r.runs(3) {
		t.Errorf("%d rows; tablet 3 runs: %v", n, r.runs(3))
	}
}

// A snapshot moves a replica past a split that it has never applied: the other side's rows are
// removed, and that tablet is then created here by its first message and filled by its own
// snapshot.
func TestSnapshotPastTheSplit(t *testing.T) {
	r := newReplicaRig(t, of(2, 1, "a", "z", 1))
	b := &store.Batch{}
	for _, e := range rowsBetween(100, 5) { // rows of the later tablet 3
		b.Put(e.Key, e.Value)
	}
	if err := r.store.StateWriter().Commit([]*store.Batch{b}); err != nil {
		t.Fatal(err)
	}
	child := of(3, 2, "m", "z", 1)
	for _, c := range snapshotOf(t, of(2, 2, "a", "m", 1), 1, 40, nil, 3) {
		r.Deliver(message(child, 1)) // in between it is refused
		if a := r.send(c); !a.Installed {
			t.Fatalf("the snapshot: %v", a)
		}
	}
	r.settle()
	if n := r.rows(); n != 0 {
		t.Errorf("%d rows of the other side are left", n)
	}
	r.mu.Lock()
	clear(r.refused)
	r.mu.Unlock()
	r.Deliver(message(child, 1))
	r.settle()
	if a := r.send(snapshotOf(t, child, 1, 30, rowsBetween(0, 4), 9)[0]); !a.Installed {
		t.Fatalf("the other side's snapshot: %v", a)
	}
	r.settle()
	if n := r.rows(); n != 4 || !r.runs(2) || !r.runs(3) {
		t.Errorf("%d rows; tablet 2 runs: %v, tablet 3: %v", n, r.runs(2), r.runs(3))
	}
}

// The new tablet's replica is removed from here after the application of the split has found no
// tombstone and before it is written: what it has created does not start, now or at the next start,
// and its rows are removed.
func TestSplitBringsNobodyBack(t *testing.T) {
	for _, restart := range []bool{false, true} {
		r := newReplicaRig(t, of(2, 1, "a", "z", 1))
		r.removed(3, 1)
		r.settle()
		b := &store.Batch{}
		for _, e := range rowsBetween(0, 5) {
			b.Put(e.Key, e.Value)
		}
		if err := r.store.StateWriter().Commit([]*store.Batch{b}); err != nil {
			t.Fatal(err)
		}
		r.split(41)
		if restart {
			next := New(r.owner, r.store, r.logs, thisNode, r.logger)
			err := errors.Join(r.owner.StopReplica(2), next.Start(func([]uint64) {}))
			next.Close()
			if err != nil {
				t.Fatal(err)
			}
		} else {
			r.SplitApplied(3)
			r.settle()
		}
		if n := r.rows(); r.replica(3) != 0 || r.runs(3) || n != 0 {
			t.Errorf("after a restart %v: replica %d is back, runs %v, %d rows", restart,
				r.replica(3), r.runs(3), n)
		}
	}
}

// A crash between the application of a split and the opening of the new tablet: the next
// start opens it.
func TestCrashBeforeTheSplitIsOpened(t *testing.T) {
	r := newReplicaRig(t, of(2, 1, "a", "z", 1))
	r.split(41)
	next := New(r.owner, r.store, r.logs, thisNode, r.logger)
	err := errors.Join(r.owner.StopReplica(2), next.Start(func([]uint64) {}))
	next.Close()
	if err != nil || !r.runs(2) || !r.runs(3) {
		t.Errorf("tablet 2 runs: %v, tablet 3: %v, %v", r.runs(2), r.runs(3), err)
	}
}
