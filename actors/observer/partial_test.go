package observer_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/notifytest"
	"github.com/percolator-go/percolator/internal/txn/txntest"
)

var errUgly = errors.New("too ugly")

// partial is a batched observer. It writes a trace of each change that it does not name as failed,
// and its first call also writes the row "first".
type partial struct {
	// fn returns the result of the call-th call for several changes, counted from 0.
	fn func(changes []percolator.Notification, call int) error
	// each, unless nil, returns the error of one change.
	each    func(n percolator.Notification) error
	weak    bool
	node    *notifytest.Node
	cluster *notifytest.Cluster
	began   chan struct{}
	opened  chan struct{}

	mu    sync.Mutex
	calls []int // number of changes of each call, except those of the row "gate"
}

func (p *partial) start(t *testing.T, opts ...percolator.ObserverOption) {
	p.began, p.opened = make(chan struct{}, 1), make(chan struct{})
	p.cluster = notifytest.NewCluster()
	p.node = notifytest.Start(t, notifytest.NodeConfig{
		Cluster: p.cluster, Observer: quick,
		Register: func(r *percolator.Registry) {
			register := r.StrongBatch
			if p.weak {
				register = r.WeakBatch
			}
			register("partial", raw, p.observe, append(opts, percolator.Concurrency(1))...)
		},
	})
}

func (p *partial) observe(_ context.Context, tx *percolator.Tx,
	changes []percolator.Notification) error {
	if changes[0].Row == "gate" {
		p.began <- struct{}{}
		<-p.opened
		return nil
	}
	p.mu.Lock()
	call := len(p.calls)
	p.calls = append(p.calls, len(changes))
	p.mu.Unlock()
	var err error
	if p.fn != nil {
		err = p.fn(changes, call)
	}
	var named *percolator.PartialError
	errors.As(err, &named)
	for _, n := range changes {
		if p.each != nil {
			if bad := p.each(n); bad != nil {
				if named == nil {
					named = &percolator.PartialError{Failed: map[string]error{}}
					err = named
				}
				named.Failed[n.Row] = bad
			}
		}
		if named == nil || named.Failed[n.Row] == nil {
			tx.Set(fmt.Sprintf("%s/%d", n.Row, tx.StartTS()), out, []byte("x"))
		}
	}
	if call == 0 {
		tx.Set("first", other, []byte("x"))
	}
	return err
}

// change marks the rows in one transaction, so that they form one batch, and returns after the
// commit.
func (p *partial) change(t *testing.T, rows []string) (at percolator.Timestamp) {
	t.Helper()
	mark := func(rows []string, opts ...percolator.TxOption) {
		err := p.node.DB.Transact(bounded(t, time.Minute),
			func(_ context.Context, tx *percolator.Tx) error {
				for _, row := range rows {
					if p.weak {
						tx.Notify(row, raw)
					} else {
						tx.Set(row, raw, []byte("x"))
					}
				}
				return nil
			}, opts...)
		if err != nil {
			t.Fatal(err)
		}
	}
	mark([]string{"gate"})
	<-p.began
	mark(rows, percolator.CommittedAt(&at))
	notifytest.Eventually(t, time.Minute, "all wait", func() bool {
		return int(p.node.Stats("partial").Queued) == len(rows)
	})
	close(p.opened)
	return at
}

// traces waits until no work is left and returns how often each row committed.
func (p *partial) traces(t *testing.T) map[string]int {
	t.Helper()
	p.node.WaitIdle(t)
	ctx := bounded(t, time.Minute)
	s, err := p.node.DB.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	found := map[string]int{}
	for c, err := range s.Scan(ctx, percolator.Rows(table), out, other) {
		if err != nil {
			t.Fatal(err)
		}
		row, _, _ := strings.Cut(c.Row, "/") // or "first"
		found[row]++
	}
	return found
}

func rows(n int) (rows []string) {
	for i := range n {
		rows = append(rows, fmt.Sprintf("row%03d", i))
	}
	return rows
}

