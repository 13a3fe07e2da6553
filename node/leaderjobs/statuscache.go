package leaderjobs

import (
	"context"
	"sync"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
)

// StatusCache keeps the statuses of tablets that the live nodes returned when they were last
// polled. The jobs of meta's leader and operators' requests read it: one request to each node,
// however many tablets there are, serves all readers within a short time.
//
// It owns the statuses of the last poll. Callers poll on their own goroutines and wait for the
// nodes. Two of them may be polling concurrently, which costs only traffic.
type StatusCache struct {
	members cluster.Members
	status  func(ctx context.Context, node uint64, leading bool) (*pb.NodeStatusResponse, error)
	now     func() time.Time

	mu     sync.Mutex
	polled time.Time // when the last poll began; zero: there was none
	last   []*pb.StatusResponse
}

// Get returns the statuses of the last poll, or polls if that began age or longer ago.
// Tablets of nodes that did not answer in time are missing. The messages are shared and
// must not be changed. The only errors are ctx's.
func (c *StatusCache) Get(ctx context.Context, age time.Duration) ([]*pb.StatusResponse, error) {
	c.mu.Lock()
	polled, last := c.polled, c.last
	c.mu.Unlock()
	if !polled.IsZero() && time.Since(polled) < age {
		return last, nil
	}
	return c.poll(ctx, true, func(uint64, *pb.NodeStatusResponse, time.Time, time.Time) {})
}

// nodeAnswered is called with the status of a node, and with this node's time before and
// after the request, to which the node's clock can be compared.
type nodeAnswered func(node uint64, s *pb.NodeStatusResponse, began, ended time.Time)

// poll sends one request to each live node, all at once, and waits for all of them;
// the status function bounds each. For leading see NodeStatusRequest. It calls answered once for
// each node that answers, one call at a time.
func (c *StatusCache) poll(ctx context.Context, leading bool,
	answered nodeAnswered) ([]*pb.StatusResponse, error) {
	var (
		began = time.Now()
		mu    sync.Mutex // guards all, and serializes the calls of answered
		all   []*pb.StatusResponse
		runs  sync.WaitGroup
	)
	for _, m := range c.members.Alive() {
		runs.Go(func() {
			sent := c.now()
			s, err := c.status(ctx, m.NodeID, leading)
			if err != nil {
				return // its tablets are missing, unless another node leads them
			}
			mu.Lock()
			defer mu.Unlock()
			answered(m.NodeID, s, sent, c.now())
			all = append(all, s.GetTablets()...)
		})
	}
	runs.Wait()
	// A poll that ctx has cut short is not kept: readers would take it for complete.
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	// The poll that began last has the newest answers, even if it ended first.
	if began.After(c.polled) {
		c.polled, c.last = began, all
	}
	return all, nil
}

// recentStatuses is the StatusCache for a job to which statuses up to age old are new
// enough.
type recentStatuses struct {
	*StatusCache
	age time.Duration
}

// Leaders implements the Overview of the splitter, the merger and the collector.
func (r recentStatuses) Leaders(ctx context.Context) ([]*pb.StatusResponse, error) {
	return r.Get(ctx, r.age)
}
