package memory

import (
	"testing"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// TestLockViews: reads share one view of the locks until a lock is added, changed or removed;
// holders of the old view still see it unchanged.
func TestLockViews(t *testing.T) {
	locks, cell := newLockTable(), mvcc.Cell{Table: 16, Row: "a", Column: "x"}
	type times struct{ start, commit mvcc.Timestamp }
	in := func(v *lockTable) times { // the cell's lock; zero: none
		l, _ := v.get(cell)
		return times{l.StartTS, l.CommitTS}
	}
	for _, step := range []struct {
		what   string
		change func()
		want   times
	}{
		{"a lock", func() { locks.put(cell, &mvcc.Lock{StartTS: 5}, 0) }, times{5, 0}},
		{"a reservation over it",
			func() { locks.put(cell, &mvcc.Lock{StartTS: 7, Token: 1}, 0) }, times{7, 0}},
		{"its commit timestamp",
			func() { locks.put(cell, &mvcc.Lock{StartTS: 7, Token: 1, CommitTS: 9}, 0) }, times{7, 9}},
		{"its end", func() { locks.remove(cell, 1) }, times{}},
		{"a lock again", func() { locks.put(cell, &mvcc.Lock{StartTS: 11}, 0) }, times{11, 0}},
		{"a split", func() { locks.dropFrom(cell) }, times{}},
	} {
		before := locks.view()
		was := in(before)
		if locks.view() != before {
			t.Errorf("before %s: the same locks were copied again", step.what)
		}
		step.change()
		if now := in(locks.view()); now != step.want {
			t.Errorf("STALE-LOCKS: after %s a new view has %+v", step.what, now)
		}
		if is := in(before); is != was {
			t.Errorf("%s changed a view that was there from %+v to %+v", step.what, was, is)
		}
	}
}

// TestOnlyTheLockThatIsMeantGoes: removing a lock or reservation keeps one that has replaced it,
// and a lock put twice is one lock. Catches BROKEN=reservation_taken.
func TestOnlyTheLockThatIsMeantGoes(t *testing.T) {
	locks, cell := newLockTable(), mvcc.Cell{Table: 16, Row: "a", Column: "x"}
	locks.put(cell, &mvcc.Lock{StartTS: 5}, 0)
	locks.put(cell, &mvcc.Lock{StartTS: 5, Expiry: 9}, 0) // a heartbeat
	if locks.applied != 1 {
		t.Errorf("%d locks are counted, want 1", locks.applied)
	}
	locks.put(cell, &mvcc.Lock{StartTS: 7, Token: 2}, 0)
	for _, token := range []uint64{0, 1} {
		locks.remove(cell, token)
		if _, there := locks.get(cell); !there {
			t.Fatalf("LOST-RESERVATION: the end of the lock with token %d took the one with 2", token)
		}
	}
	locks.remove(cell, 2)
	if _, there := locks.get(cell); there || locks.applied != 0 {
		t.Errorf("there is a lock: %v; %d are counted", there, locks.applied)
	}
}
