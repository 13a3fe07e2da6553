package leaderjobs

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/cluster/meta"
	"github.com/percolator-go/percolator/cluster/route"
	"github.com/percolator-go/percolator/internal/version"
	"github.com/percolator-go/percolator/node/config"
)

// stuckJob is a job that does not end before it is released.
type stuckJob chan struct{}

func (j stuckJob) Stop(ctx context.Context) error {
	select {
	case <-j:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// TestNoJobsBesideLateOnes: the jobs of the next term wait for a job of the last term that has not
// ended in time.
func TestNoJobsBesideLateOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		started := 0 // each start begins by reading the policy
		m := meta.New(func(context.Context, uint64, *pb.TabletRequest) (*pb.TabletResponse, error) {
			started++
			return nil, errors.New("no policy")
		}, route.NewRouter(), nil)
		logger := slog.New(slog.DiscardHandler)
		stuck := stuckJob(make(chan struct{}))
		known := cluster.NewPolicyView(cluster.PolicyConfig{Own: &pb.Policy{}})
		known.Follow(m.Policy, version.NewGate(version.Known(), 0, nil), nil)
		jobs := &Jobs{
			cfg: Config{Node: config.Config{Logger: logger}, Policy: known}, running: []job{stuck}, started: true,
		}
		ctx := t.Context()
		jobs.Follow(ctx, false)
		jobs.Follow(ctx, true)
		if started > 0 {
			t.Error("jobs are started beside one of the last term")
		}
		close(stuck)
		jobs.Follow(ctx, true)
		if started == 0 {
			t.Error("no jobs are started after the last one has ended")
		}
	})
}

// lastTurn is a timers job that counts pending timers once more while it ends.
type lastTurn struct{ pending *atomic.Int64 }

func (j lastTurn) Stop(context.Context) error {
	j.pending.Store(7)
	return nil
}

// TestEndedTimersCountNothing: after this node's timers job has ended, another node's counts.
func TestEndedTimersCountNothing(t *testing.T) {
	jobs := &Jobs{}
	jobs.running = []job{lastTurn{&jobs.timers.Pending}}
	if err := jobs.End(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := jobs.timers.Pending.Load(); n != 0 {
		t.Errorf("%d timers are said to wait by a job that has ended", n)
	}
}
