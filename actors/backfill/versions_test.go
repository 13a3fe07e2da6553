package backfill_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/actors/backfill"
	"github.com/percolator-go/percolator/actors/observer"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/actorkit"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/notify"
	"github.com/percolator-go/percolator/internal/notifytest"
)

const versionRows = 120

// versionsRig is a column whose observer runs in processes of several versions.
type versionsRig struct {
	cluster *notifytest.Cluster
	m       *meta
}

// node starts a process with a version of the observer; it stops at the end of t.
func (r *versionsRig) node(t *testing.T, id uint64, version int, old bool) *notifytest.Node {
	t.Helper()
	return notifytest.Start(t, notifytest.NodeConfig{
		Cluster: r.cluster, ID: id, Scanners: 2,
		Register: func(reg *percolator.Registry) {
			reg.Strong("reader", raw, func(context.Context, *percolator.Tx, percolator.Notification) error {
				return nil
			}, percolator.Version(version))
		},
		Observer: func(c *observer.Config) { c.Versions = func() bool { return !old } },
	})
}

// write changes the rows numbered from one number to another and waits until they have run.
func (r *versionsRig) write(t *testing.T, n *notifytest.Node, from, before int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	err := n.DB.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
		for i := from; i < before; i++ {
			tx.Set(fmt.Sprintf("%04d", i), raw, []byte("text"))
		}
		return nil
	})
	if err == nil {
		err = n.DB.WaitIdle(ctx)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// versions returns the number of rows by the version of their last run.
func (r *versionsRig) versions(t *testing.T, n *notifytest.Node) map[uint32]int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	s, err := n.Client.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	acks := make([]mvcc.Cell, versionRows)
	for i := range acks {
		acks[i] = notify.AckCell(n.Cell(raw.Table, fmt.Sprintf("%04d", i), raw.Name), "reader")
	}
	records, err := s.GetRecords(ctx, acks...)
	if err != nil {
		t.Fatal(err)
	}
	out := map[uint32]int{}
	for _, rec := range records {
		_, version, err := notify.DecodeAck(rec.Value)
		if err != nil || !rec.Found {
			t.Fatalf("%+v: %v", rec, err)
		}
		out[version]++
	}
	return out
}

// replay replays the rows below a version with a job that is stopped halfway and started again. It
// returns the record and the number of rows that the process ran.
func (r *versionsRig) replay(t *testing.T, n *notifytest.Node, below uint32) (*pb.Backfill, uint64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	r.m = &meta{failEach: 2, observer: &pb.ObserverInfo{
		Name: "reader", Table: uint32(n.Tables[raw.Table]), TableName: raw.Table, Column: []byte(raw.Name),
	}}
	r.m.record = &pb.Backfill{Name: "reader", Ts: uint64(r.cluster.Timestamps(1)), BelowVersion: below}
	before := n.Stats("reader").Commits
	for _, until := range []func() bool{
		func() bool { return r.m.examined() > versionRows/3 },
		func() bool { return r.m.examined() == versionRows && r.m.ended() },
	} {
		system := actorkit.NewSystem(slog.New(slog.DiscardHandler))
		job, err := backfill.Spawn(system, backfill.Config{
			Meta: r.m, Client: n.Client, Page: 10, PaceRetry: time.Millisecond, PaceIdle: 5 * time.Millisecond,
			Waiting: func(ctx context.Context, _ string) (uint64, error) { return 0, n.DB.WaitIdle(ctx) },
		})
		if err != nil {
			t.Fatal(err)
		}
		notifytest.Eventually(t, time.Minute, "examined", until)
		if err := job.Stop(ctx); err != nil {
			t.Fatal(err)
		}
		system.Shutdown()
	}
	n.WaitIdle(t)
	return r.m.record, n.Stats("reader").Commits - before
}

func (m *meta) examined() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.record.GetExamined()
}

func (m *meta) ended() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.record.GetDone()
}

// TestReplayBelowVersion: some rows last ran in a build without versions, some under either of two
// concurrent versions, some under the newest during the replay. The replay runs exactly those whose
// last run was of an older version, also if the job is stopped halfway.
func TestReplayBelowVersion(t *testing.T) {
	r := &versionsRig{cluster: notifytest.NewCluster()}
	t.Run("without versions", func(t *testing.T) {
		n := r.node(t, 1, 3, true)
		r.write(t, n, 0, versionRows)
		if got := r.versions(t, n); got[0] != versionRows {
			t.Errorf("VERSION-BEFORE-FINAL: versions before the upgrade: %v", got)
		}
	})
	t.Run("rolling deploy", func(t *testing.T) {
		one := r.node(t, 1, 1, false)
		r.write(t, one, 0, 5)
		two := r.node(t, 2, 2, false)
		r.write(t, two, 5, 60)
		if got := r.versions(t, two); got[1] < 5 || got[1]+got[2] != 60 {
			t.Errorf("versions of two processes: %v", got)
		}
	})
	t.Run("back, and forward again", func(t *testing.T) {
		t.Run("back", func(t *testing.T) { r.write(t, r.node(t, 1, 1, false), 20, 25) })
		n := r.node(t, 1, 2, false)
		r.write(t, n, 80, 90) // rerun by the newer version
		was := r.versions(t, n)
		record, runs := r.replay(t, n, 2)
		// Rows excludes those of pages that were marked and run before their record was stored.
		if older := uint64(was[0] + was[1]); runs != older || record.Rows > older || was[1] < 5 {
			t.Errorf("REPLAYED-NEWER: %d runs, of rows with the versions %v; %v", runs, was, record)
		}
		if got := r.versions(t, n); got[2] != versionRows {
			t.Errorf("versions after the replay: %v", got)
		}
		if record, runs := r.replay(t, n, 2); runs != 0 || record.Rows != 0 || record.Examined != versionRows {
			t.Errorf("a second replay ran %d: %v", runs, record)
		}
	})
}
