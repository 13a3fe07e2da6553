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

// abandonLocks leaves the locks of a transaction whose coordinator died: before its commit, or, with
// commit, between the primary's commit and the rest. The locks have expired when it returns, one of
// them at the primary if the world's clients lock all. It returns the dead client's worker.
func (w *world) abandonLocks(commit *mvcc.Timestamp, rows ...string) mvcc.Worker {
	w.t.Helper()
	p := w.Process(8, uint64(w.Timestamps(1)))
	c := txn.NewClient(p, txn.Config{
		SettleTimeout: time.Millisecond, OperationTimeout: 20 * time.Millisecond,
		TwoPhaseOnly: w.locksAll,
	})
	defer c.Close()
	var commits atomic.Int32
	p.Inject(func(req *pb.TabletRequest) txntest.Fault {
		switch req.Op.(type) {
		case *pb.TabletRequest_Prewrite, *pb.TabletRequest_CheckTxnStatus,
			*pb.TabletRequest_ResolveLock:
			return txntest.Fault{}
		case *pb.TabletRequest_Commit, *pb.TabletRequest_OnePhase:
			if commits.Add(1) == 1 && commit != nil {
				return txntest.Fault{}
			}
		}
		return txntest.Fault{Lost: true}
	})
	ts, err := c.Run(w.ctx, txn.Options{}, func(_ context.Context, t *txn.Txn) error {
		for _, row := range rows {
			t.Set(key(row), []byte("stranded"))
		}
		return nil
	})
	switch {
	case commit != nil && err == nil:
		*commit = ts
	case !errors.Is(err, txn.ErrCommitUnknown):
		w.t.Fatalf("the commit ended with %v, want no error or ErrCommitUnknown", err)
	}
	c.Flush()
	w.Advance(time.Minute)
	return p.Worker()
}

// ways are the ways of committing: all in one tablet, and spread over three, of which the primary's
// commits in one phase or is prewritten like the others; or all are prewritten for an asynchronous
// commit.
var ways = map[string][]string{
	"one phase": {"a", "b"}, "two phases": {"a", "h", "z"}, lockAll: {"a", "h", "z"},
	asyncWay: {"a", "h", "z"},
}

const (
	lockAll  = "two phases, all prewritten"
	asyncWay = "asynchronous"
)

// newWorldOf returns a world whose clients commit in the given way.
func newWorldOf(t *testing.T, way string) *world {
	t.Helper()
	w := newWorld(t)
	w.locksAll, w.async = way == lockAll, way == asyncWay
	return w
}

// decides reports whether the operation decides a transaction: its one-phase commit, its primary's
// commit or, of an asynchronous commit, the primary's prewrite.
func decides(req *pb.TabletRequest) bool {
	if p := req.GetPrewrite(); p.GetAsync() {
		return string(p.Writes[0].Cell.Row) == "a"
	}
	return req.GetCommit().GetDecides() || req.GetOnePhase() != nil
}

// attempt runs one transaction that writes value to the rows, and counts runs of its function.
func (w *world) attempt(c *txn.Client, value string, rows []string) (runs int, err error) {
	_, err = c.Run(w.ctx, txn.Options{}, func(_ context.Context, t *txn.Txn) error {
		runs++
		for _, row := range rows {
			t.Set(key(row), []byte(value))
		}
		return nil
	})
	return runs, err
}

// allOrNothing reads the rows with a separate client after every lock has expired, and reports
// whether all were written or none.
func (w *world) allOrNothing(what, value string, rows []string) (written bool) {
	w.t.Helper()
	w.Advance(time.Minute)
	c, _ := w.client(txn.Config{})
	n := 0
	for _, row := range rows {
		if w.get(c, row) == value {
			n++
		}
	}
	if n != 0 && n != len(rows) {
		w.t.Errorf("%s: all-or-nothing is broken: %d of %d rows are written", what, n, len(rows))
	}
	return n > 0
}

// The reply to the deciding message is lost and its tablet becomes unreachable: the function ran
// once, the caller gets an unknown outcome, and the final state is all or nothing.
func TestUnknownOutcome(t *testing.T) {
	for name, rows := range ways {
		for _, done := range []bool{true, false} {
			w := newWorldOf(t, name)
			c, p := w.client(txn.Config{
				SettleTimeout: 30 * time.Millisecond, OperationTimeout: 50 * time.Millisecond,
			})
			var cut atomic.Bool
			p.Inject(func(req *pb.TabletRequest) txntest.Fault {
				if decides(req) && !cut.Swap(true) {
					return txntest.Fault{Lost: !done, Reply: done}
				}
				return txntest.Fault{NotSent: cut.Load() && (req.GetPrewrite() == nil || decides(req))}
			})
			runs, err := w.attempt(c, "v", rows)
			if runs != 1 || !errors.Is(err, txn.ErrCommitUnknown) {
				t.Errorf("%s: %d runs, %v; want 1 and ErrCommitUnknown", name, runs, err)
			}
			p.Inject(nil)
			if written := w.allOrNothing(name, "v", rows); written != done {
				t.Errorf("%s: written %v, want %v", name, written, done)
			}
		}
	}
}

