package node_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/health"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/node"
)

// TestHarmIsFound: the cluster's status, which `doctor` and the console show, reports a fault
// within 5 s, with a remedy.
func TestHarmIsFound(t *testing.T) {
	t.Parallel()
	ctx := within(t, 2*time.Minute)
	fails := func(context.Context, *percolator.Tx, percolator.Notification) error {
		return errors.New("always")
	}
	r := three(ctx, t, 1, func(_ int, c *node.Config) {
		quick(c)
		c.Logger = slog.New(slog.DiscardHandler)
		c.Observers = func(r *percolator.Registry) { r.Strong("fails", input, fails, percolator.MaxAttempts(1)) }
	})
	r.lead(ctx, cluster.MetaTablet, 0)
	asked := r.nodes[0]

	if err := set(ctx, asked.DB(), "r", input, []byte("x")); err != nil {
		t.Fatal(err)
	}
	found(ctx, t, asked, health.ObserverParked, "notify replay fails --all-parked")

	oldLock(ctx, t, asked.DB())
	found(ctx, t, asked, health.LockOld, "lock resolve")

	r.free[2].Store(1)
	found(ctx, t, asked, health.WritesRefused, "Free space")

	r.halted[1].Store(time.Now().UnixNano())
	found(ctx, t, asked, health.ClockOff, "Set its clock")
	r.halted[1].Store(0)

	r.crash(2)
	found(ctx, t, asked, health.NodeAway, "Start it again")
	found(ctx, t, asked, health.NoSpare, "")

	r.crash(1)
	found(ctx, t, asked, health.NoQuorum, "Start")
}

// oldLock leaves the lock of a client that disconnected two minutes ago.
func oldLock(ctx context.Context, t *testing.T, db *percolator.DB) {
	t.Helper()
	id, err := handle.Client(db).TableID(ctx, input.Table)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	cell := wire.CellPB(mvcc.Cell{Table: id, Row: "locked", Column: "c"})
	r, _, err := handle.Client(db).Send(ctx, wire.Position{Table: id, Row: "locked"}, &pb.TabletRequest{
		Op: &pb.TabletRequest_Prewrite{Prewrite: &pb.PrewriteRequest{
			StartTs: uint64(mvcc.TimestampAt(now.Add(-2 * time.Minute).UnixMilli())),
			Expiry:  uint64(mvcc.TimestampAt(now.Add(time.Hour).UnixMilli())),
			Primary: cell, Worker: &pb.Worker{},
			Writes: []*pb.CellWrite{{Cell: cell, Kind: pb.Kind_KIND_PUT, Value: []byte("x")}},
		}},
	})
	if err != nil || r.GetMutation().GetStatus() != pb.Status_STATUS_OK {
		t.Fatal(r, err)
	}
}

// found fails unless the node reports the fault and the remedy within 5 s.
func found(ctx context.Context, t *testing.T, n *node.Node, kind, remedy string) {
	t.Helper()
	within5s(ctx, t, kind, func() (bool, any) {
		status, err := handle.Client(n.DB()).Admin().ClusterStatus(ctx, &pb.ClusterStatusRequest{})
		for _, f := range status.GetFindings() {
			if f.Kind == kind && strings.Contains(f.Remedy, remedy) {
				return true, nil
			}
		}
		return false, fmt.Sprint(status.GetFindings(), err)
	})
}

// runningTime returns a function that returns the time, since this call and until ctx ends, in which
// this process ran, in units of 50 ms. Deadlines of this time do not fail because a busy machine
// gives the process no processor.
func runningTime(ctx context.Context) func() time.Duration {
	const tick = 50 * time.Millisecond
	var ticks atomic.Int64 // a ticker drops ticks while the process waits for a processor
	go func() {
		every := time.NewTicker(tick)
		defer every.Stop()
		for {
			select {
			case <-every.C:
				ticks.Add(1)
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() time.Duration { return time.Duration(ticks.Load()) * tick }
}

// within5s fails unless the condition holds within 5 s of runningTime; other findings are logged.
func within5s(ctx context.Context, t *testing.T, what string, isTrue func() (ok bool, instead any)) {
	t.Helper()
	const limit = 5 * time.Second
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	began, ran := time.Now(), runningTime(ctx)
	awaitTrue(ctx, t, what, func() bool {
		ok, instead := isTrue()
		if !ok && ran() > limit {
			t.Fatalf("%s is not found within %v: %v", what, limit, instead)
		}
		return ok
	})
	t.Logf("%s: found after %v", what, time.Since(began).Round(time.Millisecond))
}
