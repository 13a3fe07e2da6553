package txn_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/txn/txntest"
)

// Tests of transactions whose last tablet commits in one phase (docs/adr/0046). Their faults are
// tested with the other ways of committing (ways).

// TestLastTabletAfterTheOthers: the tablet with the most writes gets no lock and no intent. It
// commits in one phase after the others are locked.
func TestLastTabletAfterTheOthers(t *testing.T) {
	w := newWorld(t)
	w.Observe(w.table, "weak", mvcc.ObservedWeak)
	c, p := w.client(txn.Config{})
	var sent atomic.Int32
	p.Inject(func(req *pb.TabletRequest) txntest.Fault {
		if pre := req.GetPrewrite(); pre != nil {
			for _, cell := range pre.Intents {
				if string(cell.Row) == "h" {
					t.Error("the last tablet has an intent")
				}
			}
			for _, write := range pre.Writes {
				if row := string(write.Cell.Row); row == "h" || row == "i" {
					t.Errorf("%s is locked", row)
				}
			}
			if string(pre.Primary.Row) != "h" {
				t.Errorf("the primary is %s", pre.Primary.Row)
			}
		}
		if one := req.GetOnePhase(); one != nil {
			sent.Add(1)
			if n := w.Locks(w.table); n != 2 || len(one.Writes) != 2 || len(one.Notifies) != 1 {
				t.Errorf("LAST-FIRST: %d writes and %d notifications committed beside %d of 2 locks",
					len(one.Writes), len(one.Notifies), n)
			}
		}
		return txntest.Fault{}
	})
	tx, rows := w.begin(c), []string{"a", "h", "i", "z"}
	for _, row := range rows {
		tx.Set(key(row), []byte("v"))
	}
	tx.Notify(weak("h"))
	tx.Notify(weak("z"))
	ts, err := tx.Commit(w.ctx)
	if err != nil || sent.Load() != 1 {
		t.Fatalf("%d one-phase commits, %v", sent.Load(), err)
	}
	c.Flush()
	if found := w.notifications(); found["h"] != ts || found["z"] != ts || len(found) != 2 {
		t.Errorf("notified: %v, want h and z at %d", found, ts)
	}
	for _, row := range rows {
		if got := w.get(c, row); got != "v" {
			t.Errorf("%s is %q, want v", row, got)
		}
	}
	if s := c.Stats(); w.Locks(w.table) != 0 || s.TwoPhase != 1 || s.OnePhase != 0 {
		t.Errorf("%d locks left, %+v", w.Locks(w.table), s)
	}
}

// TestLastTabletIsFenced: a transaction that encounters an expired lock before the last tablet has
// committed prevents that commit.
func TestLastTabletIsFenced(t *testing.T) {
	w := newWorld(t)
	c, p := w.client(txn.Config{})
	reader, _ := w.client(txn.Config{})
	w.set(reader, "old", threeRows...)
	reader.Flush()
	p.Inject(func(req *pb.TabletRequest) txntest.Fault {
		if !decides(req) {
			return txntest.Fault{}
		}
		return txntest.Fault{Before: func(context.Context) {
			w.Advance(time.Minute)
			if got := w.get(reader, "z"); got != "old" {
				t.Errorf("z: %q", got)
			}
		}}
	})
	tx := w.begin(c)
	for _, row := range threeRows {
		tx.Set(key(row), []byte("v"))
	}
	if _, err := tx.Commit(w.ctx); !errors.Is(err, txn.ErrConflict) {
		t.Errorf("a commit that was rolled back in between: %v", err)
	}
	c.Flush()
	p.Inject(nil)
	if w.allOrNothing("fenced", "v", threeRows) {
		t.Error("written nevertheless")
	}
}

// TestLastTabletRefuses: a conflict in the last tablet leaves no locks in the others.
func TestLastTabletRefuses(t *testing.T) {
	w := newWorld(t)
	c, _ := w.client(txn.Config{})
	tx := w.begin(c)
	for _, row := range threeRows {
		tx.Set(key(row), []byte("v"))
	}
	w.set(c, "other", "a")
	if _, err := tx.Commit(w.ctx); !errors.Is(err, txn.ErrConflict) {
		t.Errorf("the commit ended with %v, want ErrConflict", err)
	}
	w.nothingLeft(c, "refused")
}