// A lost reply that can be settled is settled: the transaction is reported as committed if it is,
// and is fenced and run again otherwise. An asynchronous commit sends its prewrite again.
func TestSettle(t *testing.T) {
	for name, rows := range ways {
		for _, done := range []bool{true, false} {
			w := newWorldOf(t, name)
			c, p := w.client(txn.Config{})
			var lost atomic.Bool
			p.Inject(func(req *pb.TabletRequest) txntest.Fault {
				if decides(req) && !lost.Swap(true) {
					return txntest.Fault{Lost: !done, Reply: done}
				}
				return txntest.Fault{}
			})
			want, settled := 2, uint64(1)
			if name == asyncWay {
				want, settled = 1, 0
			} else if done {
				want = 1
			}
			if runs, err := w.attempt(c, "v", rows); runs != want || err != nil {
				t.Errorf("%s, done %v: %d runs, %v", name, done, runs, err)
			}
			if s := c.Stats(); s.Settled != settled {
				t.Errorf("%s: settled %d times", name, s.Settled)
			}
			if !w.allOrNothing(name, "v", rows) {
				t.Errorf("%s, done %v: not written", name, done)
			}
		}
	}
}

// The caller's context ends while the deciding message is in flight: the outcome is still
// determined, within the commit's own time limit.
func TestSettleOutlivesContext(t *testing.T) {
	for name, rows := range ways {
		w := newWorldOf(t, name)
		c, p := w.client(txn.Config{})
		ctx, cancel := context.WithCancel(w.ctx)
		p.Inject(func(req *pb.TabletRequest) txntest.Fault {
			if decides(req) {
				return txntest.Fault{Before: func(context.Context) { cancel() }}
			}
			return txntest.Fault{}
		})
		tx := w.begin(c)
		for _, row := range rows {
			tx.Set(key(row), []byte("v"))
		}
		if _, err := tx.Commit(ctx); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if !w.allOrNothing(name, "v", rows) {
			t.Errorf("%s: reported committed, not written", name)
		}
	}
}

// A message of each kind is lost, refused or duplicated once, or its reply is lost: the transaction
// still commits.
func TestOtherFaults(t *testing.T) {
	retry := func(code pb.Error_Code) txntest.Fault {
		return txntest.Fault{Answer: &pb.Error{Code: code}}
	}
	for name, fault := range map[string]txntest.Fault{
		"reply lost":   {Reply: true},
		"lost":         {Lost: true},
		"not sent":     {NotSent: true},
		"not leader":   retry(pb.Error_CODE_NOT_LEADER),
		"not proposed": retry(pb.Error_CODE_NOT_PROPOSED),
		"unavailable":  retry(pb.Error_CODE_UNAVAILABLE),
		"overloaded":   retry(pb.Error_CODE_OVERLOADED),
		"unknown":      retry(pb.Error_CODE_UNKNOWN),
		"internal":     retry(pb.Error_CODE_INTERNAL),
		"wrong tablet": retry(pb.Error_CODE_WRONG_TABLET),
		"twice":        {Twice: true},
	} {
		for way, rows := range ways {
			synctest.Test(t, func(t *testing.T) {
				w := newWorldOf(t, way)
				c, p := w.client(txn.Config{})
				n := 0
				seen := map[string]bool{}
				mu := make(chan struct{}, 1)
				p.Inject(func(req *pb.TabletRequest) txntest.Fault {
					mu <- struct{}{}
					defer func() { <-mu }()
					kind := req.String()[:24]
					if name != "twice" && seen[kind] {
						return txntest.Fault{} // each kind of operation fails once
					}
					seen[kind] = true
					n++
					return fault
				})
				if _, err := w.attempt(c, "v", rows); err != nil {
					t.Errorf("%s, %s: %v", name, way, err)
				}
				c.Flush()
				p.Inject(nil)
				<-time.After(txntest.MaxLate)
				if !w.allOrNothing(name, "v", rows) || n == 0 {
					t.Errorf("%s, %s: %d faults, not written", name, way, n)
				}
			})
		}
	}
}

