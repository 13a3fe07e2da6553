package replicas

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/percolator-go/percolator/internal/leaktest"
	"github.com/percolator-go/percolator/store"
)

// A node whose disk is nearly full refuses snapshots and says why.
func TestSnapshotWithoutSpace(t *testing.T) {
	dir := t.TempDir()
	st, err := store.Open(store.Options{Dir: dir, MinFreeBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	free, err := st.FreeBytes()
	if err := errors.Join(err, st.Close()); err != nil {
		t.Fatal(err)
	}
	// half of the watermark, twice the reserve
	r := newReplicaRigOn(t, store.Options{Dir: dir, MinFreeBytes: 2 * free})
	d := of(3, 4, "m", "z", 7)
	r.Deliver(message(d, 7))
	r.settle()
	a := r.send(snapshotOf(t, d, 7, 40, rowsBetween(0, 10), 3)[0])
	if !strings.Contains(a.Refused, "store: free disk space is below the watermark") || r.Stats().Refused != 1 ||
		r.Stats().Installed != 0 {
		t.Fatalf("answered %v, want ErrDiskFull; %+v, want 1 refused, 0 installed", a, r.Stats())
	}
	r.settle()
	snap := r.store.Snap()
	defer snap.Close()
	if ids, err := snap.StagedTablets(); len(ids) > 0 || err != nil {
		t.Errorf("staged entries of %v are left: %v", ids, err)
	}
}

// A replica that could not be opened after its installation is opened later, without a restart.
func TestClosedReplicaOpens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leaktest.Settle(t)
		r := newReplicaRig(t)
		d := of(3, 4, "m", "z", 7)
		r.Deliver(message(d, 7))
		r.settle()
		r.owner.mu.Lock()
		r.owner.fault = store.ErrDiskFull
		r.owner.mu.Unlock()
		if a := r.send(snapshotOf(t, d, 7, 40, rowsBetween(0, 10), 30)[0]); a.Refused == "" {
			t.Fatal(a)
		}
		r.settle()
		runs := func() bool {
			r.owner.mu.Lock()
			defer r.owner.mu.Unlock()
			return r.owner.runs[3]
		}
		if runs() {
			t.Fatal("it runs already")
		}
		<-time.After(2 * inspectInterval)
		synctest.Wait()
		if !runs() || r.rows() != 10 {
			t.Fatalf("it runs: %v, with %d rows", runs(), r.rows())
		}
	})
}