// nothingLeft requires that a transaction that wrote "v" into threeRows has left neither a
// lock nor a value.
func (w *world) nothingLeft(c *txn.Client, when string) {
	w.t.Helper()
	c.Flush()
	if n := w.Locks(w.table); n != 0 {
		w.t.Errorf("%s: %d locks left", when, n)
	}
	if w.allOrNothing(when, "v", threeRows) {
		w.t.Errorf("%s: written nevertheless", when)
	}
}

// TestLastTabletSplit: a last tablet that was split before its commit was sent is prewritten like
// the others. If it was sent, the transaction is run again.
func TestLastTabletSplit(t *testing.T) {
	for _, known := range []bool{true, false} {
		w := newWorld(t)
		c, p := w.client(txn.Config{})
		w.set(c, "0", "a", "b")
		var split atomic.Bool
		p.Inject(func(req *pb.TabletRequest) txntest.Fault {
			if req.GetOnePhase() != nil && known {
				t.Error("sent to one tablet of two")
			}
			if req.GetPrewrite() == nil || split.Swap(true) {
				return txntest.Fault{}
			}
			return txntest.Fault{Before: func(context.Context) {
				if w.Split(w.table, "b"); known {
					w.get(c, "b")
				}
			}}
		})
		rows, want := []string{"a", "b", "z"}, 2
		if known {
			want = 1
		}
		if runs, err := w.attempt(c, "v", rows); runs != want || err != nil {
			t.Errorf("known %v: %d runs, %v", known, runs, err)
		}
		c.Flush()
		p.Inject(nil)
		if !w.allOrNothing("split", "v", rows) {
			t.Errorf("known %v: not written", known)
		}
	}
}

// TestSlowCommitLocksAll: a commit slow enough for heartbeats has a primary lock, which they renew.
func TestSlowCommitLocksAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c, p := w.client(txn.Config{LockTTL: 3 * time.Second})
		var locked atomic.Bool
		p.Inject(func(req *pb.TabletRequest) txntest.Fault {
			switch pre := req.GetPrewrite(); {
			case req.GetOnePhase() != nil:
				t.Error("committed in one phase")
			case pre == nil:
			case string(pre.Writes[0].Cell.Row) == "a":
				locked.Store(true)
			case string(pre.Writes[0].Cell.Row) == "z":
				return txntest.Fault{Before: func(context.Context) { <-time.After(2 * time.Second) }}
			}
			return txntest.Fault{}
		})
		if runs, err := w.attempt(c, "v", threeRows); runs != 1 || err != nil || !locked.Load() {
			t.Errorf("%d runs, %v; primary locked: %v", runs, err, locked.Load())
		}
		c.Flush()
		p.Inject(nil)
		if !w.allOrNothing("slow", "v", threeRows) {
			t.Error("not written")
		}
	})
}

// TestCommitIsDivided: a commit whose effects exceed a tablet's maximum, because its cells have
// many observers, is sent in parts, the primary first; so are weak notifications.
func TestCommitIsDivided(t *testing.T) {
	w := newWorld(t)
	c, p := w.client(txn.Config{TwoPhaseOnly: true})
	const most = 2
	p.Inject(func(req *pb.TabletRequest) txntest.Fault {
		commit, notify := req.GetCommit(), req.GetNotify()
		if len(commit.GetCells())+len(commit.GetIntents()) > most || len(notify.GetCells()) > most {
			return txntest.Fault{Answer: &pb.Error{Code: pb.Error_CODE_TOO_LARGE}}
		}
		return txntest.Fault{}
	})
	tx, rows := w.begin(c), []string{"a", "b", "c", "d", "e", "f", "g"}
	w.Observe(w.table, "weak", mvcc.ObservedWeak)
	for _, row := range rows {
		tx.Set(key(row), []byte("v"))
		tx.Notify(weak(row))
	}
	ts, err := tx.Commit(w.ctx)
	if err != nil {
		t.Fatal(err)
	}
	c.Flush()
	found := w.notifications()
	for _, row := range rows {
		if w.get(c, row) != "v" || found[row] != ts {
			t.Errorf("%s: %q, notified at %d, committed at %d", row, w.get(c, row), found[row], ts)
		}
	}
	if n := w.Locks(w.table); n != 0 {
		t.Errorf("COMMIT-TOO-LARGE: %d locks left", n)
	}
}