// TestFinishGivesUp: Finish waits for secondaries that cannot be committed until its context ends.
// The abandoned ones are committed by the next transaction that encounters them.
func TestFinishGivesUp(t *testing.T) {
	w := newWorldOf(t, lockAll)
	c, p := w.client(txn.Config{OperationTimeout: time.Hour})
	tried := make(chan struct{}, 1)
	p.Inject(func(req *pb.TabletRequest) txntest.Fault {
		if req.GetCommit() == nil || decides(req) {
			return txntest.Fault{}
		}
		select {
		case tried <- struct{}{}:
		default:
		}
		return txntest.Fault{NotSent: true}
	})
	if _, err := w.attempt(c, "v", ways[lockAll]); err != nil {
		t.Fatal(err)
	}
	<-tried
	ctx, cancel := context.WithTimeout(w.ctx, 50*time.Millisecond)
	defer cancel()
	c.Finish(ctx)
	if ctx.Err() == nil {
		t.Error("it has not waited for secondaries")
	}
	p.Inject(nil)
	w.Advance(time.Minute)
	if !w.allOrNothing("given up", "v", ways[lockAll]) {
		t.Error("what was committed is not there")
	}
}

// TestSecondaryNeverFirst: when the primary's commit is refused permanently, no secondary may have
// been committed. Catches BROKEN=secondary_first.
func TestSecondaryNeverFirst(t *testing.T) {
	for _, way := range []string{"two phases", lockAll} {
		rows, w := ways[way], newWorldOf(t, way)
		c, p := w.client(txn.Config{
			SettleTimeout: 20 * time.Millisecond, OperationTimeout: 30 * time.Millisecond,
		})
		p.Inject(func(req *pb.TabletRequest) txntest.Fault {
			// The primary's tablet answers only prewrites; the secondaries' tablets answer
			// everything.
			atPrimary := decides(req) || (req.GetRollback() != nil &&
				string(req.GetRollback().Cells[0].Row) == "a")
			return txntest.Fault{Lost: atPrimary}
		})
		if _, err := w.attempt(c, "v", rows); !errors.Is(err, txn.ErrCommitUnknown) {
			t.Errorf("the write ended with %v, want ErrCommitUnknown", err)
		}
		c.Flush()
		p.Inject(nil)
		w.allOrNothing("secondary-never-first", "v", rows)
	}
}

// The commit timestamp is requested only after every prewrite has been acknowledged.
func TestCommitTimestampAfterPrewrites(t *testing.T) {
	w := newWorldOf(t, lockAll)
	c, p := w.client(txn.Config{})
	tx := w.begin(c)
	var prewrites atomic.Int32
	late := make(chan int32, 8)
	p.Oracle(func(count int) (mvcc.Timestamp, int, error) {
		late <- prewrites.Load()
		return w.Timestamps(count), count, nil
	})
	p.Inject(func(req *pb.TabletRequest) txntest.Fault {
		if req.GetPrewrite() == nil {
			return txntest.Fault{}
		}
		return txntest.Fault{Before: func(context.Context) { prewrites.Add(1) }}
	})
	for _, row := range ways["two phases"] {
		tx.Set(key(row), nil)
	}
	if _, err := tx.Commit(w.ctx); err != nil {
		t.Fatal(err)
	}
	if n := <-late; n != 3 {
		t.Errorf("asked after %d of 3 prewrites", n)
	}
}

// A one-phase commit whose tablet was split is run again with another start timestamp, not in two
// phases with its own.
func TestOnePhaseNeverBecomesTwo(t *testing.T) {
	for _, async := range []bool{false, true} {
		w := newWorld(t)
		w.async = async
		c, p := w.client(txn.Config{})
		w.set(c, "0", "a", "b")
		var first atomic.Uint64
		var ones atomic.Int32
		p.Inject(func(req *pb.TabletRequest) txntest.Fault {
			if one := req.GetOnePhase(); one != nil {
				ones.Add(1)
				if !first.CompareAndSwap(0, one.StartTs) && one.StartTs == first.Load() {
					t.Error("sent again with the same start timestamp")
				}
				w.Split(w.table, "b")
			}
			if pre := req.GetPrewrite(); pre != nil && pre.StartTs == first.Load() {
				t.Error("prewritten with the start timestamp of a one-phase commit")
			}
			return txntest.Fault{}
		})
		runs, err := w.attempt(c, "v", []string{"a", "b"})
		want := int32(2) // the second run's last tablet commits in one phase too
		if async {
			want = 1
		}
		if err != nil || runs != 2 || ones.Load() != want {
			t.Errorf("asynchronous %v: %d runs, %d one-phase commits, %v; want 2 and %d", async, runs,
				ones.Load(), err, want)
		}
		c.Flush()
		p.Inject(nil)
		w.allOrNothing("split", "v", []string{"a", "b"})
	}
}
