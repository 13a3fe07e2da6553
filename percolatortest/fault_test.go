package percolatortest_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	pt "github.com/percolator-go/percolator/percolatortest"
)

// TestFaultsLeaveResultsRight: under each fault the strong observer counts every order once,
// the report is correct in the end, and the fault occurs.
func TestFaultsLeaveResultsRight(t *testing.T) {
	const count = 10
	for name, faults := range map[string][]pt.Fault{
		"conflicts": {
			{Kind: pt.CommitConflicts, Observer: "tally", Times: 5},
			{Kind: pt.CommitConflicts, Observer: "report", Times: 5},
		},
		"everybody's": {{Kind: pt.CommitConflicts, Observer: pt.Everybody, Times: 5}},
		"lost replies": {
			{Kind: pt.CommitReplyLost, Observer: "tally", Times: 5},
			{Kind: pt.CommitReplyLost, Observer: "report", Times: 1},
		},
		"unknown outcomes": {
			{Kind: pt.CommitUnknown, Observer: "tally", Times: 5},
			{Kind: pt.CommitUnknown, Observer: "report", Times: 1},
		},
		"lost commits": {
			{Kind: pt.CommitLost, Observer: "tally", Times: 5},
			{Kind: pt.CommitLost, Observer: "report", Times: 1},
		},
		"deaths": {
			{Kind: pt.ClearLost, Observer: "tally", Times: 5},
			{Kind: pt.ClearLost, Observer: "report", Times: 1},
		},
		"failures": {
			{Kind: pt.RunFails, Observer: "tally", Times: 2},
			{Kind: pt.RunPanics, Observer: "report", Times: 2},
		},
		"no tablet":    {{Kind: pt.TabletUnavailable, Times: 20}},
		"slow tablets": {{Kind: pt.TabletSlow, Delay: time.Millisecond}},
		"no oracle":    {{Kind: pt.OracleUnavailable, Times: 20}},
		"slow oracle":  {{Kind: pt.OracleSlow, Delay: time.Millisecond}},
		"everything at once": {
			{Kind: pt.CommitConflicts, Observer: pt.Everybody, Times: 5},
			{Kind: pt.CommitUnknown, Observer: "tally", Times: 3},
			{Kind: pt.ClearLost, Observer: "report", Times: 1},
			{Kind: pt.TabletUnavailable, Times: 9},
		},
	} {
		for kind, register := range map[string]func(*percolator.Registry){
			"singly": shop, "in batches": batches,
		} {
			t.Run(name+" "+kind, func(t *testing.T) {
				t.Parallel()
				n := pt.Start(t, register, pt.DuplicateHints())
				var on []*pt.Injection
				for _, f := range faults {
					on = append(on, n.Inject(t, f))
				}
				orders(t, n, "ann", count)
				n.RunUntilIdle(t)
				want(t, n, "ann", tally, strconv.Itoa(count))
				want(t, n, "ann", report, strconv.Itoa(count))
				for _, i := range on {
					if i.Count() == 0 {
						t.Error("a fault did not occur")
					}
				}
			})
		}
	}
}

// TestConflicts: Times runs conflict, and conflicts do not count as failures.
func TestConflicts(t *testing.T) {
	n := pt.Start(t, shop)
	n.Inject(t, pt.Fault{Kind: pt.CommitConflicts, Observer: "tally", Times: 4})
	n.Set(t, "ann/1", item, "apple")
	n.RunUntilIdle(t)
	if s := n.Stats(t, "tally"); s.Conflicts != 4 || s.Commits != 1 || s.Failures != 0 {
		t.Errorf("%+v", s)
	}
}

// TestClearLost: a weak observer runs again for a notification that was not cleared, a strong
// one does not.
func TestClearLost(t *testing.T) {
	n := pt.Start(t, shop)
	n.Inject(t, pt.Fault{Kind: pt.ClearLost, Observer: "tally", Times: 1})
	n.Inject(t, pt.Fault{Kind: pt.ClearLost, Observer: "report", Times: 2})
	n.Set(t, "ann/1", item, "apple")
	n.RunUntilIdle(t)
	want(t, n, "ann", tally, "1")
	want(t, n, "ann", ran, "3")
	if s := n.Stats(t, "tally"); s.Runs != 1 || s.Skipped == 0 {
		t.Errorf("%+v", s)
	}
}

