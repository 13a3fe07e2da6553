package node_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/node"
)

// The table of the tests of observers: columns observed strongly and weakly, and the number of runs
// of a row.
var (
	input = percolator.Column{Table: "pages", Name: "input"}
	poked = percolator.Column{Table: "pages", Name: "poked"}
	count = percolator.Column{Table: "pages", Name: "count"}
)

// counts adds one to the row's count.
func counts(ctx context.Context, tx *percolator.Tx, n percolator.Notification) error {
	v, _, err := tx.Get(ctx, n.Row, count)
	if err != nil {
		return err
	}
	tx.Set(n.Row, count, append(v, '+'))
	return nil
}

// quick shortens pauses after failures.
func quick(c *node.Config) {
	c.Notifications.FailurePause, c.Notifications.FailurePauseMax = time.Millisecond,
		5*time.Millisecond
	c.Logger = slog.New(slog.DiscardHandler) // these tests cause failures
}

func within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// write changes rows [from, to), many in a transaction.
func write(t testing.TB, db *percolator.DB, from, to int) {
	t.Helper()
	for at := from; at < to; at += 500 {
		err := db.Transact(within(t, time.Minute),
			func(_ context.Context, tx *percolator.Tx) error {
				for i := at; i < min(at+500, to); i++ {
					tx.Set(rowOf(i), input, []byte("x"))
				}
				return nil
			})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func rowOf(i int) string { return fmt.Sprintf("row/%07d", i) }

// eventually polls until the condition holds.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	tick, end := time.NewTicker(20*time.Millisecond), time.After(4*time.Minute)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("not within four minutes: %s", what)
		}
	}
}

// stateOf returns the cluster's report on the observer; nil if it is not in the catalogue.
func stateOf(t testing.TB, n *node.Node, name string) *pb.ObserverState {
	t.Helper()
	all, err := handle.Client(n.DB()).Transport().Observers(within(t, time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		if s.Info.Name == name {
			return s
		}
	}
	return nil
}

// counted waits until the observer's statistics satisfy the condition: a run is counted a moment
// after its effects are visible.
func counted(t testing.TB, n *node.Node, name string, want func(*pb.ObserverState) bool) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("%s: %v", name, stateOf(t, n, name))
		}
	}()
	eventually(t, fmt.Sprintf("the counts of %s are what they should be", name), func() bool {
		s := stateOf(t, n, name)
		return s.Status != nil && want(s)
	})
}

func controlObserver(t testing.TB, n *node.Node, req *pb.ControlObserverRequest) *pb.ObserverInfo {
	t.Helper()
	r, err := handle.Client(n.DB()).Admin().ControlObserver(within(t, time.Minute), req)
	if err != nil {
		t.Fatal(err)
	}
	return r.Info
}

// waitIdle waits until no notification is left to run, and until the node has counted its runs: a commit
// is visible before its run ends.
func waitIdle(t testing.TB, n *node.Node) {
	t.Helper()
	if err := n.DB().WaitIdle(within(t, 4*time.Minute)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "no run", func() bool {
		return !slices.ContainsFunc(n.Status().Observers, func(s *pb.ObserverStatus) bool {
			return !s.Paused && s.Running > s.Stuck
		})
	})
}

// checkCounts compares the count of every row [0, rows) with want.
func checkCounts(t testing.TB, db *percolator.DB, rows int, want func(i int) int) {
	t.Helper()
	ctx := within(t, time.Minute)
	s, err := db.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	got := map[string]int{}
	for c, err := range s.Scan(ctx, percolator.Rows("pages"), count) {
		if err != nil {
			t.Fatal(err)
		}
		got[c.Row] = len(c.Value)
	}
	wrong := 0
	for i := range rows {
		if got[rowOf(i)] != want(i) {
			if wrong++; wrong <= 5 {
				t.Errorf("%s was run for %d times, want %d", rowOf(i), got[rowOf(i)], want(i))
			}
		}
	}
	if wrong > 0 {
		t.Errorf("%d of %d rows are wrong", wrong, rows)
	}
}

func times(n int) func(int) int { return func(int) int { return n } }

