package node_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/node"
)

func backfill(t testing.TB, n *node.Node, name string,
	action pb.BackfillRequest_Action) *pb.Backfill {
	t.Helper()
	r, err := handle.Client(n.DB()).Admin().Backfill(within(t, time.Minute),
		&pb.BackfillRequest{Name: name, Action: action})
	if err != nil {
		t.Fatal(err)
	}
	return r.Backfill
}

// counterOnly registers the counting observer.
func counterOnly(c *node.Config) {
	c.Observers = func(r *percolator.Registry) { r.Strong("counter", input, counts) }
}

// TestBackfillResumes: a back-fill runs an observer once for each row that existed before it, also
// when the node is stopped repeatedly during it. Pending notifications stay bounded, and rows
// changed or created during it run by their own notifications.
func TestBackfillResumes(t *testing.T) {
	t.Parallel()
	rows := 10_000 // BACKFILL_ROWS=100000 takes minutes
	if text := os.Getenv("BACKFILL_ROWS"); text != "" {
		var err error
		if rows, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	n := open(t, dir, nil)
	if err := n.DB().CreateTable(within(t, time.Minute),
		percolator.TableSpec{Name: "pages", SplitKeys: []string{rowOf(rows / 3)}}); err != nil {
		t.Fatal(err)
	}
	write(t, n.DB(), 0, rows)
	stop := func() {
		t.Helper()
		if err := n.Close(within(t, time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	n = open(t, dir, counterOnly)
	if s := stateOf(t, n, "counter"); s.Notifications != 0 || s.Backfill != nil {
		t.Fatalf("a new observer sees what was there before: %v", s)
	}
	first := backfill(t, n, "counter", pb.BackfillRequest_ACTION_START)
	if again := backfill(t, n, "counter", pb.BackfillRequest_ACTION_START); again.Ts != first.Ts {
		t.Errorf("a second back-fill began: %v", again)
	}
	// far ahead of the back-fill: its own change runs it, not the back-fill
	changed := rows - 10
	write(t, n.DB(), changed, rows+10)
	for part := range 3 {
		goal := uint64(rows*(part+1)) / 4
		eventually(t, "the back-fill gets on", func() bool {
			s := stateOf(t, n, "counter")
			if s.Notifications > 10_000 {
				t.Fatalf("flooded: %v", s)
			}
			return s.Backfill.Rows >= goal
		})
		stop()
		n = open(t, dir, counterOnly)
		if b := backfill(t, n, "counter", pb.BackfillRequest_ACTION_READ); b.Ts != first.Ts ||
			b.Rows < goal || b.Done {
			t.Errorf("after a restart: %v", b)
		}
	}
	eventually(t, "the back-fill is done", func() bool {
		return stateOf(t, n, "counter").Backfill.Done
	})
	waitIdle(t, n)
	if b := stateOf(t, n, "counter").Backfill; b.Rows != uint64(changed) || b.Cancelled ||
		b.Error != "" {
		t.Errorf("%v; %d rows were there and did not change", b, changed)
	}
	checkCounts(t, n.DB(), rows+10, times(1))
}

// TestBackfillOfWeakAndDeleted: a weak column has no values, so every existing row of the table is
// notified; deleted rows are not, and of a strong column neither are rows without a value in it.
func TestBackfillOfWeakAndDeleted(t *testing.T) {
	n := open(t, "", func(c *node.Config) {
		c.Observers = func(r *percolator.Registry) {
			r.Weak("poker", poked, counts)
			r.Strong("counter", input, counts)
		}
	})
	ctx := within(t, time.Minute)
	other := percolator.Column{Table: "pages", Name: "other"}
	controlObserver(t, n, &pb.ControlObserverRequest{Name: "counter", Paused: proto.Bool(true)})
	write(t, n.DB(), 0, 10)
	err := n.DB().Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
		for i := range 10 {
			tx.Set(rowOf(10+i), other, []byte("x"))
		}
		for i := range 5 {
			tx.Delete(rowOf(i), input)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	backfill(t, n, "poker", pb.BackfillRequest_ACTION_START)
	eventually(t, "done", func() bool { return stateOf(t, n, "poker").Backfill.Done })
	waitIdle(t, n)
	if b := stateOf(t, n, "poker").Backfill; b.Rows != 15 {
		t.Errorf("weak: %v", b)
	}
	checkCounts(t, n.DB(), 20, func(i int) int { return map[bool]int{true: 1}[i >= 5] })
	backfill(t, n, "counter", pb.BackfillRequest_ACTION_START) // paused: marked, not run
	eventually(t, "done", func() bool { return stateOf(t, n, "counter").Backfill.Done })
	if b := stateOf(t, n, "counter").Backfill; b.Rows != 5 {
		t.Errorf("strong: %v", b)
	}
	controlObserver(t, n, &pb.ControlObserverRequest{Name: "counter", Paused: proto.Bool(false)})
	waitIdle(t, n)
	// Rows 0 to 4 were deleted, which is a change; for rows 5 to 9 the back-fill and their change
	// share one run.
	checkCounts(t, n.DB(), 20, func(i int) int {
		return map[bool]int{true: 2, false: 1}[i >= 5 && i < 10]
	})
}

// TestBackfillIsPaced: the back-fill of a paused observer waits once 2048 notifications are
// pending, and can be cancelled; then it marks no further row.
func TestBackfillIsPaced(t *testing.T) {
	const rows = 6000
	n := open(t, "", nil)
	if err := n.DB().CreateTable(within(t, time.Minute),
		percolator.TableSpec{Name: "pages"}); err != nil {
		t.Fatal(err)
	}
	_, err := handle.Client(n.DB()).Admin().Backfill(within(t, time.Minute),
		&pb.BackfillRequest{Name: "counter", Action: pb.BackfillRequest_ACTION_START})
	if err == nil || !strings.Contains(err.Error(), "there are: none") {
		t.Errorf("unknown observer: %v", err)
	}
	dir := t.TempDir()
	n = open(t, dir, nil)
	write(t, preparePages(t, n), 0, rows)
	if err := n.Close(within(t, time.Minute)); err != nil {
		t.Fatal(err)
	}
	n = open(t, dir, counterOnly)
	controlObserver(t, n, &pb.ControlObserverRequest{Name: "counter", Paused: proto.Bool(true)})
	backfill(t, n, "counter", pb.BackfillRequest_ACTION_START)
	// The record of a page is saved after its marks are set: only then does it show the back-fill's
	// progress.
	eventually(t, "the bound is reached", func() bool {
		s := stateOf(t, n, "counter")
		return s.Notifications >= 2048 && s.Backfill.GetRows() >= 2048
	})
	b := backfill(t, n, "counter", pb.BackfillRequest_ACTION_CANCEL)
	if !b.Cancelled || b.Done || b.Rows != 2048 {
		t.Errorf("the back-fill is %v, want cancelled after 2048 rows", b)
	}
	controlObserver(t, n, &pb.ControlObserverRequest{Name: "counter", Paused: proto.Bool(false)})
	waitIdle(t, n)
	if s := stateOf(t, n, "counter"); s.Backfill.Rows != 2048 || s.Status.Commits != 2048 {
		t.Errorf("the observer is %v, want 2048 rows marked and 2048 commits", s)
	}
	// A new back-fill marks all rows, also those that have run: it is a replay.
	backfill(t, n, "counter", pb.BackfillRequest_ACTION_START)
	eventually(t, "done", func() bool { return stateOf(t, n, "counter").Backfill.Done })
	waitIdle(t, n)
	checkCounts(t, n.DB(), rows, func(i int) int {
		return map[bool]int{true: 2, false: 1}[i < 2048]
	})
}

// preparePages creates the table pages and returns a handle on the node's database.
func preparePages(t testing.TB, n *node.Node) *percolator.DB {
	t.Helper()
	if err := n.DB().CreateTable(within(t, time.Minute),
		percolator.TableSpec{Name: "pages"}); err != nil {
		t.Fatal(err)
	}
	return n.DB()
}

// TestRetire: the pending and parked notifications of a retired observer are removed, and the
// intents of live transactions; then it is deleted, its name and its column are free, and a program
// that still registers it creates a new observer, which sees later changes only. A node that stops
// in between continues the removal.
func TestRetire(t *testing.T) {
	const rows = 3000
	dir := t.TempDir()
	link := func(c *node.Config) {
		quick(c)
		c.Observers = func(r *percolator.Registry) {
			r.Strong("counter", input, counts)
			r.Weak("poker", poked, func(context.Context, *percolator.Tx,
				percolator.Notification) error {
				return errors.New("never")
			}, percolator.MaxAttempts(1))
		}
	}
	n := open(t, dir, link)
	write(t, n.DB(), 0, 10)
	waitIdle(t, n) // acknowledged
	controlObserver(t, n, &pb.ControlObserverRequest{Name: "counter", Paused: proto.Bool(true)})
	write(t, n.DB(), 0, rows)
	err := n.DB().Transact(within(t, time.Minute),
		func(_ context.Context, tx *percolator.Tx) error {
			for i := range rows {
				tx.Notify(rowOf(i), poked)
			}
			return nil
		})
	if err != nil {
		t.Fatal(err)
	}
	waitIdle(t, n)
	if s := stateOf(t, n, "poker"); s.Parked != rows {
		t.Fatalf("the observer is %v, want all rows parked", s)
	}
	table := mvcc.TableID(stateOf(t, n, "counter").Info.Table)
	for _, name := range []string{"counter", "poker"} {
		if info := controlObserver(t, n,
			&pb.ControlObserverRequest{Name: name, Retire: true}); !info.Retired {
			t.Errorf("the observer is %v, want it retired", info)
		}
	}
	write(t, n.DB(), rows, rows+10) // without an observer
	if err := n.Close(within(t, time.Minute)); err != nil {
		t.Fatal(err)
	}
	n = open(t, dir, nil)
	for _, name := range []string{"counter", "poker"} {
		eventually(t, name+" is gone", func() bool { return stateOf(t, n, name) == nil })
	}
	for _, column := range []string{input.Name, poked.Name} {
		for _, group := range []mvcc.Group{mvcc.GroupNotify, mvcc.GroupIntent} {
			for e, err := range handle.Client(n.DB()).WalkColumn(within(t, time.Minute), group,
				mvcc.ObservedColumn{Table: table, Column: column}) {
				t.Fatalf("%c of %s: left behind: %v, %v", group, column, e, err)
			}
		}
	}
	if err := n.Close(within(t, time.Minute)); err != nil {
		t.Fatal(err)
	}
	n = open(t, dir, link)
	waitIdle(t, n)
	checkCounts(t, n.DB(), rows+10, func(i int) int { return map[bool]int{true: 1}[i < 10] })
	write(t, n.DB(), 0, 20)
	waitIdle(t, n)
	checkCounts(t, n.DB(), rows+10, func(i int) int {
		switch {
		case i < 10:
			return 2
		case i < 20:
			return 1
		}
		return 0
	})
}

// TestRetiredWhileLinked: a process stops running a retired observer at once; after a restart it
// waits for the removal, and then the observer is a new one.
func TestRetiredWhileLinked(t *testing.T) {
	const rows = 2000
	dir := t.TempDir()
	n := open(t, dir, counterOnly)
	controlObserver(t, n, &pb.ControlObserverRequest{
		Name: "counter", Paused: proto.Bool(true), Limit: proto.Uint32(7),
	})
	write(t, n.DB(), 0, rows)
	controlObserver(t, n, &pb.ControlObserverRequest{Name: "counter", Retire: true})
	if err := n.Close(within(t, time.Minute)); err != nil {
		t.Fatal(err)
	}
	n = open(t, dir, counterOnly)
	s := stateOf(t, n, "counter")
	if s == nil || s.Info.Retired || s.Info.Paused || s.Info.Limit != 0 || s.Notifications != 0 ||
		!s.Linked {
		t.Errorf("%v", s)
	}
	write(t, n.DB(), rows, rows+5)
	waitIdle(t, n)
	checkCounts(t, n.DB(), rows+5, func(i int) int { return map[bool]int{true: 1}[i >= rows] })
	controlObserver(t, n, &pb.ControlObserverRequest{Name: "counter", Retire: true})
	eventually(t, "gone", func() bool { return stateOf(t, n, "counter") == nil })
	write(t, n.DB(), 0, rows)
	waitIdle(t, n)
	checkCounts(t, n.DB(), rows, times(0))
	for _, s := range n.Status().Observers {
		if s.Running != 0 || s.Queued != 0 {
			t.Errorf("%v", fmt.Sprint(s))
		}
	}
}