// TestUnknownOutcomes: Transact returns ErrCommitUnknown without a retry, whether or not the
// transaction is committed.
func TestUnknownOutcomes(t *testing.T) {
	a, b := percolator.Column{Table: "left", Name: "x"},
		percolator.Column{Table: "right", Name: "x"}
	for kind, committed := range map[pt.Kind]bool{pt.CommitUnknown: true, pt.CommitLost: false} {
		for _, phases := range []int{1, 2} {
			t.Run(kind.String()+strconv.Itoa(phases), func(t *testing.T) {
				n := pt.Start(t, nil, pt.Tables(percolator.TableSpec{Name: "left"},
					percolator.TableSpec{Name: "right"}))
				// Caches the tablet map of the new tables: a request to a wrong tablet would run
				// the function again, and the test counts its runs.
				n.Set(t, "other", a, "1")
				n.Set(t, "other", b, "1")
				n.Inject(t, pt.Fault{Kind: kind, Times: 1})
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				runs := 0
				err := n.DB().Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
					runs++
					tx.Set("r", a, []byte("1"))
					if phases == 2 {
						tx.Set("r", b, []byte("1"))
					}
					return nil
				})
				if !errors.Is(err, percolator.ErrCommitUnknown) || runs != 1 {
					t.Errorf("after %d runs: %v", runs, err)
				}
				if _, ok := n.Get(t, "r", a); ok != committed {
					t.Errorf("committed: %t, want %t", ok, committed)
				}
				if _, ok := n.Get(t, "r", b); ok != (committed && phases == 2) {
					t.Errorf("the transaction is committed in part")
				}
			})
		}
	}
}

// TestParkAndReplay: a notification is parked with the error after MaxAttempts failed runs,
// and a replay runs it again.
func TestParkAndReplay(t *testing.T) {
	n := pt.Start(t, shop)
	broken := n.Inject(t, pt.Fault{
		Kind: pt.RunFails, Observer: "tally", Err: errors.New("no apples"),
	})
	orders(t, n, "ann", 3)
	n.RunUntilIdle(t)
	parked := n.Parked(t, "tally")
	if len(parked) != 3 || parked[0].Row != "ann/0" || parked[0].Attempts != 3 ||
		!strings.Contains(parked[0].Error, "no apples") {
		t.Fatalf("%+v", parked)
	}
	// A scanner that read the entry just before it was parked may run it once more.
	if _, ok := n.Get(t, "ann", tally); ok || broken.Count() < 9 {
		t.Errorf("failed runs committed, or %d of them", broken.Count())
	}
	broken.Stop()
	if got := n.Replay(t, "tally"); got != 3 {
		t.Errorf("%d replayed", got)
	}
	n.RunUntilIdle(t)
	want(t, n, "ann", tally, "3")
	if left := n.Parked(t, "tally"); len(left) > 0 {
		t.Errorf("%+v", left)
	}
}

// TestPanics: a panic is recorded as the notification's error.
func TestPanics(t *testing.T) {
	n := pt.Start(t, shop)
	n.Inject(t, pt.Fault{Kind: pt.RunPanics, Observer: "tally"})
	n.Set(t, "ann/1", item, "apple")
	n.RunUntilIdle(t)
	if parked := n.Parked(t, "tally"); len(parked) != 1 ||
		!strings.Contains(parked[0].Error, "injected panic") {
		t.Errorf("%+v", parked)
	}
}

