package txn_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/mvcc/mvcctest"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/txn/txntest"
)

// TestNoCommitTimestamp: a transaction without a commit timestamp has not committed, returns an
// error that says so, and leaves no locks.
func TestNoCommitTimestamp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorldOf(t, lockAll)
		c, p := w.client(txn.Config{OperationTimeout: time.Second})
		tx := w.begin(c)
		for _, row := range threeRows {
			tx.Set(key(row), []byte("v"))
		}
		p.Oracle(func(int) (mvcc.Timestamp, int, error) { return 0, 0, errors.New("down") })
		_, err := tx.Commit(w.ctx)
		if !errors.Is(err, txn.ErrUnavailable) || errors.Is(err, txn.ErrCommitUnknown) ||
			!strings.Contains(err.Error(), "not committed") {
			t.Errorf("%v, want ErrUnavailable, not committed", err)
		}
		w.nothingLeft(c, "no timestamp")
	})
}

// TestSenselessAnswers: an answer to the deciding message without an outcome decides nothing: the
// outcome is queried, and the commit has one timestamp.
func TestSenselessAnswers(t *testing.T) {
	for _, status := range []pb.Status{
		pb.Status_STATUS_NOT_FOUND, pb.Status_STATUS_LIVE, pb.Status_STATUS_COMMIT_TS_TOO_LOW,
	} {
		for way, rows := range ways {
			w := newWorldOf(t, way)
			c, a := w.answering(txn.Config{TwoPhaseOnly: way == lockAll})
			var once atomic.Bool
			a.answer = func(req *pb.TabletRequest) *pb.TabletResponse {
				if !decides(req) || once.Swap(true) {
					return nil
				}
				return &pb.TabletResponse{Result: &pb.TabletResponse_Mutation{
					Mutation: &pb.MutationResult{Status: status}}}
			}
			tx := w.begin(c)
			for _, row := range rows {
				tx.Set(key(row), []byte("v"))
			}
			ts, err := tx.Commit(w.ctx)
			if err != nil {
				t.Errorf("%v, %s: %v", status, way, err)
			}
			c.Flush()
			s, err := c.SnapshotAt(w.ctx, ts)
			if err != nil {
				t.Fatal(err)
			}
			for _, row := range rows {
				v, err := s.GetMulti(w.ctx, []txn.Key{key(row)})
				if err != nil || string(v[0].Bytes) != "v" || v[0].CommitTS != ts {
					t.Errorf("%v, %s: %s at %d: %+v, %v", status, way, row, ts, v, err)
				}
			}
			if !w.allOrNothing(way, "v", rows) {
				t.Errorf("%v, %s: not written", status, way)
			}
		}
	}
}

// near is a process that contains the oracle.
type near struct {
	*txntest.Process
	now func() (mvcc.Timestamp, bool)
}

func (n *near) TimestampsNow(int) (mvcc.Timestamp, bool) { return n.now() }

// TestOracleInTheProcess: the oracle is called directly, and by message if it has no answer or
// returns a timestamp already used.
func TestOracleInTheProcess(t *testing.T) {
	w := newWorld(t)
	n, requests := &near{Process: w.Process(7, 1)}, 0
	n.Oracle(func(count int) (mvcc.Timestamp, int, error) {
		requests++
		return w.Timestamps(count), count, nil
	})
	c := txn.NewClient(n, txn.Config{})
	defer func() { _ = c.Close() }()
	last := mvcc.Timestamp(0)
	for _, test := range []struct {
		what     string
		now      func() (mvcc.Timestamp, bool)
		requests int
	}{
		{"it knows", func() (mvcc.Timestamp, bool) { return w.Timestamps(1), true }, 0},
		{"it does not know", func() (mvcc.Timestamp, bool) { return 0, false }, 1},
		{"it goes back", func() (mvcc.Timestamp, bool) { return last, true }, 2},
	} {
		n.now = test.now
		ts, err := c.Timestamp(w.ctx)
		if err != nil || ts <= last || requests != test.requests {
			t.Errorf("%s: %d after %d, %d requests, %v", test.what, ts, last, requests, err)
		}
		last = ts
	}
	if n := c.Stats().TimestampsRefused; n != 1 {
		t.Errorf("%d refused", n)
	}
}

// TestUnansweredPrewriteIsRolledBack: a prewrite whose answers are all lost may have left locks, so
// the end of its transaction rolls them back.
func TestUnansweredPrewriteIsRolledBack(t *testing.T) {
	w := newWorld(t)
	c, p := w.client(txn.Config{TwoPhaseOnly: true, OperationTimeout: 20 * time.Millisecond})
	tx := w.begin(c)
	tx.Set(key("a"), []byte("v"))
	p.Inject(func(req *pb.TabletRequest) txntest.Fault {
		return txntest.Fault{Reply: req.GetPrewrite() != nil}
	})
	if ts, err := tx.Commit(w.ctx); err == nil {
		t.Errorf("committed at %d without an answer", ts)
	}
	c.Flush()
	if n := w.Locks(w.table); n != 0 {
		t.Errorf("%d locks have stayed", n)
	}
}

// TestUnknownIsNotRolledBack: a primary's answer below the safepoint, where its record may have
// been collected, decides nothing: neither the outcome of a commit whose reply was lost, nor that
// of a lock encountered elsewhere. Catches BROKEN=unknown_settled and unknown_resolved.
func TestUnknownIsNotRolledBack(t *testing.T) {
	w := newWorld(t)
	c, p := w.client(txn.Config{})
	tx := w.begin(c)
	tx.Set(key("a"), []byte("v"))
	p.Inject(func(req *pb.TabletRequest) txntest.Fault {
		return txntest.Fault{Lost: req.GetOnePhase() != nil, Before: func(context.Context) {
			if req.GetRollback() != nil {
				w.collected(w.Timestamps(1))
			}
		}}
	})
	if _, err := tx.Commit(w.ctx); !errors.Is(err, txn.ErrCommitUnknown) {
		t.Errorf("UNKNOWN-SETTLED: the commit ended with %v", err)
	}
	p.Inject(nil)

	w.locksAll = true
	var at mvcc.Timestamp
	w.abandonLocks(&at, "a", "z")
	w.Look(func(v *mvcctest.MemView) { // all records of its primary
		v.Apply([]mvcc.Mutation{{Group: mvcc.GroupWrite, Cell: w.cell("a"), Delete: true}})
	})
	w.collected(w.Timestamps(1))
	var met mvcc.LockInfo
	w.Look(func(v *mvcctest.MemView) {
		lock, _ := v.Lock(w.cell("z"))
		met = mvcc.LockInfo{Cell: w.cell("z"), Lock: lock}
	})
	if resolved, err := c.ResolveLock(w.ctx, met); resolved || err != nil || !w.lockOn("z") {
		t.Errorf("UNKNOWN-RESOLVED: resolved %t, %v, still locked %t", resolved, err, w.lockOn("z"))
	}
}

// collected raises the bound and the safepoint.
func (w *world) collected(to mvcc.Timestamp) {
	w.SetBound(to)
	w.Look(func(v *mvcctest.MemView) { v.SafepointTS = to })
}
