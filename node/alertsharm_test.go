package node_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/internal/certs"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/nodeparts"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/node"
	"github.com/percolator-go/percolator/test/workload"
)

// The faults of alerts_test.go: each returns the metrics of nodes before and after.

// cluster3 is three healthy nodes, the first of which leads meta, and their metrics.
func cluster3(ctx context.Context, t *testing.T) (*rig, scrape) {
	t.Helper()
	r := three(ctx, t, 1, func(_ int, c *node.Config) {
		c.HTTP, c.Logger = "127.0.0.1:0", slog.New(slog.DiscardHandler)
	})
	r.lead(ctx, cluster.MetaTablet, 0)
	var before scrape
	awaitTrue(ctx, t, "all is well", func() bool {
		before = scrapeAll(ctx, t, r.nodes...)
		under, there := before["n0"]["percolator_placement_under_replicated_tablets"]
		return there && under == 0 && before["n0"]["percolator_placement_target_replicas"] == 3
	})
	return r, before
}

func killOne(ctx context.Context, t *testing.T) (before, after scrape) {
	r, before := cluster3(ctx, t)
	checkAlerts(t, before, before)
	r.crash(2)
	awaitTrue(ctx, t, "placement sees it", func() bool {
		after = scrapeAll(ctx, t, r.nodes...)
		return after["n0"]["percolator_placement_under_replicated_tablets"] > 0
	})
	return before, after
}

func killTwo(ctx context.Context, t *testing.T) (before, after scrape) {
	r, before := cluster3(ctx, t)
	r.crash(1)
	r.crash(2)
	awaitTrue(ctx, t, "the node left knows", func() bool {
		after = scrapeAll(ctx, t, r.nodes...)
		return after["n0"]["percolator_meta_up"] == 0 &&
			after["n0"]["percolator_tablets_leaderless_longest_seconds"] > 3
	})
	return before, after
}

