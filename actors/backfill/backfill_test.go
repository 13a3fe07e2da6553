package backfill_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/actors/backfill"
	"github.com/percolator-go/percolator/actors/scanner"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/actorkit"
	"github.com/percolator-go/percolator/internal/leaktest"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/notifytest"
	"github.com/percolator-go/percolator/internal/wire"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

var raw = percolator.Column{Table: "docs", Name: "raw"}

// meta stores one observer and its record. Every n-th save fails before it is stored, as in a
// crash.
type meta struct {
	mu       sync.Mutex
	observer *pb.ObserverInfo
	other    *pb.ObserverInfo // an observer that is not retired
	record   *pb.Backfill
	saves    int
	failEach int
}

var errCrash = errors.New("crash")

func (m *meta) Sync(context.Context) error { return nil }

func (m *meta) Catalogue(context.Context) (*pb.Catalogue, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := &pb.Catalogue{}
	if m.observer != nil {
		c.Observers = []*pb.ObserverInfo{proto.CloneOf(m.observer)}
	}
	if m.other != nil {
		c.Observers = append(c.Observers, proto.CloneOf(m.other))
	}
	return c, nil
}

func (m *meta) Backfills(context.Context, []*pb.ObserverInfo) (map[string]*pb.Backfill, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[string]*pb.Backfill{}
	if m.record != nil {
		out[m.record.Name] = proto.CloneOf(m.record)
	}
	return maps.Clone(out), nil
}

func (m *meta) SaveBackfill(_ context.Context, b *pb.Backfill) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.saves++; m.saves%m.failEach == 1 {
		return false, errCrash
	}
	m.record = proto.CloneOf(b)
	return !b.Done && b.Error == "", nil
}

func (m *meta) ForgetObserver(context.Context, string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.observer = nil
	return nil
}

func (m *meta) done() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.observer == nil || m.record.GetDone()
}

// TestPageMarkedTwice: a crash between marking a page and storing its record repeats the page, and
// no row runs twice: all marks of a back-fill have its timestamp. Retiring the observer removes its
// pending notifications and then its entry.
func TestPageMarkedTwice(t *testing.T) {
	const rows = 300
	cluster := notifytest.NewCluster()
	n := notifytest.Start(t, notifytest.NodeConfig{
		Cluster: cluster, Scanners: 2,
		Register: func(r *percolator.Registry) {
			r.Strong("reader", raw, func(context.Context, *percolator.Tx,
				percolator.Notification) error {
				return nil
			})
		},
	})
	table := n.Tables[raw.Table]
	cluster.Fill(table, raw.Name, rows, func(i int) string { return fmt.Sprintf("%04d", i) })
	m := &meta{
		failEach: 2, observer: &pb.ObserverInfo{
			Name: "reader", Table: uint32(table), TableName: raw.Table, Column: []byte(raw.Name),
		},
	}
	m.record = &pb.Backfill{Name: "reader", Ts: uint64(cluster.Timestamps(1))}
	system := actorkit.NewSystem(slog.New(slog.DiscardHandler))
	defer system.Shutdown()
	idle := func() {
		t.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := n.DB.WaitIdle(ctx); err != nil {
			t.Fatal(err)
		}
	}
	job, err := backfill.Spawn(system, backfill.Config{
		Meta: m, Client: n.Client, Page: 40, PaceRetry: 20 * time.Millisecond,
		PaceIdle: 10 * time.Millisecond,
		// each page runs before the next is marked
		Waiting: func(context.Context, string) (uint64, error) {
			idle()
			return 0, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	notifytest.Eventually(t, time.Minute, "done", m.done)
	idle()
	if s := n.Stats("reader"); s.Commits != rows || m.record.Rows != rows || m.saves < 16 {
		t.Errorf("%d rows were run for %d times; record %v after %d saves", rows, s.Commits,
			m.record, m.saves)
	}
	// Pending notifications of the retired observer, parked so that none runs.
	for i := range rows {
		cluster.Mark(n.Cell(raw.Table, fmt.Sprintf("%04d", i), raw.Name),
			mvcc.Notify{TS: cluster.Timestamps(1), ParkedTS: 1})
	}
	m.mu.Lock()
	m.observer.Retired = true
	m.mu.Unlock()
	job.Wake()
	notifytest.Eventually(t, time.Minute, "forgotten", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.observer == nil
	})
	if got := cluster.Dirty(); got != 0 {
		t.Errorf("%d notifications are left of a retired observer", got)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := job.Stop(ctx); err != nil {
		t.Error(err)
	}
}

// TestRetiredBesideAnother: when one of two observers of a column is retired, the intents and the
// other's notifications remain.
func TestRetiredBesideAnother(t *testing.T) {
	cluster := notifytest.NewCluster()
	nothing := func(context.Context, *percolator.Tx, percolator.Notification) error { return nil }
	n := notifytest.Start(t, notifytest.NodeConfig{
		Cluster: cluster, Scanners: -1, Hints: scanner.HintsOff, NoSweep: true,
		Register: func(r *percolator.Registry) {
			r.Weak("stays", raw, nothing)
			r.Weak("retired", raw, nothing)
		},
	})
	info := &pb.ObserverInfo{
		Name: "stays", Table: uint32(n.Tables[raw.Table]), TableName: raw.Table, Column: []byte(raw.Name),
		Weak: true,
	}
	retired := proto.CloneOf(info)
	retired.Name, retired.Retired, retired.OwnEntry = "retired", true, true
	cell := n.Cell(raw.Table, "row", raw.Name)
	cluster.Mark(cell, mvcc.Notify{TS: cluster.Timestamps(1)})
	cluster.Mark(wire.NotifyColumn(retired).Cell("row"), mvcc.Notify{TS: cluster.Timestamps(1)})
	ts := cluster.Timestamps(1)
	cluster.Apply([]mvcc.Mutation{{Group: mvcc.GroupIntent, Cell: cell, TS: ts, Intent: &mvcc.Intent{
		Primary: cell, Expiry: mvcc.MaxTimestamp,
	}}})
	m := &meta{failEach: 2, observer: retired, other: info}
	system := actorkit.NewSystem(slog.New(slog.DiscardHandler))
	defer system.Shutdown()
	job, err := backfill.Spawn(system, backfill.Config{Meta: m, Client: n.Client, PaceRetry: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	notifytest.Eventually(t, time.Minute, "forgotten", m.done)
	if _, there := cluster.Notification(cell); !there || cluster.Dirty() != 1 {
		t.Errorf("RETIRED-ANOTHER: the other's notification is there: %v; of %d", there, cluster.Dirty())
	}
	if !cluster.Locked(cell) {
		t.Error("INTENT-LOST: the intent for the other observer is gone")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := job.Stop(ctx); err != nil {
		t.Error(err)
	}
}

// TestSpawnRefuses: Spawn requires meta and a client.
func TestSpawnRefuses(t *testing.T) {
	if _, err := backfill.Spawn(nil, backfill.Config{}); !errors.Is(err, backfill.ErrInvalid) {
		t.Errorf("%v", err)
	}
}
