package cluster

import (
	"context"
	"fmt"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/handle"
)

// Replicated waits until there are at least that many tablets, and every one has three replicas
// that vote: until then, a new cluster may not survive the loss of a node. It returns an error if
// ctx ends first.
func Replicated(ctx context.Context, db *percolator.DB, tablets int) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !replicated(ctx, db, tablets) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("cluster: the tablets do not have their replicas in time: %w", ctx.Err())
		}
	}
	return nil
}

func replicated(ctx context.Context, db *percolator.DB, tablets int) bool {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	const most = 1000
	found, err := handle.Client(db).Transport().Locate(ctx, 0, "", most)
	if err != nil || len(found) < tablets || len(found) == most {
		return false
	}
	for _, d := range found {
		n := 0
		for _, r := range d.Replicas {
			if !r.Learner && !r.Incoming && !r.Outgoing {
				n++
			}
		}
		if n != 3 {
			return false
		}
	}
	return true
}
