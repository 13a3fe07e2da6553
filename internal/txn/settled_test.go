package txn_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/txn/txntest"
)

// changed returns a world in which observers of column "c" have pending runs for rows a, h and z,
// and the timestamp of the commit that changed these.
func changed(t *testing.T) (*world, *txn.Client, mvcc.Timestamp) {
	t.Helper()
	w := newWorld(t)
	w.Observe(w.table, "c", mvcc.ObservedStrong)
	c, _ := w.client(txn.Config{})
	at := w.set(c, "1", threeRows...)
	c.Flush()
	return w, c, at
}

// onQuestions calls do before each query for effects, with the number of earlier ones.
func onQuestions(p *txntest.Process, do func(n int32)) {
	var asked atomic.Int32
	p.Inject(func(req *pb.TabletRequest) txntest.Fault {
		if req.GetPending().GetEffects() == nil {
			return txntest.Fault{}
		}
		n := asked.Add(1)
		return txntest.Fault{Before: func(context.Context) { do(n) }}
	})
}

// TestWaitForWaits: WaitFor returns after the last effect, not before, even if tablets already
// queried are split and runs there trigger others.
func TestWaitForWaits(t *testing.T) {
	w, other, at := changed(t)
	c, p := w.client(txn.Config{})
	onQuestions(p, func(n int32) {
		switch n {
		case 8:
			w.Split(w.table, "d")
			w.Split(w.table, "i")
			w.settle(other, "a")
		case 12: // the run for h changes b, in a tablet that has answered
			tx := w.begin(other)
			tx.SetOrigin(at)
			tx.Set(key("b"), []byte("2"))
			if _, err := tx.Commit(w.ctx); err != nil {
				t.Error(err)
			}
			w.settle(other, "h")
		case 18:
			w.settle(other, "z")
		case 26:
			w.settle(other, "b")
		}
	})
	left, err := c.WaitFor(w.ctx, at)
	if err != nil || len(left) != 0 {
		t.Errorf("%v waits for an observer without a process, %v", left, err)
	}
	if n := w.notifications(); len(n) != 0 {
		t.Errorf("WaitFor has returned, and %v is left to be run", n)
	}
}

// TestWaitForLeavesOthersAlone: WaitFor does not wait for effects of later commits.
func TestWaitForLeavesOthersAlone(t *testing.T) {
	w, c, at := changed(t)
	for _, row := range threeRows {
		w.settle(c, row)
	}
	w.set(c, "2", "a", "z")
	c.Flush() // the secondary is committed in the background
	if left, err := c.WaitFor(w.ctx, at); err != nil || len(left) != 0 {
		t.Errorf("WaitFor returned %v, %v, want nothing and no error", left, err)
	}
	if n := len(w.notifications()); n != 2 {
		t.Errorf("%d notifications of the later commit are left", n)
	}
}

// TestWaitForNobody: notifications of an observer without a process are counted and not waited for,
// unless a process registers it during the wait.
func TestWaitForNobody(t *testing.T) {
	for _, linked := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w, other, at := changed(t)
			w.Announce(w.table, "c")
			c, a := w.answering(txn.Config{})
			var looks atomic.Int32
			a.status = func() (*pb.NodeStatusResponse, error) {
				if looks.Add(1) > 1 && linked {
					return &pb.NodeStatusResponse{Linked: []string{""}}, nil
				}
				return &pb.NodeStatusResponse{}, nil
			}
			onQuestions(a.Process, func(n int32) {
				if n != 200 {
					return
				}
				for _, row := range threeRows {
					w.settle(other, row)
				}
			})
			left, err := c.WaitFor(w.ctx, at)
			if err != nil {
				t.Fatal(err)
			}
			if linked && (len(left) != 0 || len(w.notifications()) != 0) {
				t.Errorf("it is run by now, and %v is reported as waiting for an observer without a process", left)
			}
			if !linked && (len(left) != 1 || left[""].GetNotifications() != 3) {
				t.Errorf("%v waits for an observer without a process, want 3 notifications", left)
			}
		})
	}
}

