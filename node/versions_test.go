package node_test

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/version"
	"github.com/percolator-go/percolator/node"
)

// versioned returns the registration of an observer in that version, and of a weak one.
func versioned(v int) func(*percolator.Registry) {
	nothing := func(context.Context, *percolator.Tx, percolator.Notification) error { return nil }
	return func(r *percolator.Registry) {
		r.Strong("index", adminText, nothing, percolator.Version(v))
		r.Weak("wake", adminWake, nothing, percolator.Version(v))
	}
}

// TestVersionsOfTwoProcesses: while two versions of an observer run, the nodes of each are listed,
// and a replay below the higher one is refused; below the lower one it runs no row that either has
// processed.
func TestVersionsOfTwoProcesses(t *testing.T) {
	r := newRig(t, 2, func(i int, c *node.Config) {
		quick(c)
		c.Observers = versioned(i + 1)
	})
	ctx, db := within(t, time.Minute), r.nodes[0].DB()
	a, ids := db.Admin(), []uint64{r.nodes[0].Status().NodeId, r.nodes[1].Status().NodeId}
	if err := db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
		for _, row := range []string{"a", "b", "c"} {
			tx.Set(row, adminText, []byte("text"))
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	waitIdle(t, r.nodes[0])
	eventually(t, "both versions are listed", func() bool {
		observers, err := a.Observers(ctx)
		return err == nil && len(observers) == 2 && reflect.DeepEqual(observers[0].Runs.Versions,
			[]percolator.ObserverVersion{{Version: 1, Nodes: ids[:1]}, {Version: 2, Nodes: ids[1:]}})
	})
	_, err := a.ReplayObserver(ctx, "index", percolator.BelowVersion(2))
	if !errors.Is(err, percolator.ErrInvalid) || !strings.Contains(err.Error(), "version 1 of observer \"index\" runs on node") {
		t.Errorf("REPLAYED-BESIDE-OLDER: below a version that a node has not reached: %v", err)
	}
	if _, err := a.ReplayObserver(ctx, "wake", percolator.BelowVersion(1)); !errors.Is(err, percolator.ErrInvalid) {
		t.Errorf("of a weak observer: %v", err)
	}
	if _, err := a.ReplayObserver(ctx, "index", percolator.BelowVersion(-1)); !errors.Is(err, percolator.ErrInvalid) {
		t.Errorf("below a negative version: %v", err)
	}
	replay, err := a.ReplayObserver(ctx, "index", percolator.BelowVersion(1))
	if err != nil || replay.Below != 1 {
		t.Fatalf("%+v, %v", replay, err)
	}
	eventually(t, "the replay is done", func() bool {
		now, err := a.Replay(ctx, "index")
		return err == nil && now.State == percolator.ReplayDone && now.Rows == 0 && now.Examined == 3
	})
}

// TestVersionsAwaitTheUpgrade: while nodes of earlier builds may join, acknowledgments have no version, and
// a replay below one is refused.
func TestVersionsAwaitTheUpgrade(t *testing.T) {
	u := newUpgrader(t)
	u.register = versioned(2)
	u.replace("a", version.Known())
	db := u.up["a"].DB()
	_, err := db.Admin().ReplayObserver(within(t, time.Minute), "index", percolator.BelowVersion(2))
	if err == nil || !strings.Contains(err.Error(), "needs the cluster to be at version 6") {
		t.Errorf("before the upgrade is final: %v", err)
	}
}
