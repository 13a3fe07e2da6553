package node

import (
	"context"
	"sync"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
)

// census keeps what the tablets' leaders last said of themselves, on all nodes. The jobs
// of meta's leader look at it in turn, and operators' requests: one request to each node,
// however many tablets there are, serves all that come soon after. Their goroutines wait
// for the nodes; two of them may be asking at once, which costs only traffic. It is safe
// for concurrent use.
type census struct {
	members cluster.Members
	status  *statuses

	mu    sync.Mutex
	taken time.Time // when asking began; zero: never
	last  []*pb.StatusResponse
}

// get returns what leaders have said no longer ago than age. Tablets of nodes that did
// not answer in time are missing. The messages are shared and must not be changed. The
// only errors are ctx's.
func (o *census) get(ctx context.Context, age time.Duration) ([]*pb.StatusResponse, error) {
	o.mu.Lock()
	taken, last := o.taken, o.last
	o.mu.Unlock()
	if !taken.IsZero() && time.Since(taken) < age {
		return last, nil
	}
	return o.take(ctx, true, func(uint64, *pb.NodeStatusResponse, time.Time, time.Time) {})
}

// take asks all nodes now; for leading see NodeStatusRequest. It calls saw, on several
// goroutines at once, with what each node has said of itself and with this node's times
// before and after the request.
func (o *census) take(ctx context.Context, leading bool,
	saw seenNode) ([]*pb.StatusResponse, error) {
	now := time.Now()
	all := o.ask(ctx, leading, saw)
	// What was cut short is not kept: it would be taken for all there is.
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	// Whoever began later has the newer answers, even if it was done earlier.
	if now.After(o.taken) {
		o.taken, o.last = now, all
	}
	return all, nil
}

// seenNode is called with what a node has said, and this node's times by which its clock
// can be compared.
type seenNode func(node uint64, s *pb.NodeStatusResponse, began, ended time.Time)

// lately is the census for a job that is content with answers up to age old.
type lately struct {
	*census
	age time.Duration
}

// Leaders implements splitter.Overview and collector.Overview.
func (l lately) Leaders(ctx context.Context) ([]*pb.StatusResponse, error) {
	return l.get(ctx, l.age)
}

// ask sends one request to each live node, all at once, and waits for all of them;
// statusTimeout bounds each.
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
