package txn_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/txn/txntest"
)

// fed is one element of a feed.
type fed struct {
	c   txn.Change
	err error
}

// follow iterates over the changes of the table after a timestamp on a goroutine of its own.
// next returns the next element, or false if there is none within the wait.
func (w *world) follow(c *txn.Client, after mvcc.Timestamp,
	columns ...string) (next func(wait time.Duration) (fed, bool)) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.ctx)
	elements, done := make(chan fed), make(chan struct{})
	go func() {
		defer close(done)
		spec := txn.ChangeSpec{Ranges: []txn.ScanSpec{{Table: "t", Columns: columns}}, After: after}
		for change, err := range c.Changes(ctx, spec) {
			select {
			case elements <- fed{change, err}:
			case <-ctx.Done():
				return
			}
		}
	}()
	w.t.Cleanup(func() {
		cancel()
		<-done
	})
	return func(wait time.Duration) (fed, bool) {
		select {
		case e := <-elements:
			return e, true
		case <-time.After(wait):
			return fed{}, false
		}
	}
}

// until returns the changes up to a resolved timestamp that is not below at, as lines.
func (w *world) until(next func(time.Duration) (fed, bool), at mvcc.Timestamp) (lines []string) {
	w.t.Helper()
	for {
		e, ok := next(10 * time.Second)
		if !ok || e.err != nil {
			w.t.Fatalf("no resolved timestamp %d after %q: %v", at, lines, e.err)
		}
		if e.c.Resolved >= at {
			return lines
		}
		if e.c.Resolved == 0 {
			lines = append(lines, changeLine(e.c))
		}
	}
}

func changeLine(c txn.Change) string {
	value := string(c.Value[:min(4, len(c.Value))])
	if c.Deleted {
		value = "deleted"
	}
	if c.Initial {
		value += " at first"
	}
	return fmt.Sprintf("%s %s", c.Cell.Row, value)
}

// TestChanges: the state at the beginning, then changes of all tablets, deletes among them, each
// once; and from a timestamp on only those after it.
func TestChanges(t *testing.T) {
	w := newWorld(t)
	c, _ := w.client(txn.Config{})
	w.set(c, "old", "a", "h")
	first := w.set(c, "new", "a")
	next := w.follow(c, 0)
	if got := w.until(next, first); strings.Join(got, ", ") != "a new at first, h old at first" {
		t.Fatalf("at first %q", got)
	}
	w.set(c, "two", "a", "q")
	second := w.set(c, "three", "a")
	got := strings.Join(w.until(next, second), ", ")
	if strings.ReplaceAll(got, "q two", "") == got || !strings.Contains(strings.ReplaceAll(got, ", q two", ""), "a two, a thre") {
		t.Fatalf("then %q", got)
	}
	if got := w.until(w.follow(c, first), second); len(got) != 3 {
		t.Fatalf("after %d %q", first, got)
	}
	if got := w.until(w.follow(c, second), w.set(c, "four", "z")); strings.Join(got, ", ") != "z four" {
		t.Fatalf("after %d %q", second, got)
	}
	if got := w.until(w.follow(c, first, "other"), second); len(got) != 0 {
		t.Fatalf("of a column without changes: %q", got)
	}
}

// TestChangesRefused: what cannot be followed ends with an error that says so.
func TestChangesRefused(t *testing.T) {
	w := newWorld(t)
	c, p := w.client(txn.Config{OperationTimeout: time.Second})
	ts := w.set(c, "v", "a")
	for what, refused := range map[string]struct {
		spec txn.ChangeSpec
		err  error
	}{
		"nothing":    {txn.ChangeSpec{}, txn.ErrInvalid},
		"no table":   {txn.ChangeSpec{Ranges: []txn.ScanSpec{{Table: "none"}}}, txn.ErrNoTable},
		"in reverse": {txn.ChangeSpec{Ranges: []txn.ScanSpec{{Table: "t", Reverse: true}}}, txn.ErrInvalid},
		"no rows":    {txn.ChangeSpec{Ranges: []txn.ScanSpec{{Table: "t", From: "b", Before: "a", HasBefore: true}}, After: ts}, txn.ErrInvalid},
		"the future": {txn.ChangeSpec{Ranges: []txn.ScanSpec{{Table: "t"}}, After: ts << 1}, txn.ErrInvalid},
	} {
		for _, err := range c.Changes(w.ctx, refused.spec) {
			if !errors.Is(err, refused.err) {
				t.Errorf("%s: %v, want %v", what, err, refused.err)
			}
		}
	}
	next := w.follow(c, ts)
	w.until(next, ts+1)
	w.SetBound(w.Timestamps(1))
	p.Inject(func(req *pb.TabletRequest) txntest.Fault { // as if it lagged behind
		if r := req.GetChanges(); r != nil {
			r.Since = uint64(ts)
		}
		return txntest.Fault{}
	})
	for {
		e, ok := next(10 * time.Second)
		if !ok {
			t.Fatal("a reader below the bound goes on")
		}
		if e.err != nil {
			if !errors.Is(e.err, txn.ErrSnapshotTooOld) {
				t.Fatal(e.err)
			}
			return
		}
	}
}

