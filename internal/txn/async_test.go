package txn_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/txn/txntest"
	"github.com/percolator-go/percolator/internal/wire"
)

// newAsyncWorld returns a world whose clients commit asynchronously.
func newAsyncWorld(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.async = true
	return w
}

// prewrites reports whether the operation is a prewrite of the row.
func prewrites(req *pb.TabletRequest, row string) bool {
	p := req.GetPrewrite()
	return p != nil && string(p.Writes[0].Cell.Row) == row
}

// TestAsyncCommit: a transaction in several tablets is one message for each before its commit
// returns. The commit timestamp is the greatest of the tablets', and the records follow.
func TestAsyncCommit(t *testing.T) {
	w := newAsyncWorld(t)
	c, p := w.client(txn.Config{})
	var mu sync.Mutex
	var before []string
	counted := 0
	returned := make(chan struct{})
	p.Inject(func(req *pb.TabletRequest) txntest.Fault {
		mu.Lock()
		defer mu.Unlock()
		before = append(before, wire.OperationOf(req).Name)
		if req.GetCommit().GetDecided() {
			counted++
		}
		if req.GetCommit() != nil { // after the answer
			return txntest.Fault{Before: func(context.Context) { <-returned }}
		}
		return txntest.Fault{}
	})
	ts := w.set(c, "v", threeRows...)
	mu.Lock()
	prewritten := 0
	for _, op := range before {
		if op == "prewrite" {
			prewritten++
		} else if op != "commit" {
			t.Errorf("the commit has sent a %s", op)
		}
	}
	mu.Unlock()
	if prewritten != len(threeRows) {
		t.Errorf("%d prewrites, want one for each tablet", prewritten)
	}
	close(returned)
	c.Flush()
	if counted != 1 {
		t.Errorf("%d commits for nodes to count", counted)
	}
	other, _ := w.client(txn.Config{})
	for _, row := range threeRows {
		if got := w.get(other, row); got != "v" {
			t.Errorf("%s is %q", row, got)
		}
		if at := w.commitOf(other, row); at != ts {
			t.Errorf("%s is committed at %d, not %d", row, at, ts)
		}
	}
}

