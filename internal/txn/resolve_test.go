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

var threeRows = []string{"a", "h", "z"}

// A reader rolls an expired, undecided transaction back.
func TestResolveBack(t *testing.T) {
	for _, way := range []string{"two phases", lockAll} {
		w := newWorldOf(t, way)
		c, _ := w.client(txn.Config{})
		w.set(c, "old", threeRows...)
		w.abandonLocks(nil, threeRows...)
		for _, row := range []string{"z", "h", "a"} { // the primary last
			if got := w.get(c, row); got != "old" {
				t.Errorf("%s is %q, want old", row, got)
			}
		}
		if n := w.Locks(w.table); n != 0 {
			t.Errorf("%d locks left", n)
		}
	}
}

// A reader rolls a transaction forward whose primary is committed.
func TestResolveForward(t *testing.T) {
	for _, way := range []string{"two phases", lockAll} {
		w := newWorldOf(t, way)
		c, _ := w.client(txn.Config{})
		w.set(c, "old", threeRows...)
		var ts mvcc.Timestamp
		w.abandonLocks(&ts, threeRows...)
		if n := w.Locks(w.table); n != 2 {
			t.Fatalf("%d locks stranded", n)
		}
		for _, row := range threeRows {
			if got := w.get(c, row); got != "stranded" {
				t.Errorf("%s is %q, want stranded", row, got)
			}
		}
		before, err := c.SnapshotAt(w.ctx, ts-1)
		if err != nil {
			t.Fatal(err)
		}
		if got := w.read(before, "z"); got != "old" {
			t.Errorf("below the commit: %q", got)
		}
		if s := c.Stats(); s.RolledForward == 0 || s.RolledBackIn != 0 {
			t.Errorf("%+v, want locks rolled forward and none rolled back", s)
		}
	}
}

// A writer removes dead locks too, in one phase and in two.
func TestWriterResolves(t *testing.T) {
	for name, rows := range ways {
		w := newWorldOf(t, name)
		w.abandonLocks(nil, threeRows...)
		c, _ := w.client(txn.Config{})
		if runs, err := w.attempt(c, "v", rows); err != nil || runs > 2 {
			t.Errorf("%s: %d runs, %v", name, runs, err)
		}
		if !w.allOrNothing(name, "v", rows) {
			t.Errorf("%s: not written", name)
		}
	}
}

// hold prewrites the rows and blocks the commit until the returned function is called, which
// returns the commit's error.
func (w *world) hold(cfg txn.Config, rows ...string) (release func() error) {
	w.t.Helper()
	cfg.TwoPhaseOnly = true
	c, p := w.client(cfg)
	held, let := make(chan struct{}), make(chan struct{})
	var once sync.Once
	p.Inject(func(req *pb.TabletRequest) txntest.Fault {
		if req.GetCommit() == nil {
			return txntest.Fault{}
		}
		return txntest.Fault{Before: func(context.Context) {
			once.Do(func() { close(held) })
			<-let
		}}
	})
	done := make(chan error, 1)
	go func() {
		tx := w.begin(c)
		for _, row := range rows {
			tx.Set(key(row), []byte("held"))
		}
		_, err := tx.Commit(w.ctx)
		done <- err
	}()
	<-held
	return func() error { close(let); return <-done }
}

// A reader waits for a live transaction and sees its commit below the snapshot.
func TestReaderWaitsForLive(t *testing.T) {
	w := newWorld(t)
	release := w.hold(txn.Config{}, threeRows...)
	c, _ := w.client(txn.Config{})
	s, err := c.Snapshot(w.ctx)
	if err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(w.ctx, 30*time.Millisecond)
	defer cancel()
	if _, _, err := s.Get(short, key("h")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("did not wait: %v", err)
	}
	read := make(chan string, 1)
	go func() { read <- w.read(s, "h") }()
	if err := release(); err != nil {
		t.Fatal(err)
	}
	// The commit timestamp was requested before the snapshot, so the snapshot must see it.
	if got := <-read; got != "held" {
		t.Errorf("read %q, want held", got)
	}
}

// TestExpiryIsTheOraclesTime: a lock is alive by the oracle's time, also for a machine whose clock
// is an hour ahead. Catches BROKEN=local_expiry.
func TestExpiryIsTheOraclesTime(t *testing.T) {
	w := newWorld(t)
	w.Advance(-time.Hour)
	release := w.hold(txn.Config{LockTTL: 10 * time.Second}, threeRows...)
	c, _ := w.client(txn.Config{})
	s, err := c.Snapshot(w.ctx)
	if err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(w.ctx, 200*time.Millisecond)
	defer cancel()
	if _, _, err := s.Get(short, key("z")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("LOCAL-EXPIRY: a live lock was not waited for: %v", err)
	}
	if err := release(); err != nil {
		t.Errorf("LOCAL-EXPIRY: a live transaction was rolled back: %v", err)
	}
}