// TestSlow: TabletSlow and OracleSlow delay requests by Delay. The fault is not limited in Times, since a
// request of the node's own could be the one that it delays.
func TestSlow(t *testing.T) {
	for _, kind := range []pt.Kind{pt.TabletSlow, pt.OracleSlow} {
		n := pt.Start(t, nil)
		n.Set(t, "a", item, "apple")
		i := n.Inject(t, pt.Fault{Kind: kind, Delay: 50 * time.Millisecond})
		began := time.Now()
		n.Set(t, "a", item, "pear")
		if took := time.Since(began); took < 50*time.Millisecond || i.Count() == 0 {
			t.Errorf("%v: %v, %d times", kind, took, i.Count())
		}
	}
}

// TestRestart: after a restart the state is unchanged, waiting notifications run, and
// timestamps continue to increase.
func TestRestart(t *testing.T) {
	n := pt.Start(t, shop)
	orders(t, n, "ann", 3)
	n.RunUntilIdle(t)
	stop := n.Inject(t, pt.Fault{Kind: pt.CommitConflicts, Observer: "tally"})
	n.Set(t, "ann/3", item, "apple")
	n.Restart(t)
	want(t, n, "ann", tally, "3")
	stop.Stop()
	n.RunUntilIdle(t)
	want(t, n, "ann", tally, "4")
	if left := n.Notifications(t, "tally"); len(left) > 0 {
		t.Errorf("%+v", left)
	}
}

// TestCrash: the node crashes repeatedly during runs and commits, and every order is counted
// once.
func TestCrash(t *testing.T) { testCrash(t, shop) }

// TestCrashInBatches is TestCrash with batches of orders.
func TestCrashInBatches(t *testing.T) { testCrash(t, batches) }

func testCrash(t *testing.T, register func(*percolator.Registry)) {
	n := pt.Start(t, register)
	for i := range 5 {
		orders(t, n, "ann"+strconv.Itoa(i), 8)
		n.Crash(t)
	}
	n.RunUntilIdle(t)
	// An order that was running during three crashes is considered their cause and parked.
	for n.Replay(t, "tally")+n.Replay(t, "report") > 0 {
		n.RunUntilIdle(t)
	}
	for i := range 5 {
		want(t, n, "ann"+strconv.Itoa(i), tally, "8")
		want(t, n, "ann"+strconv.Itoa(i), report, "8")
	}
}

// TestCrashLeavesLocks: the locks of a transaction whose commit was lost before a crash are rolled
// back after the restart.
func TestCrashLeavesLocks(t *testing.T) {
	a, b := percolator.Column{Table: "left", Name: "x"},
		percolator.Column{Table: "right", Name: "x"}
	n := pt.Start(t, nil, pt.Tables(percolator.TableSpec{Name: "left"},
		percolator.TableSpec{Name: "right"}))
	n.Inject(t, pt.Fault{Kind: pt.CommitLost, Times: 1})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	err := n.DB().Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
		tx.Set("r", a, []byte("1"))
		tx.Set("r", b, []byte("1"))
		return nil
	})
	if !errors.Is(err, percolator.ErrCommitUnknown) {
		t.Fatal(err)
	}
	n.Crash(t)
	for _, c := range []percolator.Column{a, b} {
		if v, ok := n.Get(t, "r", c); ok {
			t.Errorf("%s is %q", c.Table, v)
		}
	}
}

// TestCrashCancelsRuns: a crash cancels the contexts of active runs immediately.
func TestCrashCancelsRuns(t *testing.T) {
	inside, done := make(chan struct{}, 1), percolator.Column{Table: item.Table, Name: "done"}
	first := true
	n := pt.Start(t, func(r *percolator.Registry) {
		r.Strong("waits", item, func(ctx context.Context, tx *percolator.Tx,
			m percolator.Notification) error {
			if first {
				first = false
				inside <- struct{}{}
				<-ctx.Done()
				return context.Cause(ctx)
			}
			tx.Set(m.Row, done, []byte("done"))
			return nil
		})
	})
	n.Set(t, "r", item, "apple")
	<-inside
	began := time.Now()
	n.Crash(t)
	if took := time.Since(began); took > percolator.DefaultDeadline/2 {
		t.Errorf("a crash took %v", took)
	}
	n.RunUntilIdle(t)
	want(t, n, "r", done, "done")
}