// commitOf returns the commit timestamp of a row's value.
func (w *world) commitOf(c *txn.Client, row string) mvcc.Timestamp {
	w.t.Helper()
	s, err := c.Snapshot(w.ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	values, err := s.GetMulti(w.ctx, []txn.Key{key(row)})
	if err != nil {
		w.t.Fatal(err)
	}
	return values[0].CommitTS
}

// TestAsyncRepeats: a prewrite that is lost, or whose answer is lost, or that arrives twice, is sent
// again and gets the same answer: the function runs once.
func TestAsyncRepeats(t *testing.T) {
	for _, f := range []txntest.Fault{{Lost: true}, {Reply: true}, {Twice: true}, {NotSent: true}} {
		for _, row := range threeRows {
			w := newAsyncWorld(t)
			c, p := w.client(txn.Config{})
			var once atomic.Bool
			p.Inject(func(req *pb.TabletRequest) txntest.Fault {
				if prewrites(req, row) && !once.Swap(true) {
					return f
				}
				return txntest.Fault{}
			})
			if runs, err := w.attempt(c, "v", threeRows); runs != 1 || err != nil {
				t.Errorf("%+v at %s: %d runs, %v", f, row, runs, err)
			}
			if !w.allOrNothing("repeated", "v", threeRows) {
				t.Errorf("%+v at %s: not written", f, row)
			}
		}
	}
}

// TestAsyncUnknown: after the prewrite of one row its client reaches no tablet any more. The
// outcome is unknown to the caller; the transaction is committed if and only if all prewrites have
// arrived, and others see the outcome once the locks have expired, or before if it is committed.
func TestAsyncUnknown(t *testing.T) {
	for _, arrives := range []bool{true, false} {
		for _, row := range threeRows {
			w := newAsyncWorld(t)
			c, p := w.client(txn.Config{
				SettleTimeout: 30 * time.Millisecond, OperationTimeout: 50 * time.Millisecond,
			})
			var others atomic.Int32
			var late atomic.Pointer[pb.TabletRequest]
			p.Inject(func(req *pb.TabletRequest) txntest.Fault {
				switch {
				case prewrites(req, row) && late.CompareAndSwap(nil, req):
					return txntest.Fault{Lost: !arrives, Reply: arrives}
				case req.GetPrewrite() != nil && !prewrites(req, row) && others.Add(1) <= 2:
					return txntest.Fault{}
				}
				return txntest.Fault{Lost: true}
			})
			if runs, err := w.attempt(c, "v", threeRows); runs != 1 || !errors.Is(err, txn.ErrCommitUnknown) {
				t.Errorf("%s, arrives %v: %d runs, %v", row, arrives, runs, err)
			}
			if arrives { // nobody need wait for the end of the locks
				other, _ := w.client(txn.Config{})
				if got := w.get(other, "a"); got != "v" {
					t.Errorf("%s: a committed row is read as %q", row, got)
				}
			}
			if written := w.allOrNothing(row, "v", threeRows); written != arrives {
				t.Errorf("ASYNC-ALONE: %s, arrives %v: written %v", row, arrives, written)
			}
			if resp := w.deliver(late.Load()); !arrives && resp.GetMutation().GetStatus() != pb.Status_STATUS_ROLLED_BACK {
				t.Errorf("%s: a late prewrite: %v", row, resp)
			}
			if written := w.allOrNothing(row+" late", "v", threeRows); written != arrives {
				t.Errorf("%s, arrives %v: written %v after a late copy", row, arrives, written)
			}
		}
	}
}

// TestAsyncRefused: a conflict in one tablet ends the commit, and its locks in the others.
func TestAsyncRefused(t *testing.T) {
	for _, row := range threeRows {
		w := newAsyncWorld(t)
		c, _ := w.client(txn.Config{})
		other, _ := w.client(txn.Config{})
		tx, err := c.Begin(w.ctx, txn.Options{})
		if err != nil {
			t.Fatal(err)
		}
		w.set(other, "theirs", row)
		for _, r := range threeRows {
			tx.Set(key(r), []byte("ours"))
		}
		var conflict *txn.ConflictError
		if _, err := tx.Commit(w.ctx); !errors.As(err, &conflict) || conflict.Cell.Row != row {
			t.Errorf("%s: %v", row, err)
		}
		c.Flush()
		if n := w.Locks(w.table); n != 0 {
			t.Errorf("%s: %d locks are left", row, n)
		}
		if w.allOrNothing(row, "ours", threeRows) {
			t.Errorf("%s: written after a conflict", row)
		}
	}
}

// TestAsyncRefusedByAll: tablets that refuse every prewrite, for a missing permission or disk space,
// get no further message, and the refusal is what the caller sees. If a tablet refuses its part for
// good, the outcome is known although its cells cannot be queried, and the locks of the others end.
func TestAsyncRefusedByAll(t *testing.T) {
	for code, want := range map[pb.Error_Code]error{
		pb.Error_CODE_PERMISSION: txn.ErrPermission, pb.Error_CODE_DISK_FULL: txn.ErrDiskFull,
	} {
		for _, accepting := range []string{"", "a", "h"} { // the row whose prewrite is accepted
			if accepting != "" && code != pb.Error_CODE_PERMISSION {
				continue
			}
			w := newAsyncWorld(t)
			c, p := w.client(txn.Config{})
			var more atomic.Int32
			p.Inject(func(req *pb.TabletRequest) txntest.Fault {
				r := req.GetRollback()
				switch {
				case accepting != "" && (prewrites(req, accepting) || req.GetResolveLock() != nil ||
					r != nil && string(r.Cells[0].Row) == accepting):
					return txntest.Fault{}
				case req.GetPrewrite() == nil:
					more.Add(1)
				}
				return txntest.Fault{Answer: &pb.Error{Code: code, Message: "refused"}}
			})
			runs, err := w.attempt(c, "v", threeRows)
			if runs != 1 || !errors.Is(err, want) || errors.Is(err, txn.ErrCommitUnknown) {
				t.Errorf("%v, %q accepted: %d runs, %v", code, accepting, runs, err)
			}
			if n := more.Load(); accepting == "" && n != 0 {
				t.Errorf("%v: %d further messages", code, n)
			}
			c.Flush()
			if n := w.Locks(w.table); n != 0 {
				t.Errorf("%v, %q accepted: %d locks are left", code, accepting, n)
			}
		}
	}
}

// TestAsyncRefusedAfterALostReply: a refusal is not final if an earlier copy of the prewrite may have
// been accepted: the transaction may be committed. Catches BROKEN=async_refusal_final.
func TestAsyncRefusedAfterALostReply(t *testing.T) {
	w := newAsyncWorld(t)
	c, p := w.client(txn.Config{SettleTimeout: 30 * time.Millisecond})
	var copies atomic.Int32
	p.Inject(func(req *pb.TabletRequest) txntest.Fault {
		switch {
		case prewrites(req, "h") && copies.Add(1) == 1:
			return txntest.Fault{Reply: true}
		case req.GetPrewrite() != nil && !prewrites(req, "h"):
			return txntest.Fault{}
		}
		return txntest.Fault{Answer: &pb.Error{Code: pb.Error_CODE_PERMISSION, Message: "refused"}}
	})
	if runs, err := w.attempt(c, "v", threeRows); runs != 1 || !errors.Is(err, txn.ErrCommitUnknown) {
		t.Errorf("ASYNC-DEFINITE: %d runs, %v, want ErrCommitUnknown", runs, err)
	}
}

// TestAsyncSettledAtLock: a prewrite that has met a live lock is settled before the commit ends: a
// late copy of it commits nothing.
func TestAsyncSettledAtLock(t *testing.T) {
	w := newAsyncWorld(t)
	c, p := w.client(txn.Config{})
	unlock := w.lockCell("h")
	var copied atomic.Pointer[pb.TabletRequest]
	p.Inject(func(req *pb.TabletRequest) txntest.Fault {
		if prewrites(req, "h") {
			copied.Store(req)
		}
		return txntest.Fault{}
	})
	tx, err := c.Begin(w.ctx, txn.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range threeRows {
		tx.Set(key(row), []byte("v"))
	}
	if _, err := tx.Commit(w.ctx); !errors.Is(err, txn.ErrLocked) {
		t.Error(err)
	}
	unlock()
	w.deliver(copied.Load())
	if w.allOrNothing("settled", "v", threeRows) {
		t.Error("ASYNC-UNFENCED: a late copy has committed a transaction that was reported as not committed")
	}
}

// dieAfterPrewrites writes threeRows by an asynchronous commit, of which only the prewrites arrive;
// without complete, that of row h does not either. It returns the prewrite of the row.
func (w *world) dieAfterPrewrites(complete bool, row string) *pb.PrewriteRequest {
	w.t.Helper()
	dying, p := w.client(txn.Config{
		SettleTimeout: time.Millisecond, OperationTimeout: 20 * time.Millisecond,
	})
	var kept atomic.Pointer[pb.PrewriteRequest]
	p.Inject(func(req *pb.TabletRequest) txntest.Fault {
		if prewrites(req, row) {
			kept.Store(req.GetPrewrite())
		}
		return txntest.Fault{Lost: req.GetPrewrite() == nil || !complete && prewrites(req, "h")}
	})
	if _, err := w.attempt(dying, "v", threeRows); (err == nil) != complete {
		w.t.Fatalf("complete %v: %v", complete, err)
	}
	return kept.Load()
}

// TestAsyncForce: ForceLock commits a transaction whose cells are all locked, and rolls back another
// one.
func TestAsyncForce(t *testing.T) {
	for _, complete := range []bool{true, false} {
		w := newAsyncWorld(t)
		pre := w.dieAfterPrewrites(complete, "z")
		l := mvcc.LockInfo{Cell: wire.Cell(pre.Writes[0].Cell), Lock: mvcc.Lock{
			StartTS: mvcc.Timestamp(pre.StartTs), Primary: wire.Cell(pre.Primary), Expiry: mvcc.Timestamp(pre.Expiry),
		}}
		killer, _ := w.client(txn.Config{})
		if resolved, err := killer.ResolveLock(w.ctx, l); resolved != complete || err != nil {
			t.Errorf("complete %v: resolved %v, %v", complete, resolved, err)
		}
		if resolved, err := killer.ForceLock(w.ctx, l); !resolved || err != nil {
			t.Errorf("complete %v: forced %v, %v", complete, resolved, err)
		}
		if written := w.allOrNothing("forced", "v", threeRows); written != complete {
			t.Errorf("complete %v: written %v", complete, written)
		}
	}
}

// TestAsyncAsked: AskAsync reports the commit timestamp of a transaction whose locks all exist,
// before and after they have expired, and one that lacks a lock as undecided; it leaves the locks.
// Catches BROKEN=async_asked.
func TestAsyncAsked(t *testing.T) {
	for _, complete := range []bool{true, false} {
		w := newAsyncWorld(t)
		pre := w.dieAfterPrewrites(complete, "a")
		l := mvcc.LockInfo{Cell: wire.Cell(pre.Primary), Lock: mvcc.Lock{
			StartTS: mvcc.Timestamp(pre.StartTs), Expiry: mvcc.Timestamp(pre.Expiry),
		}}
		asks, _ := w.client(txn.Config{})
		locks := w.Locks(w.table)
		for range 2 {
			at, rolledBack, err := asks.AskAsync(w.ctx, l)
			if (at != 0) != complete || rolledBack || err != nil || w.Locks(w.table) != locks || locks == 0 {
				t.Errorf("ASKED: complete %v: committed at %d, rolled back %v, %v, %d locks of %d", complete, at,
					rolledBack, err, w.Locks(w.table), locks)
			}
			w.Advance(time.Hour)
		}
		if written := w.allOrNothing("asked", "v", threeRows); written != complete {
			t.Errorf("complete %v: written %v", complete, written)
		}
		if at, rolledBack, err := asks.AskAsync(w.ctx, l); (at != 0) != complete || rolledBack == complete || err != nil {
			t.Errorf("complete %v, decided: committed at %d, rolled back %v, %v", complete, at, rolledBack, err)
		}
	}
}

// TestAsyncIsFenced: a transaction that encounters an expired lock before the last prewrite has
// arrived prevents that commit.
func TestAsyncIsFenced(t *testing.T) {
	w := newAsyncWorld(t)
	c, p := w.client(txn.Config{})
	reader, _ := w.client(txn.Config{})
	w.set(reader, "old", threeRows...)
	reader.Flush()
	var others sync.WaitGroup
	others.Add(len(threeRows) - 1)
	p.Inject(func(req *pb.TabletRequest) txntest.Fault {
		switch {
		case req.GetPrewrite() == nil:
			return txntest.Fault{}
		case !decides(req):
			return txntest.Fault{After: others.Done}
		}
		return txntest.Fault{Before: func(context.Context) {
			others.Wait()
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

// TestAsyncSplit: a tablet that is split before a prewrite gets one for each half, at the same start
// timestamp, and whoever encounters the locks later decides them by the cells, wherever they are.
func TestAsyncSplit(t *testing.T) {
	rows := []string{"a", "b", "z"}
	for _, complete := range []bool{true, false} {
		w := newAsyncWorld(t)
		c, p := w.client(txn.Config{SettleTimeout: time.Millisecond, OperationTimeout: 50 * time.Millisecond})
		var split atomic.Bool
		p.Inject(func(req *pb.TabletRequest) txntest.Fault {
			switch {
			case req.GetPrewrite() == nil:
				return txntest.Fault{Lost: true} // the coordinator dies after its prewrites
			case !split.Swap(true):
				return txntest.Fault{Before: func(context.Context) { w.Split(w.table, "b") }}
			case !complete && prewrites(req, "b"):
				return txntest.Fault{Lost: true}
			}
			return txntest.Fault{}
		})
		if runs, err := w.attempt(c, "v", rows); runs != 1 || (err == nil) != complete {
			t.Errorf("complete %v: %d runs, %v", complete, runs, err)
		}
		w.Split(w.table, "az")
		if written := w.allOrNothing("split", "v", rows); written != complete {
			t.Errorf("complete %v: written %v", complete, written)
		}
	}
}

// TestAsyncBlindWrite: a transaction that only writes, in several tablets, starts at a spare
// timestamp and gets the next one with the answers; it costs its client no request to the oracle.
// A conflict at a spare timestamp ends that attempt only.
func TestAsyncBlindWrite(t *testing.T) {
	w := newAsyncWorld(t)
	c, p := w.client(txn.Config{})
	w.set(c, "0", threeRows...)
	c.Flush()
	var asked atomic.Int32
	p.Oracle(func(n int) (mvcc.Timestamp, int, error) {
		asked.Add(1)
		return w.Timestamps(n), n, nil
	})
	last := mvcc.Timestamp(0)
	for _, value := range []string{"1", "2"} {
		at := w.set(c, value, threeRows...)
		if at <= last {
			t.Errorf("committed at %d after %d", at, last)
		}
		last = at
		c.Flush() // the locks are gone
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("%d requests to the oracle", n)
	}
	other, _ := w.client(txn.Config{})
	theirs := w.set(other, "theirs", "h")
	if runs, err := w.attempt(c, "3", threeRows); runs != 1 || err != nil || asked.Load() == 0 {
		t.Errorf("after a conflict: %d runs, %d requests, %v", runs, asked.Load(), err)
	}
	c.Flush()
	if at := w.commitOf(other, "h"); at <= theirs || w.get(other, "h") != "3" {
		t.Errorf("h is %q, committed at %d beside a commit at %d", w.get(other, "h"), at, theirs)
	}
}

// TestAsyncLateWrite: a write fails the commit until its prewrites are sent; from then on it is
// dropped with a warning, as during a one-phase commit.
func TestAsyncLateWrite(t *testing.T) {
	w := newAsyncWorld(t)
	var log logged
	c, p := w.client(txn.Config{Logger: log.logger()})
	tx := w.begin(c)
	for _, row := range threeRows {
		tx.Set(key(row), []byte("v"))
	}
	p.Inject(func(req *pb.TabletRequest) txntest.Fault {
		if req.GetPrewrite() != nil {
			tx.Set(key("late"), []byte("v"))
		}
		return txntest.Fault{}
	})
	if _, err := tx.Commit(w.ctx); err != nil {
		t.Error(err)
	}
	p.Inject(nil)
	c.Flush()
	if n := log.dropped(); n == 0 {
		t.Error("a late write was dropped without a warning")
	}
	if got := w.get(c, "late"); got != "-" || !w.allOrNothing("late", "v", threeRows) {
		t.Errorf("a late write: %q", got)
	}
}