// A writer that encounters a live lock fails instead of waiting, and holds nothing afterwards.
func TestWriterGivesUp(t *testing.T) {
	w := newWorld(t)
	release := w.hold(txn.Config{}, threeRows...)
	c, _ := w.client(txn.Config{})
	tx := w.begin(c)
	tx.Set(key("b"), nil)
	tx.Set(key("h"), nil)
	if _, err := tx.Commit(w.ctx); !errors.Is(err, txn.ErrLocked) {
		t.Errorf("the commit ended with %v, want ErrLocked", err)
	}
	c.Flush()
	if n := w.Locks(w.table); n != 3 {
		t.Errorf("%d locks, want the other's 3", n)
	}
	if err := release(); err != nil {
		t.Error(err)
	}
}

// Heartbeats keep a long commit alive while oracle time passes its first expiry, and a waiting
// transaction queries it now and then. In virtual time no heartbeat is late.
func TestHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		release := w.hold(txn.Config{LockTTL: 400 * time.Millisecond}, threeRows...)
		c, p := w.client(txn.Config{})
		s, err := c.Snapshot(w.ctx)
		if err != nil {
			t.Fatal(err)
		}
		short, cancel := context.WithTimeout(w.ctx, 1500*time.Millisecond)
		defer cancel()
		checks := 0 // one caller makes them
		p.Inject(func(req *pb.TabletRequest) txntest.Fault {
			if req.GetCheckTxnStatus() == nil {
				return txntest.Fault{}
			}
			if checks++; checks == 1500 {
				t.Errorf("%d questions within %v", checks, 1500*time.Millisecond)
				cancel() // without a pause between them it would never end
			}
			return txntest.Fault{}
		})
		if _, _, err := s.Get(short, key("z")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("not waited for: %v", err)
		}
		if err := release(); err != nil {
			t.Errorf("a commit with heartbeats: %v", err)
		}
		if got := w.get(c, "z"); got != "held" {
			t.Errorf("z is %q, want held", got)
		}
	})
}

// A positive death event makes locks resolvable before they expire.
func TestDeadWorker(t *testing.T) {
	for _, way := range []string{"two phases", lockAll} {
		w := newWorldOf(t, way)
		worker := w.abandonLocks(nil, threeRows...)
		w.Advance(-time.Minute) // not expired after all
		w.Kill(worker)
		c, _ := w.client(txn.Config{})
		if got := w.get(c, "h"); got != "-" {
			t.Errorf("h is %q, want -", got)
		}
	}
}

// Many readers of one dead transaction share the query of its primary.
func TestSharedResolution(t *testing.T) {
	w := newWorld(t)
	var rows []string
	for i := range 40 {
		rows = append(rows, fmt.Sprintf("%c%d", 'a'+i%26, i))
	}
	w.abandonLocks(nil, rows...)
	c, _ := w.client(txn.Config{})
	var wg sync.WaitGroup
	for _, row := range rows {
		for range 4 {
			wg.Go(func() {
				if got := w.get(c, row); got != "-" {
					t.Errorf("%s is %q, want -", row, got)
				}
			})
		}
	}
	wg.Wait()
	if n := c.Stats().StatusChecks; n > 10 {
		t.Errorf("%d status checks for one transaction", n)
	}
}

// ResolveLock, for scanners, distinguishes live from dead and does not wait.
func TestResolveLockForScanners(t *testing.T) {
	w := newWorld(t)
	release := w.hold(txn.Config{}, threeRows...)
	c, _ := w.client(txn.Config{})
	find := func() (l mvcc.LockInfo) {
		w.Look(func(v *mvcctest.MemView) {
			cell := mvcc.Cell{Table: w.table, Row: "z", Column: "c"}
			if lock, ok := v.Lock(cell); ok {
				l = mvcc.LockInfo{Cell: cell, Lock: lock}
			}
		})
		return l
	}
	l := find()
	if resolved, err := c.ResolveLock(w.ctx, l); resolved || err != nil {
		t.Errorf("live: %v, %v", resolved, err)
	}
	if err := release(); err != nil {
		t.Fatal(err)
	}
	if resolved, err := c.ResolveLock(w.ctx, l); !resolved || err != nil {
		t.Errorf("committed: %v, %v", resolved, err)
	}
	if find().Lock.StartTS != 0 {
		t.Error("the lock is still there")
	}
}