// TestPartialFailure: in a batch whose function names failed changes, the others commit at once,
// each once; the named ones are retried, counted or not by their errors, and the one that always
// fails is parked. None is lost.
func TestPartialFailure(t *testing.T) {
	for _, weak := range []bool{false, true} {
		t.Run(fmt.Sprintf("weak=%t", weak), func(t *testing.T) {
			tries := map[string]int{}
			p := &partial{weak: weak, each: func(n percolator.Notification) error {
				try := tries[n.Row] // one run at a time
				tries[n.Row]++
				switch i := n.Row[len(n.Row)-1]; {
				case n.Row == "row007":
					return errUgly
				case i == '3' && n.Attempt != try:
					t.Errorf("run %d of %s has attempt %d", try, n.Row, n.Attempt)
				case i == '3' && try < 2:
					return errors.New("not yet")
				case i == '5' && n.Attempt != 0:
					t.Errorf("UNAVAILABLE-COUNTED: run %d of %s has attempt %d", try, n.Row, n.Attempt)
				case i == '5' && try < 3:
					return fmt.Errorf("later: %w", percolator.ErrUnavailable)
				}
				return nil
			}}
			p.start(t, percolator.Batch(64), percolator.MaxAttempts(4))
			p.change(t, rows(60))
			found := p.traces(t)
			for _, row := range rows(60) {
				want := 1
				if row == "row007" {
					want = 0
				}
				if found[row] != want {
					t.Errorf("PARTIAL: %s was committed %d times, want %d", row, found[row], want)
				}
			}
			if !parkedWith(p.cluster, p.node.Cell(table, "row007", raw.Name), "too ugly", 4)() {
				t.Error("PARTIAL: row007 is not parked with its error")
			}
			if s := p.node.Stats("partial"); p.calls[0] != 60 || s.Divided != 0 || s.Commits != 60 ||
				s.Failures != 2*6+4 || s.Unavailable != 3*6 || s.Parked != 1 {
				t.Errorf("calls for %d; %+v", p.calls, s)
			}
		})
	}
}

// TestPartialErrors: an error that names no change of its batch applies to all; if it names all,
// nothing commits.
func TestPartialErrors(t *testing.T) {
	first := func(bad func(changes []percolator.Notification) error) func(
		[]percolator.Notification, int) error {
		return func(changes []percolator.Notification, call int) error {
			if call > 0 {
				return nil
			}
			return bad(changes)
		}
	}
	one := func(row string) *percolator.PartialError {
		return &percolator.PartialError{Failed: map[string]error{row: errUgly}}
	}
	for name, c := range map[string]struct {
		bad      func(changes []percolator.Notification) error
		divided  bool
		failures uint64
		calls    int // minimum
	}{
		"none": {func([]percolator.Notification) error { return &percolator.PartialError{} },
			false, 0, 1},
		"nil": {func([]percolator.Notification) error { return (*percolator.PartialError)(nil) },
			false, 0, 1},
		"nil of one": {func([]percolator.Notification) error {
			return &percolator.PartialError{Failed: map[string]error{"row000": nil}}
		}, false, 0, 1},
		"another": {func([]percolator.Notification) error { return one("stranger") }, true, 0, 3},
		"wrapped": {func([]percolator.Notification) error {
			return fmt.Errorf("wrapped: %w", one("row000"))
		}, true, 0, 3},
		"all": {func(changes []percolator.Notification) error {
			failed := map[string]error{}
			for _, n := range changes {
				failed[n.Row] = errUgly
			}
			return &percolator.PartialError{Failed: failed}
		}, false, 8, 9},
	} {
		t.Run(name, func(t *testing.T) {
			p := &partial{fn: first(c.bad)}
			p.start(t)
			p.change(t, rows(8))
			found := p.traces(t)
			for _, row := range rows(8) {
				if found[row] != 1 {
					t.Errorf("PARTIAL: %s was committed %d times", row, found[row])
				}
			}
			if _, kept := found["first"]; kept != (c.calls == 1) {
				t.Errorf("PARTIAL: what the first call has written is there: %t", kept)
			}
			s := p.node.Stats("partial")
			if (s.Divided > 0) != c.divided || s.Failures != c.failures || len(p.calls) < c.calls {
				t.Errorf("calls for %d; %+v", p.calls, s)
			}
		})
	}
}