// spoilObservers registers a failing observer and one that ignores its context, and leaves a
// client's lock; then ten minutes pass.
func spoilObservers(ctx context.Context, t *testing.T) (before, after scrape) {
	release, passed := make(chan struct{}), atomic.Int64{}
	began := time.Now()
	cfg := node.DefaultConfig()
	cfg.Listen, cfg.HTTP, cfg.Insecure, cfg.Store.InMemory = "", "127.0.0.1:0", true, true
	quick(&cfg)
	cfg.Observers = func(r *percolator.Registry) {
		r.Strong("fails", input, func(context.Context, *percolator.Tx, percolator.Notification) error {
			return errors.New("always")
		}, percolator.MaxAttempts(1))
		r.Strong("sleeps", count, func(context.Context, *percolator.Tx, percolator.Notification) error {
			<-release
			return nil
		}, percolator.Deadline(time.Millisecond))
	}
	n, err := nodeparts.Open[node.Node](ctx, cfg, nodeparts.Parts{Clock: func() time.Time {
		return began.Add(time.Since(began) + time.Duration(passed.Load()))
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(within(t, time.Minute)); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { close(release) })
	before = scrapeAll(ctx, t, n)
	write(t, n.DB(), 0, 1)
	if err := set(ctx, n.DB(), rowOf(0), count, []byte("x")); err != nil {
		t.Fatal(err)
	}
	leaveLock(ctx, t, n.DB())
	awaitTrue(ctx, t, "one is parked, one is stuck", func() bool {
		after = scrapeAll(ctx, t, n)
		return after["n0"][`percolator_observer_parked{observer="fails"}`] > 0 &&
			after["n0"][`percolator_observer_stuck{observer="sleeps"}`] > 0
	})
	passed.Store(int64(10 * time.Minute))
	awaitTrue(ctx, t, "time has passed", func() bool {
		if _, err := handle.Client(n.DB()).Timestamp(ctx); err != nil {
			t.Fatal(err)
		}
		after = scrapeAll(ctx, t, n)
		return after["n0"][`percolator_observer_oldest_seconds{observer="sleeps"}`] > 300
	})
	return before, after
}

// leaveLock is a client that prewrites a cell and disconnects; its lock lives for an hour.
func leaveLock(ctx context.Context, t *testing.T, db *percolator.DB) {
	t.Helper()
	client := handle.Client(db)
	id, err := client.TableID(ctx, input.Table)
	if err != nil {
		t.Fatal(err)
	}
	start, err := client.Timestamp(ctx)
	if err != nil {
		t.Fatal(err)
	}
	cell := wire.CellPB(mvcc.Cell{Table: id, Row: "locked", Column: "c"})
	r, _, err := client.Send(ctx, wire.Position{Table: id, Row: "locked"}, &pb.TabletRequest{
		Op: &pb.TabletRequest_Prewrite{Prewrite: &pb.PrewriteRequest{
			StartTs: uint64(start), Primary: cell, Worker: &pb.Worker{},
			Expiry: uint64(mvcc.TimestampAt(start.Millis() + time.Hour.Milliseconds())),
			Writes: []*pb.CellWrite{{Cell: cell, Kind: pb.Kind_KIND_PUT, Value: []byte("x")}},
		}},
	})
	if err != nil || r.GetMutation().GetStatus() != pb.Status_STATUS_OK {
		t.Fatal(r, err)
	}
}

func loseReplies(ctx context.Context, t *testing.T) (before, after scrape) {
	cfg := node.DefaultConfig()
	cfg.Listen, cfg.HTTP, cfg.Insecure, cfg.Store.InMemory = "", "127.0.0.1:0", true, true
	n, err := nodeparts.Open[node.Node](ctx, cfg, nodeparts.Parts{Transport: func(inner txn.Transport) txn.Transport {
		return &cut{Transport: inner}
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(within(t, time.Minute)); err != nil {
			t.Error(err)
		}
	})
	if err := workload.Prepare(ctx, n.DB(), 2); err != nil {
		t.Fatal(err)
	}
	before = scrapeAll(ctx, t, n)
	column := percolator.Column{Table: workload.Table, Name: "v"}
	err = n.DB().Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
		tx.Set("00", column, []byte("x"))
		tx.Set("ff", column, []byte("x"))
		return nil
	})
	if !errors.Is(err, percolator.ErrCommitUnknown) {
		t.Fatal(err)
	}
	return before, scrapeAll(ctx, t, n)
}

func fillDisk(ctx context.Context, t *testing.T) (before, after scrape) {
	r := newRig(t, 1, func(_ int, c *node.Config) {
		c.HTTP, c.Dir, c.Store.InMemory = "127.0.0.1:0", t.TempDir(), false
		c.Logger = slog.New(slog.DiscardHandler)
	})
	before = scrapeAll(ctx, t, r.nodes...)
	r.free[0].Store(1)
	_ = r.stores[0].Room(0) // reads the free space
	after = scrapeAll(ctx, t, r.nodes...)
	r.free[0].Store(math.MaxUint64)
	_ = r.stores[0].Room(0)
	return before, after
}

func slowDisk(ctx context.Context, t *testing.T) (before, after scrape) {
	n := openWith(t, t.TempDir(), nodeparts.Parts{SyncDelay: 150 * time.Millisecond},
		func(c *node.Config) { c.HTTP = "127.0.0.1:0" })
	before = scrapeAll(ctx, t, n)
	if err := workload.Prepare(ctx, n.DB(), 1); err != nil {
		t.Fatal(err)
	}
	return before, scrapeAll(ctx, t, n)
}

func damageStore(ctx context.Context, t *testing.T) (before, after scrape) {
	dir := t.TempDir()
	first := open(t, dir, nil)
	if err := workload.Prepare(ctx, first.DB(), 4); err != nil {
		t.Fatal(err)
	}
	if err := first.Close(ctx); err != nil { // which writes a table
		t.Fatal(err)
	}
	n := open(t, dir, func(c *node.Config) {
		c.HTTP, c.Logger = "127.0.0.1:0", slog.New(slog.DiscardHandler)
	})
	before = scrapeAll(ctx, t, n)
	tables, err := filepath.Glob(filepath.Join(dir, "db", "*.sst"))
	if err != nil || len(tables) == 0 {
		t.Fatal(tables, err)
	}
	flipBit(t, tables[0])
	if err := n.VerifyStore(); err == nil {
		t.Fatal("the damage is not found")
	}
	return before, scrapeAll(ctx, t, n)
}

func setClock(ctx context.Context, t *testing.T) (before, after scrape) {
	r, before := cluster3(ctx, t)
	r.stop(2)
	r.ahead = map[int]time.Duration{2: 2 * time.Second}
	r.start(2)
	id := r.id(2)
	awaitTrue(ctx, t, "placement reads the clocks", func() bool {
		after = scrapeAll(ctx, t, r.nodes...)
		return after["n0"][fmt.Sprintf(`percolator_clock_offset_seconds{node="%d"}`, id)] > 1
	})
	return before, after
}

func expireSoon(ctx context.Context, t *testing.T) (before, after scrape) {
	dir := t.TempDir()
	if _, err := certs.CreateCA(certs.Request{Dir: dir}); err != nil {
		t.Fatal(err)
	}
	if _, err := certs.CreateNode(certs.Request{
		Dir: dir, Name: "n1", Hosts: []string{"127.0.0.1"}, Lifetime: 10 * 24 * time.Hour,
	}); err != nil {
		t.Fatal(err)
	}
	n := open(t, "", func(c *node.Config) {
		c.HTTP, c.Insecure, c.Certs = "127.0.0.1:0", false, dir
		c.Logger = slog.New(slog.DiscardHandler)
	})
	before = scrapeAll(ctx, t, n)
	return before, before
}

// expired is expireSoon with the metric set to a time in the past, since no node starts with an
// expired certificate.
func expired(ctx context.Context, t *testing.T) (before, after scrape) {
	before, _ = expireSoon(ctx, t)
	before["n0"][`percolator_certs_expiry_timestamp_seconds{file="node.crt"}`] = 1
	return before, before
}

// flood opens more connections to the client address than may shake hands at once.
func flood(ctx context.Context, t *testing.T) (before, after scrape) {
	n := open(t, "", func(c *node.Config) {
		c.Listen, c.HTTP, c.Logger = "127.0.0.1:0", "127.0.0.1:0", slog.New(slog.DiscardHandler)
	})
	before = scrapeAll(ctx, t, n)
	for range 512 + 200 {
		conn, err := net.Dial("tcp", n.Addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
	awaitTrue(ctx, t, "connections are closed", func() bool {
		after = scrapeAll(ctx, t, n)
		return after["n0"][`percolator_connections_displaced_total{listener="clients"}`] >= 200
	})
	return before, after
}

// overload runs many clients that write into a tablet whose queue holds one operation.
func overload(ctx context.Context, t *testing.T) (before, after scrape) {
	n := open(t, t.TempDir(), func(c *node.Config) {
		c.HTTP, c.Batch.Tablet.QueueLimit = "127.0.0.1:0", 1
		c.Logger = slog.New(slog.DiscardHandler)
	})
	if err := workload.Prepare(ctx, n.DB(), 1); err != nil {
		t.Fatal(err)
	}
	db, err := percolator.Dial(ctx, []string{n.Addr()}, percolator.ClientConfig{Insecure: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	before = scrapeAll(ctx, t, n)
	writing, stop := context.WithCancel(ctx)
	var writers sync.WaitGroup
	defer writers.Wait()
	defer stop()
	for i := range 32 {
		writers.Go(func() {
			for writing.Err() == nil {
				_ = set(writing, db, fmt.Sprint(i),
					percolator.Column{Table: workload.Table, Name: "v"}, []byte("x"))
			}
		})
	}
	awaitTrue(ctx, t, "an operation is refused", func() bool {
		after = scrapeAll(ctx, t, n)
		return after["n0"][`percolator_client_errors_total{code="overloaded"}`] > 0
	})
	return before, after
}

// splitOften creates a table of four tablets where the policy allows five tablets in all.
func splitOften(ctx context.Context, t *testing.T) (before, after scrape) {
	n := open(t, "", func(c *node.Config) { c.HTTP, c.Splits.MaxTablets = "127.0.0.1:0", 5 })
	before = scrapeAll(ctx, t, n)
	spec := percolator.TableSpec{Name: "t", SplitKeys: []string{"a", "b", "c"}}
	if err := n.DB().CreateTable(ctx, spec); err != nil {
		t.Fatal(err)
	}
	return before, scrapeAll(ctx, t, n)
}

// otherMetrics checks that a sound node exports these metrics as 0, and changes their values: the
// faults themselves would take too long here. TestClosedReplicaIsSeen and TestStaleReplicaIsSeen
// cause two of them.
func otherMetrics(ctx context.Context, t *testing.T) (before, after scrape) {
	n := open(t, "", func(c *node.Config) { c.HTTP = "127.0.0.1:0" })
	before, after = scrapeAll(ctx, t, n), scrapeAll(ctx, t, n)
	for name, bad := range map[string]float64{
		"percolator_store_stalled": 1, "percolator_replicas_closed": 1,
		"percolator_replicas_found_stale_total": 1, "percolator_expiry_excess_lag_seconds": 601,
	} {
		if value, there := after["n0"][name]; !there || value != 0 {
			t.Errorf("%s is %v on a sound node", name, value)
		}
		after["n0"][name] = bad
	}
	return before, after
}