// TestPauseSurvivesRestart: a pause holds at once, also in the next process, and loses nothing.
func TestPauseSurvivesRestart(t *testing.T) {
	t.Parallel()
	const rows = 200
	dir := t.TempDir()
	link := func(c *node.Config) {
		c.Observers = func(r *percolator.Registry) { r.Strong("counter", input, counts) }
	}
	n := open(t, dir, link)
	write(t, n.DB(), 0, rows)
	waitIdle(t, n)
	info := controlObserver(t, n, &pb.ControlObserverRequest{
		Name: "counter", Paused: proto.Bool(true), Limit: proto.Uint32(3),
	})
	if !info.Paused || info.Limit != 3 {
		t.Fatalf("the observer is %v, want it paused, with the limit 3", info)
	}
	write(t, n.DB(), 0, rows)
	waitIdle(t, n) // paused observers are reported, not waited for
	for restart := range 2 {
		s := stateOf(t, n, "counter")
		if s.Notifications != rows || !s.Info.Paused || !s.Linked || s.OldestTs == 0 ||
			!s.Status.Paused || s.Status.Limit != 3 || s.Status.Queued != 0 {
			t.Errorf("after %d restarts: %v", restart, s)
		}
		within5s(within(t, time.Minute), t, "the leaders' statuses count them", func() (bool, any) {
			notifications, all := uint64(0), n.Status().GetTablets()
			for _, s := range all {
				for _, p := range s.Pending {
					if p.Name == "counter" && p.OldestTs > 0 {
						notifications += p.Notifications
					}
				}
			}
			return notifications == rows, all
		})
		checkCounts(t, n.DB(), rows, times(1))
		if restart == 0 {
			if err := n.Close(within(t, time.Minute)); err != nil {
				t.Fatal(err)
			}
			n = open(t, dir, link)
		}
	}
	write(t, n.DB(), rows, rows+1)
	if s := stateOf(t, n, "counter"); s.Status.Runs != 0 || s.Notifications != rows+1 {
		t.Errorf("a paused observer ran: %v", s)
	}
	controlObserver(t, n, &pb.ControlObserverRequest{Name: "counter", Paused: proto.Bool(false)})
	waitIdle(t, n)
	checkCounts(t, n.DB(), rows, times(2))
	if s := stateOf(t, n, "counter"); s.Notifications != 0 || s.OldestTs != 0 || s.Info.Limit != 3 {
		t.Errorf("resumed: %v", s)
	}
	_, err := handle.Client(n.DB()).Admin().ControlObserver(within(t, time.Minute),
		&pb.ControlObserverRequest{Name: "couner"})
	if err == nil || !strings.Contains(err.Error(),
		`there is no observer "couner"; there are: "counter"`) {
		t.Errorf("unknown observer: %v", err)
	}
}

// heldCounter registers a counting observer whose runs each wait until they are released.
func heldCounter(running *atomic.Int64, pass <-chan struct{},
	options ...percolator.ObserverOption) func(*percolator.Registry) {
	return func(r *percolator.Registry) {
		r.Strong("counter", input, func(ctx context.Context, tx *percolator.Tx,
			m percolator.Notification) error {
			running.Add(1)
			defer running.Add(-1)
			select {
			case <-pass:
			case <-ctx.Done():
			}
			return counts(ctx, tx, m)
		}, options...)
	}
}

// TestLimitRaised: the scanners hand out enough cells for a raised limit.
func TestLimitRaised(t *testing.T) {
	const limit = 300
	var running atomic.Int64
	pass := make(chan struct{})
	n := open(t, "", func(c *node.Config) {
		c.ObserverWorkers, c.Notifications.NoHints = limit, true
		c.Observers = heldCounter(&running, pass, percolator.Concurrency(1),
			percolator.Deadline(5*time.Minute))
	})
	write(t, n.DB(), 0, limit)
	eventually(t, "one runs", func() bool { return running.Load() == 1 })
	controlObserver(t, n,
		&pb.ControlObserverRequest{Name: "counter", Limit: proto.Uint32(limit)})
	eventually(t, "as many run", func() bool { return running.Load() == limit })
	close(pass)
	waitIdle(t, n)
	checkCounts(t, n.DB(), limit, times(1))
}

// TestLimitLive: limits hold at once, raised and lowered, during runs.
func TestLimitLive(t *testing.T) {
	var running atomic.Int64
	pass := make(chan struct{})
	n := open(t, "", func(c *node.Config) {
		c.Observers = heldCounter(&running, pass, percolator.Concurrency(4))
	})
	const rows = 100
	write(t, n.DB(), 0, rows)
	at := func(want int64) {
		t.Helper()
		eventually(t, fmt.Sprintf("%d run at once", want), func() bool {
			return running.Load() == want
		})
	}
	at(4)
	controlObserver(t, n, &pb.ControlObserverRequest{Name: "counter", Limit: proto.Uint32(12)})
	at(12)
	controlObserver(t, n, &pb.ControlObserverRequest{Name: "counter", Limit: proto.Uint32(2)})
	for range 12 { // which run to their ends
		pass <- struct{}{}
	}
	at(2)
	for range 20 {
		pass <- struct{}{}
		if got := stateOf(t, n, "counter").Status.Running; got > 2 {
			t.Errorf("%d run concurrently with a limit of 2", got)
		}
	}
	close(pass)
	controlObserver(t, n, &pb.ControlObserverRequest{Name: "counter", Limit: proto.Uint32(0)})
	waitIdle(t, n)
	checkCounts(t, n.DB(), rows, times(1))
	if s := stateOf(t, n, "counter"); s.Status.Limit != 4 {
		t.Errorf("limit 0 is not the registered one: %v", s)
	}
}