// TestWaitForLooksAgain: a wait for an observer's runs ends when no process runs it any more.
func TestWaitForLooksAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _, at := changed(t)
		w.Announce(w.table, "c")
		c, a := w.answering(txn.Config{})
		began := time.Now()
		a.status = func() (*pb.NodeStatusResponse, error) {
			if time.Since(began) > 10*time.Second {
				return &pb.NodeStatusResponse{}, nil
			}
			run := &pb.ObserverStatus{}
			return &pb.NodeStatusResponse{Observers: []*pb.ObserverStatus{run}}, nil
		}
		left, err := c.WaitFor(w.ctx, at)
		if err != nil || left[""].GetNotifications() != 3 {
			t.Errorf("%v waits for an observer without a process, want 3 notifications: %v", left, err)
		}
		if took := time.Since(began); took < 10*time.Second || took > 12*time.Second {
			t.Errorf("it ended after %v; the last process stopped after 10s", took)
		}
	})
}

// TestEffectsThatCannotBeKnown: the caller gets the reason, and never a false success.
func TestEffectsThatCannotBeKnown(t *testing.T) {
	old := &pb.TabletResponse{Result: &pb.TabletResponse_Pending{Pending: &pb.PendingResponse{}}}
	nobody := func(err error) func(*answers) {
		return func(a *answers) {
			a.status = func() (*pb.NodeStatusResponse, error) { return nil, err }
		}
	}
	for name, test := range map[string]struct {
		set  func(*answers)
		want error
	}{
		"a node of an older release": {func(a *answers) {
			a.answer = func(req *pb.TabletRequest) *pb.TabletResponse {
				if req.GetPending() == nil {
					return nil
				}
				return old
			}
		}, txn.ErrInvalid},
		"meta may not be asked": {func(a *answers) {
			a.catalogue = func() (*pb.Catalogue, error) {
				return nil, refused(pb.Error_CODE_PERMISSION)
			}
		}, txn.ErrPermission},
		"nobody says what is run": {nobody(errors.New("down")), txn.ErrUnavailable},
		"a tablet that nobody leads": {func(a *answers) {
			a.Inject(func(*pb.TabletRequest) txntest.Fault {
				return txntest.Fault{Answer: &pb.Error{Code: pb.Error_CODE_NOT_LEADER}}
			})
		}, txn.ErrUnavailable},
	} {
		synctest.Test(t, func(t *testing.T) {
			w, _, at := changed(t)
			c, a := w.answering(txn.Config{})
			s, err := c.Snapshot(w.ctx)
			if err != nil {
				t.Fatal(err)
			}
			test.set(a)
			if left, err := c.WaitFor(w.ctx, at); !errors.Is(err, test.want) {
				t.Errorf("%s: WaitFor: %v, %v", name, left, err)
			}
			if settled, err := s.Settled(w.ctx); settled || !errors.Is(err, test.want) {
				t.Errorf("%s: Settled: %v, %v", name, settled, err)
			}
		})
	}
}

// TestWaitForEndsWithItsContext: WaitFor ends also if the effects never end, and before any query
// if the timestamp has not been granted.
func TestWaitForEndsWithItsContext(t *testing.T) {
	w, _, at := changed(t)
	c, p := w.client(txn.Config{})
	ctx, cancel := context.WithCancel(w.ctx)
	onQuestions(p, func(n int32) {
		if n == 9 {
			cancel()
		}
	})
	if _, err := c.WaitFor(ctx, at); !errors.Is(err, context.Canceled) {
		t.Errorf("with a run under way: %v", err)
	}
	sent := p.Sent()
	for _, until := range []mvcc.Timestamp{0, at + mvcc.TimestampAt(time.Hour.Milliseconds())} {
		if _, err := c.WaitFor(w.ctx, until); !errors.Is(err, txn.ErrInvalid) || p.Sent() != sent {
			t.Errorf("until %d: %v after %d questions", until, err, p.Sent()-sent)
		}
	}
}

