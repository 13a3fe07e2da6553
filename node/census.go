package node

import (
	"context"
	"sync"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
)

// census is what the tablets' leaders say of themselves, on all nodes. The jobs of meta's
// leader look at it in turn: one question to each node, however many tablets there are,
// serves those that come soon after. Safe for concurrent use.
type census struct {
	members cluster.Members
	status  *statuses

	mu    sync.Mutex
	taken time.Time // when asking began; zero: never
	last  []*pb.StatusResponse
}

// get is what leaders have said no longer ago than age, of those that have answered in
// time: the tablets of the others are missing. The messages are shared, not to be
// changed. Errors: ctx's.
func (o *census) get(ctx context.Context, age time.Duration) ([]*pb.StatusResponse, error) {
	o.mu.Lock()
	taken, last := o.taken, o.last
	o.mu.Unlock()
	if !taken.IsZero() && time.Since(taken) < age {
		return last, nil
	}
	return o.take(ctx, true, func(uint64, *pb.NodeStatusResponse, time.Time, time.Time) {})
}

// take asks all nodes now; leading: see NodeStatusRequest. saw is told, on any goroutine,
// what each one has said of itself, and between which times of this node's.
func (o *census) take(ctx context.Context, leading bool,
	saw seenNode) ([]*pb.StatusResponse, error) {
	now := time.Now()
	all := o.ask(ctx, leading, saw)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if now.After(o.taken) {
		o.taken, o.last = now, all
	}
	return all, nil
}

// seenNode is told what a node has said.
type seenNode func(node uint64, s *pb.NodeStatusResponse, began, ended time.Time)

// lately is the census as some jobs see it, which do not mind that it is so old.
type lately struct {
	*census
	age time.Duration
}

// Leaders implements splitter.Overview and collector.Overview.
func (l lately) Leaders(ctx context.Context) ([]*pb.StatusResponse, error) {
	return l.get(ctx, l.age)
}

// ask puts one question to each node, all at once.
func (o *census) ask(ctx context.Context, leading bool, saw seenNode) []*pb.StatusResponse {
	var (
		mu   sync.Mutex
		out  []*pb.StatusResponse
		runs sync.WaitGroup
	)
	for _, m := range o.members.Alive() {
		runs.Go(func() {
			began := o.status.now()
			s, err := o.status.of(ctx, m.NodeID, leading)
			if err != nil {
				return // its tablets are left as they are, or have other leaders
			}
			saw(m.NodeID, s, began, o.status.now())
			mu.Lock()
			defer mu.Unlock()
			out = append(out, s.GetTablets()...)
		})
	}
	runs.Wait()
	return out
}