// parkedWith checks the list of the observer's parked notifications.
func parkedWith(t *testing.T, n *node.Node, s *pb.ObserverState, attempts uint32) {
	t.Helper()
	for e, err := range handle.Client(n.DB()).WalkColumn(within(t, time.Minute), mvcc.GroupNotify,
		wire.NotifyColumn(s.Info)) {
		if err != nil {
			t.Fatal(err)
		}
		if m := e.Notify; m.Attempts != attempts || m.ParkedTs == 0 ||
			!strings.Contains(m.Error, "the parser chokes") {
			t.Errorf("%s: %v", s.Info.Name, e)
		}
	}
}

// TestParkedAreReplayed: a parked notification is listed with its error and attempts, is not waited
// for, and runs once when it is replayed: individually, or all of an observer; weak ones too.
func TestParkedAreReplayed(t *testing.T) {
	const rows = 20
	var healed atomic.Bool
	fails := func(ctx context.Context, tx *percolator.Tx, m percolator.Notification) error {
		if !healed.Load() {
			return errors.New("the parser chokes")
		}
		return counts(ctx, tx, m)
	}
	dir := t.TempDir()
	link := func(c *node.Config) {
		quick(c)
		c.Observers = func(r *percolator.Registry) {
			r.Strong("counter", input, fails, percolator.MaxAttempts(3))
			r.Weak("poker", poked, fails, percolator.MaxAttempts(2))
		}
	}
	n := open(t, dir, link)
	write(t, n.DB(), 0, rows)
	err := n.DB().Transact(within(t, time.Minute),
		func(_ context.Context, tx *percolator.Tx) error {
			for i := range rows {
				tx.Notify(rowOf(rows+i), poked)
			}
			return nil
		})
	if err != nil {
		t.Fatal(err)
	}
	waitIdle(t, n)
	for name, attempts := range map[string]uint32{"counter": 3, "poker": 2} {
		s := stateOf(t, n, name)
		if s.Parked != rows || s.Notifications != 0 {
			t.Errorf("the observer is %v, want all rows parked and none waiting", s)
		}
		// One more run of each is possible: a scanner's page may be older than the parking.
		counted(t, n, name, func(s *pb.ObserverState) bool {
			n := s.Status.Failures
			return uint64(attempts)*rows <= n && n <= uint64(attempts+1)*rows
		})
		parkedWith(t, n, s, attempts)
	}
	if err := n.Close(within(t, time.Minute)); err != nil {
		t.Fatal(err)
	}
	n = open(t, dir, link) // parked notifications survive the process
	healed.Store(true)
	table, client := mvcc.TableID(stateOf(t, n, "counter").Info.Table), handle.Client(n.DB())
	if err := client.Replay(within(t, time.Minute), 0,
		[]mvcc.Cell{{Table: table, Row: rowOf(7), Column: input.Name}}); err != nil {
		t.Fatal(err)
	}
	waitIdle(t, n)
	checkCounts(t, n.DB(), rows, func(i int) int { return map[bool]int{true: 1}[i == 7] })
	if err := client.ReplayRow(within(t, time.Minute), "counter", rowOf(8)); err != nil {
		t.Fatal(err)
	}
	waitIdle(t, n)
	checkCounts(t, n.DB(), rows, func(i int) int { return map[bool]int{true: 1}[i == 7 || i == 8] })
	for _, c := range [][2]string{{"counter", rowOf(8)}, {"counter", "never"}, {"nobody", rowOf(9)}} {
		err := client.ReplayRow(within(t, time.Minute), c[0], c[1])
		if !errors.Is(err, percolator.ErrInvalid) {
			t.Errorf("%q, of which nothing is parked: %v", c, err)
		}
	}
	for name, want := range map[string]uint64{"counter": rows - 2, "poker": rows} {
		if got, err := client.ReplayParked(within(t, time.Minute), name, func(uint64) {}); err != nil ||
			got != want {
			t.Errorf("%s: replayed %d, %v", name, got, err)
		}
	}
	waitIdle(t, n)
	checkCounts(t, n.DB(), 2*rows, times(1))
	if s := stateOf(t, n, "counter"); s.Parked != 0 || s.Notifications != 0 {
		t.Errorf("the observer is %v, want none parked and none waiting", s)
	}
	counted(t, n, "counter", func(s *pb.ObserverState) bool { return s.Status.Commits == rows })
	_, err = client.ReplayParked(within(t, time.Minute), "nobody", nil)
	if !errors.Is(err, percolator.ErrInvalid) {
		t.Errorf("of an unknown observer: %v", err)
	}
	err = client.Replay(within(t, time.Minute), 0,
		[]mvcc.Cell{{Table: table, Row: rowOf(7), Column: count.Name}})
	if !errors.Is(err, percolator.ErrNotifyOnly) {
		t.Errorf("of a column that nothing observes: %v", err)
	}
}