// TestSettled: a snapshot is settled if, in the given tables, nothing visible in it is pending or
// undecided, and no run for it ended after it.
func TestSettled(t *testing.T) {
	hidden := &pb.TabletResponse{Result: &pb.TabletResponse_Pending{Pending: &pb.PendingResponse{
		Effects: &pb.EffectsResponse{Hidden: true},
	}}}
	settleAll := func(w *world, c *txn.Client) {
		for _, row := range threeRows {
			w.settle(c, row)
		}
	}
	lock := func(w *world, c *txn.Client) {
		settleAll(w, c)
		release := w.hold(txn.Config{}, "a", "z")
		w.t.Cleanup(func() { _ = release() })
	}
	change := func(w *world, c *txn.Client) { w.set(c, "2", "a") }
	unlink := func(w *world, _ *txn.Client) { w.Announce(w.table, "c") }
	for name, test := range map[string]struct {
		before, after func(w *world, c *txn.Client) // the snapshot
		tables        []string
		hidden, want  bool
	}{
		"runs are left":                  {want: false},
		"runs are left in another table": {tables: []string{"other"}, want: true},
		"runs are left in one of two":    {tables: []string{"other", "t"}, want: false},
		"all has been run":               {before: settleAll, want: true},
		"changed since":                  {before: settleAll, after: change, want: true},
		"not decided":                    {before: lock, want: false},
		"a run has ended since":          {before: settleAll, hidden: true, want: false},
		"left for nobody":                {before: unlink, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			w, other, _ := changed(t)
			w.AddTable("other")
			if test.before != nil {
				test.before(w, other)
			}
			c, a := w.answering(txn.Config{})
			s, err := c.Snapshot(w.ctx)
			if err != nil {
				t.Fatal(err)
			}
			if test.after != nil {
				test.after(w, other)
			}
			a.answer = func(req *pb.TabletRequest) *pb.TabletResponse {
				if test.hidden && req.GetPending().GetEffects().GetShown() {
					return hidden
				}
				return nil
			}
			if got, err := s.Settled(w.ctx, test.tables...); err != nil || got != test.want {
				t.Errorf("settled: %v, %v", got, err)
			}
			if _, err := s.Settled(w.ctx, "none"); !errors.Is(err, txn.ErrNoTable) {
				t.Errorf("a table that there is not: %v", err)
			}
		})
	}
}

// TestPendingObservers: pending notifications are summed by observer over the tablets, and the
// oldest is found; tablets without any do not affect it.
func TestPendingObservers(t *testing.T) {
	w := newWorld(t)
	c, a := w.answering(txn.Config{})
	tablets := map[uint64][]*pb.ObserverPending{
		2: {{Name: "one", Notifications: 1, Parked: 2, Intents: 3, OldestTs: 30}},
		3: {{Name: "two"}, {Name: "one", Notifications: 10, OldestTs: 0}},
		4: {{Name: "one", Notifications: 100, Parked: 200, OldestTs: 20}, {Name: "two", OldestTs: 7}},
	}
	a.answer = func(req *pb.TabletRequest) *pb.TabletResponse {
		return &pb.TabletResponse{Result: &pb.TabletResponse_Pending{
			Pending: &pb.PendingResponse{Observers: tablets[req.TabletId]},
		}}
	}
	sum, err := c.PendingObservers(w.ctx)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][4]uint64{}
	for name, p := range sum {
		got[name] = [4]uint64{p.Notifications, p.Parked, p.Intents, p.OldestTs}
	}
	if want := map[string][4]uint64{"one": {111, 202, 3, 20}, "two": {0, 0, 0, 7}}; fmt.Sprint(got) !=
		fmt.Sprint(want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestPendingAfterAMerge: a tablet that was merged from two that the client knows counts once.
func TestPendingAfterAMerge(t *testing.T) {
	w := newWorld(t)
	c, a := w.answering(txn.Config{})
	merged := false
	a.answer = func(req *pb.TabletRequest) *pb.TabletResponse {
		tablets := w.Tablets()
		i := slices.IndexFunc(tablets, func(d *pb.TabletDescriptor) bool { return d.TabletId == 3 })
		d := proto.CloneOf(tablets[i])
		if merged && (req.TabletId == 4 || req.TabletId == 3 && req.Epoch == d.Epoch) {
			d.Epoch, d.EndTable, d.EndRow = d.Epoch+5, tablets[i+1].EndTable, tablets[i+1].EndRow
			d.EndUnbounded = tablets[i+1].EndUnbounded
			return &pb.TabletResponse{Error: &pb.Error{
				Code: pb.Error_CODE_WRONG_TABLET, Descriptors: []*pb.TabletDescriptor{d},
			}}
		}
		return &pb.TabletResponse{Result: &pb.TabletResponse_Pending{Pending: &pb.PendingResponse{
			Observers: []*pb.ObserverPending{{Name: "one", Notifications: 1}},
		}}}
	}
	before, err := c.PendingObservers(w.ctx) // the client knows all tablets from here on
	if err != nil {
		t.Fatal(err)
	}
	merged = true
	after, err := c.PendingObservers(w.ctx)
	if err != nil {
		t.Fatal(err)
	}
	if b, a := before["one"].Notifications, after["one"].Notifications; a != b-1 {
		t.Errorf("%d notifications in %d tablets, of which two were merged", a, b)
	}
}