// TestResolvedIsTheLeast: the resolved timestamp of a feed is that of the tablet that lags
// behind most, here because of a lock.
func TestResolvedIsTheLeast(t *testing.T) {
	w := newWorld(t)
	c, _ := w.client(txn.Config{})
	from := w.Timestamps(1)
	unlock := w.lockCell("z")
	locked := w.Timestamps(1) // the transaction began before
	next := w.follow(c, from)
	at := w.set(c, "v", "a")
	for seen := false; ; {
		e, ok := next(300 * time.Millisecond)
		if e.err != nil {
			t.Fatal(e.err)
		}
		if e.c.Resolved >= locked {
			t.Fatalf("RESOLVED-EARLY: %d, with a lock from before %d", e.c.Resolved, locked)
		}
		if seen = seen || e.c.Cell.Row == "a"; !ok && seen {
			break
		}
	}
	unlock()
	w.until(next, at)
}

// TestSplitFeed: a tablet splits between two requests. What was written before the split into
// what is now the right tablet is yielded.
func TestSplitFeed(t *testing.T) {
	w := newWorld(t)
	c, p := w.client(txn.Config{})
	writer, _ := w.client(txn.Config{})
	next := w.follow(c, 0)
	w.until(next, 1)
	split := make(chan mvcc.Timestamp, 1)
	var once bool
	p.Inject(func(req *pb.TabletRequest) txntest.Fault {
		if r := req.GetChanges(); r == nil || string(r.Span.Start) != "p" || once {
			return txntest.Fault{}
		}
		once = true
		return txntest.Fault{Before: func(context.Context) {
			at := w.set(writer, "v", "x")
			w.Split(w.table, "t")
			split <- at
		}}
	})
	if got := w.until(next, <-split); len(got) != 1 || got[0] != "x v" {
		t.Fatalf("CHANGE-LOST: the split's feed has %q", got)
	}
}

// TestPositionFollowsDelivery: a resolved timestamp comes after all changes up to it.
func TestPositionFollowsDelivery(t *testing.T) {
	w := newWorld(t)
	c, _ := w.client(txn.Config{})
	from := w.Timestamps(1)
	last := mvcc.Timestamp(0)
	for i := range 20 {
		last = w.set(c, "v", fmt.Sprintf("a%d", i), fmt.Sprintf("h%d", i))
	}
	c.Flush()
	if got := w.until(w.follow(c, from), last); len(got) != 40 {
		t.Fatalf("POSITION-FIRST: %d of 40 changes are yielded when %d is resolved", len(got), last)
	}
}

// TestDeadLockOfAFeed: a lock whose client is dead holds up a feed until the lock has expired.
func TestDeadLockOfAFeed(t *testing.T) {
	w := newWorld(t)
	c, _ := w.client(txn.Config{})
	from := w.Timestamps(1)
	w.lockCell("z")
	next := w.follow(c, from)
	if _, ok := next(300 * time.Millisecond); ok {
		for ok {
			_, ok = next(300 * time.Millisecond)
		}
	}
	w.Advance(2 * time.Minute)
	w.until(next, w.Timestamps(1))
}

// TestLongRowOfAFeed: a row with more changes than are sorted at once is caught up in the order
// of their commits.
func TestLongRowOfAFeed(t *testing.T) {
	w := newWorld(t)
	c, _ := w.client(txn.Config{})
	from := w.Timestamps(1)
	const versions = 24
	last := mvcc.Timestamp(0)
	for i := range versions {
		last = w.set(c, fmt.Sprintf("%04d", i)+strings.Repeat("x", 300<<10), "a")
	}
	w.RecordFrom(w.Timestamps(1)) // so that there is a scan
	got := w.until(w.follow(c, from), last)
	if len(got) != versions {
		t.Fatalf("%d changes: %q", len(got), got)
	}
	for i, line := range got {
		if want := fmt.Sprintf("a %04d", i); line != want {
			t.Fatalf("change %d is %q, want %q", i, line, want)
		}
	}
}
