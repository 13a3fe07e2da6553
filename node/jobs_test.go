package node

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster/meta"
	"github.com/percolator-go/percolator/cluster/route"
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

// TestNoJobsBesideLateOnes: the jobs of the next term wait for one of the last term that
// has not ended in time.
func TestNoJobsBesideLateOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		started := 0 // each start begins with the policy
		m := meta.New(func(context.Context, uint64, *pb.TabletRequest) (*pb.TabletResponse, error) {
			started++
			return nil, errors.New("no policy")
		}, route.NewRouter())
		logger := slog.New(slog.DiscardHandler)
		stuck := stuckJob(make(chan struct{}))
		jobs := &leaderJobs{
			cfg:   Config{Logger: logger},
			known: &clusterPolicy{own: &pb.Policy{}, record: m.Policy}, running: []job{stuck}, started: true,
		}
		ctx := t.Context()
		jobs.follow(ctx, false)
		jobs.follow(ctx, true)
		if started > 0 {
			t.Error("jobs are started beside one of the last term")
		}
		close(stuck)
		jobs.follow(ctx, true)
		if started == 0 {
			t.Error("no jobs are started after the last one has ended")
		}
	})
}
