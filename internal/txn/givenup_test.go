package txn_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/mvcc/mvcctest"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/txn/txntest"
	"github.com/percolator-go/percolator/internal/wire"
)

// Tests of commits that end although their deciding message was answered: a second copy of it may
// arrive before the end is known, and after (docs/adr/0050).

// deliver delivers an operation without a client.
func (w *world) deliver(req *pb.TabletRequest) *pb.TabletResponse {
	w.t.Helper()
	resp, err := w.Process(9, 9).Send(w.ctx, nil, req)
	if err != nil {
		w.t.Fatal(err)
	}
	return resp
}

// lockCell puts a live lock of another transaction on a row; unlock rolls it back.
func (w *world) lockCell(row string) (unlock func()) {
	w.t.Helper()
	c, _ := w.client(txn.Config{})
	start, cell := w.Timestamps(1), wire.CellPB(w.cell(row))
	send := func(req *pb.TabletRequest) {
		at := wire.Position{Table: w.table, Row: row}
		resp, _, err := c.Send(w.ctx, at, req)
		if err != nil || resp.GetMutation().GetStatus() != pb.Status_STATUS_OK {
			w.t.Error(resp, err)
		}
	}
	send(&pb.TabletRequest{Op: &pb.TabletRequest_Prewrite{Prewrite: &pb.PrewriteRequest{
		StartTs: uint64(start), Primary: cell,
		Expiry: uint64(mvcc.TimestampAt(start.Millis() + 60_000)),
		Writes: []*pb.CellWrite{{Kind: pb.Kind_KIND_PUT, Cell: cell}},
	}}})
	return func() {
		send(&pb.TabletRequest{Op: &pb.TabletRequest_Rollback{Rollback: &pb.RollbackRequest{
			StartTs: uint64(start), Cells: []*pb.Cell{cell},
		}}})
	}
}

// givingUp is a commit that is abandoned.
type givingUp struct {
	ways   []string
	locked bool                        // the primary, until the first copy arrives
	fault  func(n int32) txntest.Fault // of the n-th deciding message
	ends   bool                        // the caller's context, with the first of them
	want   error
}

// TestGivenUp: a commit abandoned after an answer has not committed, and no copy of its deciding
// message commits it later. If a copy was faster, it has committed completely, and the caller
// learns it.
func TestGivenUp(t *testing.T) {
	answer := func(codes ...pb.Error_Code) func(n int32) txntest.Fault {
		return func(n int32) txntest.Fault {
			return txntest.Fault{Answer: &pb.Error{Code: codes[min(int(n), len(codes))-1]}}
		}
	}
	// The ways that decide without a separate commit, and the one that decides after everything is
	// prewritten.
	oneMessage := []string{"one phase", "two phases", asyncWay}
	all := append([]string{lockAll}, oneMessage...)
	for name, test := range map[string]givingUp{
		"locked": {ways: oneMessage, locked: true, want: txn.ErrLocked,
			fault: func(int32) txntest.Fault { return txntest.Fault{} }},
		"overloaded": {ways: oneMessage, fault: answer(pb.Error_CODE_OVERLOADED),
			want: txn.ErrOverloaded},
		"not leader": {ways: all, fault: answer(pb.Error_CODE_NOT_LEADER), ends: true,
			want: context.Canceled},
		"refused now": {ways: all, want: txn.ErrInvalid,
			fault: answer(pb.Error_CODE_NOT_LEADER, pb.Error_CODE_INVALID)},
		"full now": {ways: oneMessage, want: txn.ErrDiskFull,
			fault: answer(pb.Error_CODE_NOT_PROPOSED, pb.Error_CODE_DISK_FULL)},
	} {
		for _, way := range test.ways {
			for _, early := range []bool{true, false} {
				test.run(newWorldOf(t, way), fmt.Sprintf("%s, %s, copy early: %v", name, way, early),
					ways[way], early)
			}
		}
	}
}

// run commits "v" to the rows. A second copy of the first deciding message arrives early, before
// the rollback at the primary, or after the commit has ended.
func (test *givingUp) run(w *world, what string, rows []string, early bool) {
	c, p := w.client(txn.Config{})
	unlock := func() {}
	if test.locked {
		unlock = w.lockCell("a")
	}
	ctx, cancel := context.WithCancel(w.ctx)
	defer cancel()
	var (
		sent  atomic.Int32
		first *pb.TabletRequest
		once  sync.Once
	)
	arrive := func() { once.Do(func() { unlock(); w.deliver(first) }) }
	p.Inject(func(req *pb.TabletRequest) txntest.Fault {
		switch {
		case decides(req):
			n := sent.Add(1)
			if n == 1 {
				first = req
			}
			if test.ends {
				cancel()
			}
			return test.fault(n)
		case early && req.GetRollback() != nil:
			arrive()
		}
		return txntest.Fault{}
	})
	tx := w.begin(c)
	for _, row := range rows {
		tx.Set(key(row), []byte("v"))
	}
	ts, err := tx.Commit(ctx)
	switch {
	case early && (err != nil || ts <= tx.StartTS()):
		w.t.Errorf("%s: committed at %d, %v, want a timestamp above the start", what, ts, err)
	case !early && (!errors.Is(err, test.want) || errors.Is(err, txn.ErrCommitUnknown)):
		w.t.Errorf("%s: %v, want %v", what, err, test.want)
	}
	arrive()
	c.Flush()
	p.Inject(nil)
	if written := w.allOrNothing(what, "v", rows); written != early {
		w.t.Errorf("GIVEN-UP: %s: the commit ended with %v, and the rows are written: %v",
			what, err, written)
	}
}