// TestPartialErrorOfOne: a single change of a batch can be named like any other; naming an unknown
// row fails it.
func TestPartialErrorOfOne(t *testing.T) {
	p := &partial{fn: func(changes []percolator.Notification, _ int) error {
		row := changes[0].Row
		if row == "row001" {
			row = "stranger"
		}
		return &percolator.PartialError{Failed: map[string]error{row: errUgly}}
	}}
	p.start(t, percolator.Batch(1), percolator.MaxAttempts(2))
	p.change(t, rows(2))
	if found := p.traces(t); found["row000"]+found["row001"]+found["first"] != 0 {
		t.Errorf("PARTIAL: committed: %v", found)
	}
	for row, text := range map[string]string{"row000": "too ugly", "row001": "not in the batch"} {
		if !parkedWith(p.cluster, p.node.Cell(table, row, raw.Name), text, 2)() {
			e, _ := p.cluster.Notification(p.node.Cell(table, row, raw.Name))
			t.Errorf("%s is not parked with its error: %+v", row, e)
		}
	}
}

// TestPartialFailureConflicts: if the commit of the remaining changes conflicts, nothing of the run
// counts.
func TestPartialFailureConflicts(t *testing.T) {
	p := &partial{}
	p.fn = func(changes []percolator.Notification, call int) error {
		if call > 0 {
			return nil
		}
		set(t, p.node, "first", other)
		return &percolator.PartialError{Failed: map[string]error{changes[0].Row: errUgly}}
	}
	p.start(t)
	p.change(t, rows(8))
	found := p.traces(t)
	for _, row := range rows(8) {
		if found[row] != 1 {
			t.Errorf("PARTIAL: %s was committed %d times", row, found[row])
		}
	}
	if s := p.node.Stats("partial"); s.Failures != 0 || s.Divided != 1 || s.Commits != 9 {
		t.Errorf("%+v", s)
	}
}

// TestWaitForNamed: WaitFor waits for a change that the function has named as failed.
func TestWaitForNamed(t *testing.T) {
	again, come := make(chan struct{}, 1), make(chan struct{})
	tries := 0
	p := &partial{each: func(n percolator.Notification) error {
		if n.Row != "row003" {
			return nil
		}
		if tries++; tries == 3 {
			again <- struct{}{}
			<-come
		}
		if tries < 4 {
			return fmt.Errorf("later: %w", percolator.ErrUnavailable)
		}
		return nil
	}}
	p.start(t)
	at := p.change(t, rows(8))
	<-again // the other changes have committed, with the run's writes for them
	waited := make(chan error, 1)
	go func() {
		_, err := p.node.DB.WaitFor(bounded(t, 30*time.Second), at)
		waited <- err
	}()
	_, err := p.node.DB.WaitFor(bounded(t, 50*time.Millisecond), at)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("PARTIAL: row003 is not waited for: %v", err)
	}
	select {
	case err := <-waited:
		t.Errorf("PARTIAL: row003 is not waited for: %v", err)
	default:
	}
	close(come)
	if err := <-waited; err != nil {
		t.Error(err)
	}
	if found := p.traces(t); found["row003"] != 1 {
		t.Errorf("PARTIAL: committed: %v", found)
	}
}

// TestWeakClearTellsOfTheRun: the request that clears a weak notification carries the run's origin
// and end, for a batch as for one change: from these the tablet derives what a snapshot does not
// show. Catches BROKEN=end_untold.
func TestWeakClearTellsOfTheRun(t *testing.T) {
	for _, n := range []int{1, 3} {
		p := &partial{weak: true}
		p.start(t)
		var mu sync.Mutex
		var cleared []*pb.ClearNotifyRequest
		p.node.Process.Inject(func(req *pb.TabletRequest) txntest.Fault {
			if r := req.GetClearNotify(); r != nil {
				mu.Lock()
				defer mu.Unlock()
				cleared = append(cleared, r)
			}
			return txntest.Fault{}
		})
		at := p.change(t, rows(n))
		p.traces(t)
		mu.Lock()
		last := cleared[len(cleared)-1]
		mu.Unlock()
		if last.Origin != uint64(at) || last.Ended <= last.UpTo {
			t.Errorf("HIDDEN: a batch of %d for the commit at %d is cleared with %v", n, at, last)
		}
	}
}
