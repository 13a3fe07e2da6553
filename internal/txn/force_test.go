package txn_test

import (
	"context"
	"errors"
	"testing"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/txn/txntest"
	"github.com/percolator-go/percolator/internal/wire"
)

// TestForceLock: ResolveLock does not affect a live transaction, and ForceLock rolls it back in all
// its tablets; its pending commit is refused. Both roll a committed transaction forward.
func TestForceLock(t *testing.T) {
	w := newWorld(t)
	killer, _ := w.client(txn.Config{})
	victim, transport := w.client(txn.Config{TwoPhaseOnly: true})
	w.set(killer, "old", threeRows...)
	killer.Flush() // or the victim may encounter a lock
	met, atCommit, release := make(chan mvcc.LockInfo, 3), make(chan struct{}), make(chan struct{})
	transport.Inject(func(req *pb.TabletRequest) txntest.Fault {
		if p := req.GetPrewrite(); p != nil {
			met <- mvcc.LockInfo{Cell: wire.Cell(p.Writes[0].Cell), Lock: mvcc.Lock{
				StartTS: mvcc.Timestamp(p.StartTs), Primary: wire.Cell(p.Primary),
				Expiry: mvcc.Timestamp(p.Expiry),
			}}
		}
		if decides(req) {
			return txntest.Fault{Before: func(context.Context) { close(atCommit); <-release }}
		}
		return txntest.Fault{}
	})
	ended := make(chan error, 1)
	go func() {
		tx, err := victim.Begin(w.ctx, txn.Options{})
		if err == nil {
			for _, row := range threeRows {
				tx.Set(key(row), []byte("new"))
			}
			_, err = tx.Commit(w.ctx)
		}
		ended <- err
	}()
	select {
	case <-atCommit:
	case err := <-ended:
		t.Fatalf("the transaction ended before its commit: %v", err)
	}
	transport.Inject(nil)
	locks := []mvcc.LockInfo{<-met, <-met, <-met}
	for _, l := range locks {
		if resolved, err := killer.ResolveLock(w.ctx, l); resolved || err != nil {
			t.Errorf("%s: a live lock was resolved: %v %v", l.Cell.Row, resolved, err)
		}
	}
	for _, l := range locks {
		if resolved, err := killer.ForceLock(w.ctx, l); !resolved || err != nil {
			t.Errorf("%s: not resolved by force: %v", l.Cell.Row, err)
		}
	}
	close(release)
	if err := <-ended; err == nil || errors.Is(err, txn.ErrCommitUnknown) {
		t.Errorf("the commit of a transaction that was rolled back: %v", err)
	}
	for _, row := range threeRows {
		if got := w.get(killer, row); got != "old" {
			t.Errorf("%s is %q, want old", row, got)
		}
	}
}