// TestRefusedAtOnce: a permanent refusal costs no further message.
func TestRefusedAtOnce(t *testing.T) {
	for name, test := range map[string]struct {
		fault txntest.Fault
		want  error
	}{
		"conflict":  {txntest.Fault{}, txn.ErrConflict},
		"invalid":   {txntest.Fault{Answer: &pb.Error{Code: pb.Error_CODE_INVALID}}, txn.ErrInvalid},
		"disk full": {txntest.Fault{Answer: &pb.Error{Code: pb.Error_CODE_DISK_FULL}}, txn.ErrDiskFull},
	} {
		w := newWorld(t)
		c, p := w.client(txn.Config{})
		tx := w.begin(c)
		tx.Set(key("a"), []byte("v"))
		w.set(c, "other", "a")
		p.Inject(func(*pb.TabletRequest) txntest.Fault { return test.fault })
		sent := p.Sent()
		if _, err := tx.Commit(w.ctx); !errors.Is(err, test.want) || p.Sent() != sent+1 {
			t.Errorf("%s: %v after %d messages", name, err, p.Sent()-sent)
		}
	}
}

// TestGivenUpUnfenced: if the primary's tablet stops answering, it is unknown whether an abandoned
// commit has committed, and the error says only that.
func TestGivenUpUnfenced(t *testing.T) {
	for way, rows := range ways {
		w := newWorldOf(t, way)
		c, p := w.client(txn.Config{SettleTimeout: 20 * time.Millisecond})
		ctx, cancel := context.WithCancel(w.ctx)
		p.Inject(func(req *pb.TabletRequest) txntest.Fault {
			if req.GetRollback() != nil {
				return txntest.Fault{NotSent: true}
			}
			if !decides(req) {
				return txntest.Fault{}
			}
			return txntest.Fault{Answer: &pb.Error{Code: pb.Error_CODE_NOT_LEADER},
				Before: func(context.Context) { cancel() }}
		})
		tx := w.begin(c)
		for _, row := range rows {
			tx.Set(key(row), []byte("v"))
		}
		_, err := tx.Commit(ctx)
		if !errors.Is(err, txn.ErrCommitUnknown) || errors.Is(err, txn.ErrConflict) {
			t.Errorf("%s: %v, want ErrCommitUnknown and not ErrConflict", way, err)
		}
		cancel()
	}
}

// TestContradictedDecision: a lock is not resolved if its tablet's answer contradicts the decision.
func TestContradictedDecision(t *testing.T) {
	w := newWorld(t)
	w.abandonLocks(nil, threeRows...)
	c, a := w.answering(txn.Config{})
	a.answer = func(req *pb.TabletRequest) *pb.TabletResponse {
		if req.GetResolveLock() == nil {
			return nil
		}
		return &pb.TabletResponse{Result: &pb.TabletResponse_Mutation{
			Mutation: &pb.MutationResult{Status: pb.Status_STATUS_COMMIT_TS_TOO_LOW}}}
	}
	var l mvcc.LockInfo
	w.Look(func(v *mvcctest.MemView) {
		lock, _ := v.Lock(w.cell("z"))
		l = mvcc.LockInfo{Cell: w.cell("z"), Lock: lock}
	})
	if resolved, err := c.ResolveLock(w.ctx, l); resolved || err == nil {
		t.Errorf("resolved: %v, %v", resolved, err)
	}
}

// TestSlowPrewrite: a transaction whose prewrites take longer than its locks live succeeds in its
// first run, whatever transactions read its locked cells: its primary, the one cell in another
// tablet, is locked in time and kept alive.
func TestSlowPrewrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		cfg := txn.Config{LockTTL: 2 * time.Second}
		cfg.Limits = mvcc.DefaultLimits()
		cfg.Limits.Batch = 32 << 10
		c, p := w.client(cfg)
		reader, _ := w.client(txn.Config{})
		p.Inject(func(req *pb.TabletRequest) txntest.Fault {
			if pre := req.GetPrewrite(); pre == nil || string(pre.Writes[0].Cell.Row) == "a" {
				return txntest.Fault{}
			}
			return txntest.Fault{Before: func(ctx context.Context) {
				_ = txn.Sleep(ctx, 900*time.Millisecond)
			}}
		})
		rows := []string{"a"}
		for i := range 100 {
			rows = append(rows, fmt.Sprintf("z%03d", i))
		}
		value := make([]byte, 20<<10) // each row is sent in a separate message
		ctx, cancel := context.WithCancel(w.ctx)
		var reading sync.WaitGroup
		reading.Go(func() {
			for txn.Sleep(ctx, 100*time.Millisecond) == nil {
				if s, err := reader.Snapshot(ctx); err == nil {
					_, _, _ = s.Get(ctx, key("z000"))
					_ = s.Close()
				}
			}
		})
		runs := 0
		_, err := c.Run(w.ctx, txn.Options{}, func(_ context.Context, tx *txn.Txn) error {
			if runs++; runs > 2 {
				return errors.New("run again and again")
			}
			for _, row := range rows {
				tx.Set(key(row), value)
			}
			return nil
		})
		if err != nil || runs != 1 {
			t.Errorf("PRIMARY-UNLOCKED: %d runs, %v", runs, err)
		}
		cancel()
		reading.Wait()
		c.Flush()
		p.Inject(nil)
		if !w.allOrNothing("slow", string(value), rows) {
			t.Error("not written")
		}
	})
}