// TestResolveAtAsksOneTablet: whether a cell is locked is queried at its tablet only, and the lock
// is found among others of its row.
func TestResolveAtAsksOneTablet(t *testing.T) {
	w := newWorld(t)
	c, p := w.client(txn.Config{})
	for i := range 20 {
		w.Split(w.table, fmt.Sprintf("s%02d", i))
	}
	var walks atomic.Int32
	p.Inject(func(req *pb.TabletRequest) txntest.Fault {
		if req.GetWalk() != nil {
			walks.Add(1)
		}
		return txntest.Fault{}
	})
	if live, err := c.ResolveAt(w.ctx, w.cell("a"), 7); live || err != nil || walks.Load() != 1 {
		t.Errorf("without a lock: %v, %v, %d walks", live, err, walks.Load())
	}
	start := w.Timestamps(1)
	prewrite := &pb.PrewriteRequest{StartTs: uint64(start), Primary: wire.CellPB(w.cell("q")),
		Expiry: uint64(mvcc.TimestampAt(start.Millis() + 10_000))}
	for i := range 40 {
		prewrite.Writes = append(prewrite.Writes, &pb.CellWrite{Kind: pb.Kind_KIND_PUT,
			Cell: wire.CellPB(mvcc.Cell{Table: w.table, Row: "a", Column: fmt.Sprintf("c%02d", i)})})
	}
	resp, _, err := c.Send(w.ctx, wire.Position{Table: w.table, Row: "a"},
		&pb.TabletRequest{Op: &pb.TabletRequest_Prewrite{Prewrite: prewrite}})
	if err != nil || resp.GetError() != nil {
		t.Fatal(resp, err)
	}
	last := mvcc.Cell{Table: w.table, Row: "a", Column: "c39"}
	if live, err := c.ResolveAt(w.ctx, last, start); !live || err != nil {
		t.Errorf("of a transaction that continues: %v, %v", live, err)
	}
	w.Advance(11 * time.Second)
	live, err := c.ResolveAt(w.ctx, last, start-1)
	if live || err != nil || w.Locks(w.table) != 40 {
		t.Errorf("of another transaction: %v, %v; %d locks are left, want 40", live, err,
			w.Locks(w.table))
	}
	live, err = c.ResolveAt(w.ctx, last, start)
	if live || err != nil || w.Locks(w.table) != 39 {
		t.Errorf("of one that has died: %v, %v; %d locks are left, want 39", live, err, w.Locks(w.table))
	}
}

// TestResolvedTooLateToJoin: a lock of a transaction whose other locks are being resolved is
// reported as resolved only after it has been resolved itself.
func TestResolvedTooLateToJoin(t *testing.T) {
	w := newWorld(t)
	c, p := w.client(txn.Config{})
	w.abandonLocks(nil, threeRows...)
	locks := map[string]mvcc.LockInfo{}
	w.Look(func(v *mvcctest.MemView) {
		for cell, l := range v.Locks(mvcc.Span{Table: w.table}, false) {
			locks[cell.Row] = mvcc.LockInfo{Cell: cell, Lock: l}
		}
	})
	first, late := locks["h"], locks["z"]
	if first.Lock.StartTS == 0 || late.Lock.StartTS == 0 {
		t.Fatalf("locks %v", locks)
	}
	var once sync.Once
	resolved := make(chan bool, 1)
	p.Inject(func(req *pb.TabletRequest) txntest.Fault {
		if req.GetResolveLock() == nil {
			return txntest.Fault{}
		}
		return txntest.Fault{Before: func(ctx context.Context) {
			once.Do(func() {
				joining := make(chan struct{})
				go func() {
					close(joining)
					ok, err := c.ResolveLock(w.ctx, late)
					resolved <- ok && err == nil && w.lockOn("z")
				}()
				<-joining
				soon, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
				defer cancel()
				select {
				case still := <-resolved:
					resolved <- still
				case <-soon.Done(): // it may wait for this one
				}
			})
		}}
	})
	if ok, err := c.ResolveLock(w.ctx, first); !ok || err != nil {
		t.Fatalf("resolved: %v, %v, want true and no error", ok, err)
	}
	if <-resolved {
		t.Error("a lock is reported as resolved, and is there")
	}
}

// lockOn reports whether the row is locked.
func (w *world) lockOn(row string) (locked bool) {
	w.Look(func(v *mvcctest.MemView) { _, locked = v.Lock(w.cell(row)) })
	return locked
}
