package node

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// An observer runs on every node whose program links it. Who lists the observers wants what all of
// them do: this file asks the nodes that are alive, all at once, and adds up. It runs on the
// asker's goroutine and keeps nothing.

const (
	// runsPatience bounds the question to other nodes: they answer from memory.
	runsPatience = 500 * time.Millisecond
	// maxSummedRows bounds the rows of one observer that a sum names.
	maxSummedRows = 64
)

// observerSums are what all nodes do for observers.
type observerSums struct {
	status map[string]*pb.ObserverStatus // by observer
	nodes  map[string][]uint64           // those that run it, by observer
	silent []uint64                      // alive, and have not answered in time
}

// status is the status of this node's observers alone.
func (obs *observers) status() *pb.NodeStatusResponse {
	return &pb.NodeStatusResponse{
		NodeId: obs.self.NodeID, Incarnation: obs.self.Incarnation,
		Observers: obs.runs.Load().status(),
	}
}

// sum asks all nodes.
func (obs *observers) sum(ctx context.Context) *observerSums {
	ctx, cancel := context.WithTimeout(ctx, runsPatience)
	defer cancel()
	sums := &observerSums{status: map[string]*pb.ObserverStatus{}, nodes: map[string][]uint64{}}
	sums.add(obs.self.NodeID, obs.runs.Load().status())
	var (
		mu     sync.Mutex
		asking sync.WaitGroup
	)
	for _, node := range obs.others.alive() {
		asking.Go(func() {
			s, err := obs.others.status(ctx, node, &pb.NodeStatusRequest{Observers: true})
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				sums.silent = append(sums.silent, node)
				return
			}
			sums.add(node, s.GetObservers())
		})
	}
	asking.Wait()
	slices.Sort(sums.silent)
	for _, nodes := range sums.nodes {
		slices.Sort(nodes)
	}
	return sums
}

// add takes in what a node says of its observers.
func (s *observerSums) add(node uint64, here []*pb.ObserverStatus) {
	for _, o := range here {
		s.nodes[o.Name] = append(s.nodes[o.Name], node)
		sum := s.status[o.Name]
		if sum == nil {
			s.status[o.Name] = proto.CloneOf(o)
			continue
		}
		sum.Runs, sum.Commits, sum.Conflicts = sum.Runs+o.Runs, sum.Commits+o.Commits,
			sum.Conflicts+o.Conflicts
		sum.Failures, sum.Parked, sum.Skipped = sum.Failures+o.Failures, sum.Parked+o.Parked,
			sum.Skipped+o.Skipped
		sum.Unavailable, sum.Collapsed = sum.Unavailable+o.Unavailable, sum.Collapsed+o.Collapsed
		sum.Running, sum.Queued = sum.Running+o.Running, sum.Queued+o.Queued
		sum.Waiting, sum.Stuck, sum.Contended = sum.Waiting+o.Waiting, sum.Stuck+o.Stuck,
			sum.Contended+o.Contended
		sum.Limit = max(sum.Limit, o.Limit)
		sum.Rows = append(sum.Rows, o.Rows...)
		slices.SortStableFunc(sum.Rows, func(a, b *pb.ObserverRow) int {
			return cmp.Compare(b.GetRunningMs(), a.GetRunningMs())
		})
		sum.Rows = sum.Rows[:min(len(sum.Rows), maxSummedRows)]
	}
}

// statesEverywhere is what waits for observers, as meta and the tablets' leaders say, and
// what all nodes do about it.
func (obs *observers) statesEverywhere(ctx context.Context) ([]*pb.ObserverState, error) {
	var sums *observerSums
	var asking sync.WaitGroup
	asking.Go(func() { sums = obs.sum(ctx) })
	states, err := obs.waiting(ctx)
	asking.Wait()
	if err != nil {
		return nil, err
	}
	for _, o := range states {
		name := o.GetInfo().GetName()
		o.Status, o.Nodes, o.Silent = sums.status[name], sums.nodes[name], sums.silent
	}
	return states, nil
}
