package meta

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/internal/version"
	"github.com/percolator-go/percolator/internal/wire"
)

// observing is a world with a table "t" whose columns "x" and "y" are observed by "a" and, weakly,
// by "b".
func observing(t *testing.T) (*world, *Meta, func(name string) *pb.ObserverInfo) {
	w, m := newWorld(t)
	ctx := context.Background()
	table, err := m.Schema.CreateTable(ctx, "t", nil)
	if err != nil {
		t.Fatal(err)
	}
	err = register(ctx, m, []*pb.ObserverInfo{
		{Name: "a", Table: table.Id, TableName: "t", Column: []byte("x")},
		{Name: "b", Table: table.Id, TableName: "t", Column: []byte("y"), Weak: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	return w, m, func(name string) *pb.ObserverInfo {
		t.Helper()
		c, err := m.Observers.Catalogue(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for id := range w.held {
			if id != cluster.MetaTablet && w.has[id] != c.Version {
				t.Errorf("tablet %d has version %d of the catalogue, not %d", id, w.has[id],
					c.Version)
			}
		}
		o, err := observer(c, name)
		if err != nil {
			return nil
		}
		return o
	}
}

// TestControlObserver: an observer's settings are in the catalogue, are sent to every tablet, and
// survive another registration. Settings omitted from a request stay.
func TestControlObserver(t *testing.T) {
	ctx := context.Background()
	_, m, now := observing(t)
	before := now("a")
	steps := []struct {
		req    *pb.ControlObserverRequest
		paused bool
		limit  uint32
	}{
		{&pb.ControlObserverRequest{Paused: proto.Bool(true)}, true, 0},
		{&pb.ControlObserverRequest{Limit: proto.Uint32(5)}, true, 5},
		{&pb.ControlObserverRequest{}, true, 5},
		{&pb.ControlObserverRequest{Paused: proto.Bool(false)}, false, 5},
		{&pb.ControlObserverRequest{Limit: proto.Uint32(0), Paused: proto.Bool(true)}, true, 0},
	}
	for i, s := range steps {
		s.req.Name = "a"
		got, err := m.Observers.ControlObserver(ctx, s.req)
		if err != nil || got.Paused != s.paused || got.Limit != s.limit {
			t.Fatalf("step %d: %v, %v", i, got, err)
		}
		if err := register(ctx, m, []*pb.ObserverInfo{before}); err != nil { // a restart
			t.Fatal(err)
		}
		if o := now("a"); !proto.Equal(o, got) {
			t.Errorf("step %d: catalogue has %v", i, o)
		}
	}
	if o := now("b"); o.Paused || o.Limit != 0 {
		t.Errorf("the other one: %v", o)
	}
	_, err := m.Observers.ControlObserver(ctx, &pb.ControlObserverRequest{
		Name: "c", Paused: proto.Bool(true),
	})
	if err == nil || !strings.Contains(err.Error(),
		`there is no observer "c"; there are: "a", "b"`) {
		t.Errorf("unknown: %v", err)
	}
	if _, err := m.Observers.ControlObserver(ctx, &pb.ControlObserverRequest{Name: "a",
		Limit: proto.Uint32(1 << 20)}); err == nil {
		t.Error("a limit of a million was accepted")
	}
}

// TestRetire: a retired observer can neither be changed, nor registered, nor back-filled until its
// work is removed; then its name and its column are free, and the record of its back-fill is
// deleted. Every operation on the way may fail.
func TestRetire(t *testing.T) {
	ctx := context.Background()
	for n := 2; n < 20; n++ {
		w, m, now := observing(t)
		if _, err := m.Backfills.StartBackfill(ctx, "a", 7, 0); err != nil {
			t.Fatal(err)
		}
		if err := m.Observers.ForgetObserver(ctx, "a"); err == nil {
			t.Fatal("an observer that is not retired was forgotten")
		}
		info, err := m.Observers.ControlObserver(ctx, &pb.ControlObserverRequest{Name: "a", Retire: true})
		if err != nil || !info.Retired || !now("a").Retired {
			t.Fatalf("%v, %v", info, err)
		}
		if _, err := m.Observers.ControlObserver(ctx,
			&pb.ControlObserverRequest{Name: "a", Retire: true}); err != nil {
			t.Errorf("again: %v", err)
		}
		_, paused := m.Observers.ControlObserver(ctx,
			&pb.ControlObserverRequest{Name: "a", Paused: proto.Bool(false)})
		_, filled := m.Backfills.StartBackfill(ctx, "a", 8, 0)
		for what, err := range map[string]error{"resumed": paused, "filled": filled} {
			if err == nil || !strings.Contains(err.Error(), "being retired") {
				t.Errorf("a retired observer was %s: %v", what, err)
			}
		}
		if goesOn, err := m.Backfills.SaveBackfill(ctx,
			&pb.Backfill{Name: "a", Ts: 7, Rows: 1}); err != nil || goesOn {
			t.Errorf("its back-fill continues: %v", err)
		}
		w.failAt, w.after = w.ops+n/2, n%2 == 1
		if err := m.Observers.ForgetObserver(ctx, "a"); err != nil && !errors.Is(err, errCrash) {
			t.Fatal(err)
		}
		w.failAt = 0
		if err := errors.Join(m.Observers.ForgetObserver(ctx, "a"), m.Observers.Sync(ctx)); err != nil {
			t.Fatal(err)
		}
		fresh := &pb.ObserverInfo{
			Name: "a", Table: info.Table, TableName: "t", Column: []byte("x"), Weak: true,
		}
		if now("a") != nil {
			t.Fatal("still there")
		}
		if err := register(ctx, m, []*pb.ObserverInfo{fresh}); err != nil {
			t.Fatal(err)
		}
		if b, err := m.Backfills.Backfill(ctx, "a"); err != nil || b != nil {
			t.Errorf("the new observer has a back-fill: %v, %v", b, err)
		}
	}
}

// TestRegisterWaitsForRemoval: a program that still registers a retired observer waits until it may
// register it again, and gets an error with the reason if that takes too long.
func TestRegisterWaitsForRemoval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		_, m, now := observing(t)
		fresh := now("a")
		if _, err := m.Observers.ControlObserver(ctx,
			&pb.ControlObserverRequest{Name: "a", Retire: true}); err != nil {
			t.Fatal(err)
		}
		short, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		err := register(short, m, []*pb.ObserverInfo{fresh})
		if !errors.Is(err, context.DeadlineExceeded) ||
			!strings.Contains(err.Error(), `observer "a" of t."x" is being retired`) {
			t.Fatalf("not removed: %v", err)
		}
		registered := make(chan error, 1)
		go func() { registered <- register(ctx, m, []*pb.ObserverInfo{fresh}) }()
		synctest.Wait()
		if err := m.Observers.ForgetObserver(ctx, "a"); err != nil {
			t.Fatal(err)
		}
		if err := <-registered; err != nil {
			t.Fatal(err)
		}
		if o := now("a"); o == nil || o.Retired {
			t.Errorf("%v", o)
		}
	})
}

// TestBackfillRecord: one back-fill per observer at a time, progress only of the running one, and a
// table's drop deletes the record.
func TestBackfillRecord(t *testing.T) {
	ctx := context.Background()
	_, m, _ := observing(t)
	if b, err := m.Backfills.Backfill(ctx, "a"); b != nil || err != nil {
		t.Fatalf("%v, %v", b, err)
	}
	start := func(ts, want uint64) *pb.Backfill {
		t.Helper()
		b, err := m.Backfills.StartBackfill(ctx, "a", ts, 0)
		if err != nil || b.Ts != want {
			t.Fatalf("%v, %v", b, err)
		}
		return b
	}
	save := func(b *pb.Backfill, want bool) {
		t.Helper()
		if goesOn, err := m.Backfills.SaveBackfill(ctx, b); err != nil || goesOn != want {
			t.Fatalf("continues %v, %v", goesOn, err)
		}
	}
	start(5, 5)
	save(&pb.Backfill{Name: "a", Ts: 5, Rows: 3, NextRow: []byte("d")}, true)
	if b := start(6, 5); b.Rows != 3 {
		t.Errorf("one that runs was started over: %v", b)
	}
	if b, err := m.Backfills.CancelBackfill(ctx, "a"); err != nil || !b.Cancelled {
		t.Fatalf("%v, %v", b, err)
	}
	save(&pb.Backfill{Name: "a", Ts: 5, Rows: 4}, false)
	start(7, 7)
	save(&pb.Backfill{Name: "a", Ts: 5, Rows: 4}, false)
	save(&pb.Backfill{Name: "a", Ts: 7, Rows: 9, Done: true}, false)
	if b, err := m.Backfills.CancelBackfill(ctx, "a"); err != nil || b.Cancelled || b.Rows != 9 {
		t.Errorf("one that is done was cancelled: %v, %v", b, err)
	}
	for _, name := range []string{"c", ""} {
		if _, err := m.Backfills.StartBackfill(ctx, name, 8, 0); err == nil ||
			!strings.Contains(err.Error(), "there is no observer") {
			t.Errorf("%q: %v", name, err)
		}
	}
	observers := []*pb.ObserverInfo{{Name: "b"}, {Name: "a"}}
	if list, err := m.Backfills.Backfills(ctx, observers); err != nil || len(list) != 1 ||
		list["a"].GetRows() != 9 {
		t.Errorf("%v, %v", list, err)
	}
	if err := dropTable(ctx, m, "t"); err != nil {
		t.Fatal(err)
	}
	if list, err := m.Backfills.Backfills(ctx, observers); err != nil || len(list) != 0 {
		t.Errorf("after the drop: %v, %v", list, err)
	}
}

// TestObserversOfOneColumn: the first observer of a column has its notify entries at the observed
// cells, the others have separate ones and keep them; the place of a retired observer is free once
// it is forgotten. All are of one kind, and their number is bounded.
func TestObserversOfOneColumn(t *testing.T) {
	ctx := t.Context()
	_, m := newWorld(t)
	agreed := wire.AgreedPB(version.Agreed{Minimum: 6, Active: 6})
	if _, err := m.Policy.Found(ctx, &pb.Policy{Agreed: agreed}); err != nil {
		t.Fatal(err)
	}
	enter := func(name, column string, weak bool) error {
		_, err := m.Observers.enter(ctx, []*pb.ObserverInfo{
			{Name: name, Table: 16, TableName: "t", Column: []byte(column), Weak: weak},
		})
		return err
	}
	entered := func(name, column string, weak, own bool) {
		t.Helper()
		if err := enter(name, column, weak); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		c, err := m.Observers.Catalogue(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if o, err := observer(c, name); err != nil || o.OwnEntry != own {
			t.Errorf("%v, %v; want entries of its own: %v", o, err, own)
		}
	}
	retire := func(name string) {
		t.Helper()
		if _, err := m.Observers.ControlObserver(ctx,
			&pb.ControlObserverRequest{Name: name, Retire: true}); err != nil {
			t.Fatal(err)
		}
	}
	forget := func(name string) {
		t.Helper()
		if err := m.Observers.ForgetObserver(ctx, name); err != nil {
			t.Fatal(err)
		}
	}
	entered("a", "x", false, false)
	entered("b", "x", false, true)
	if err := enter("c", "x", true); err == nil || !strings.Contains(err.Error(), "all strong or all weak") {
		t.Errorf("another kind: %v", err)
	}
	retire("a")
	entered("d", "x", false, true) // the retired one's pending notifications still exist
	forget("a")
	entered("e", "x", false, false)
	for _, again := range []string{"b", "d"} { // a restart
		entered(again, "x", false, true)
	}
	entered("v", "y", true, false)
	entered("w", "y", true, true)
	retire("v")
	entered("z", "y", true, true)
	retire("w")
	retire("z")
	// The intents of the column are being removed.
	for _, weak := range []bool{true, false} {
		if err := enter("late", "y", weak); !errors.Is(err, errRetiring) {
			t.Errorf("INTENT-LOST: an observer of a weak column that has only retired ones: %v", err)
		}
	}
	for _, name := range []string{"v", "w", "z"} {
		forget(name)
	}
	entered("late", "y", true, false)
	for i := 3; i < maxSharing; i++ {
		entered(strings.Repeat("n", i), "x", false, true)
	}
	if err := enter("one too many", "x", false); err == nil || !strings.Contains(err.Error(), "as many as it may have") {
		t.Errorf("%v", err)
	}
}
