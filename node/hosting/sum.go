package hosting

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// An observer runs in every node and worker whose program registers it. This file asks all live
// nodes at once what they and the workers that report to them do for the observers, and adds up
// the answers. The caller's goroutine waits; one goroutine for each node is in flight
// meanwhile.

const (
	// runsTimeout bounds the request to other nodes, which answer from memory or ask their workers.
	runsTimeout = 500 * time.Millisecond
	// maxSummedRows bounds the rows of one observer in a sum.
	maxSummedRows = 64
)

// observerSums is all nodes' statistics of observers. Nodes are in the order of their ids.
type observerSums struct {
	status map[string]*pb.ObserverStatus // by observer
	nodes  map[string][]uint64           // nodes that run an observer, by its name
	// versions are the nodes of each registered version, by observer.
	versions map[string]map[uint32][]uint64
	silent   []uint64 // live nodes that did not answer in time
}

// sum asks all live nodes and returns after runsTimeout at the latest. Nodes that have
// not answered by then are in silent.
func (h *Host) sum(ctx context.Context) *observerSums {
	ctx, cancel := context.WithTimeout(ctx, runsTimeout)
	defer cancel()
	sums := &observerSums{
		status: map[string]*pb.ObserverStatus{}, nodes: map[string][]uint64{},
		versions: map[string]map[uint32][]uint64{},
	}
	// This node needs no message, and is included even if ctx has ended.
	sums.add(h.cfg.Self.NodeID, h.StatusOfAll())
	var (
		mu     sync.Mutex
		asking sync.WaitGroup
	)
	for _, node := range h.cfg.Peers.Alive() {
		// Each request is bounded by ctx, so that Wait below is too.
		asking.Go(func() {
			s, err := h.cfg.Peers.Status(ctx, node, &pb.NodeStatusRequest{Observers: true})
			mu.Lock()
			defer mu.Unlock()
			// Silent nodes are named, so that nobody takes the sum for complete.
			if err != nil {
				sums.silent = append(sums.silent, node)
				return
			}
			sums.add(node, s.GetObservers())
		})
	}
	asking.Wait()
	// In order, so that two answers can be compared and a page does not jump.
	slices.Sort(sums.silent)
	for _, nodes := range sums.nodes {
		slices.Sort(nodes)
	}
	return sums
}

// Run returns the reads and writes of the last run of an observer for a row in this process or in a
// worker that reports to it; nil if it is not remembered. It waits for workers while ctx lasts.
func (h *Host) Run(ctx context.Context, name, row string) *pb.ObserverRun {
	var newest *pb.ObserverRun
	if x := h.runs.Load(); x != nil {
		newest = x.dispatcher.Run(name, row)
	}
	for _, s := range h.workers.all() {
		if run := s.lastRun(ctx, name, row); run.GetStartTs() > newest.GetStartTs() {
			newest = run
		}
	}
	return newest
}

// RunEverywhere returns the newest Run of all live nodes that answer within runsTimeout.
func (h *Host) RunEverywhere(ctx context.Context, name, row string) *pb.ObserverRun {
	ctx, cancel := context.WithTimeout(ctx, runsTimeout)
	defer cancel()
	var mu sync.Mutex
	var asking sync.WaitGroup
	newest := h.Run(ctx, name, row)
	for _, node := range h.cfg.Peers.Alive() {
		asking.Go(func() {
			s, err := h.cfg.Peers.Status(ctx, node, &pb.NodeStatusRequest{RunObserver: name, RunRow: []byte(row)})
			mu.Lock()
			defer mu.Unlock()
			if run := s.GetRun(); err == nil && run.GetStartTs() > newest.GetStartTs() {
				newest = run
			}
		})
	}
	asking.Wait()
	return newest
}

// add adds the status of a node's observers. Counters are summed; the limit is the highest,
// since it holds for each node; of the waits for an external service the sum has the longest time
// waited so far and the earliest next attempt; it keeps the rows that have run longest. The other
// fields are those of the node that was added first.
func (s *observerSums) add(node uint64, here []*pb.ObserverStatus) {
	for _, o := range here {
		s.nodes[o.Name] = with(s.nodes[o.Name], node)
		if s.versions[o.Name] == nil {
			s.versions[o.Name] = map[uint32][]uint64{}
		}
		s.versions[o.Name][o.Version] = with(s.versions[o.Name][o.Version], node)
		sum := s.status[o.Name]
		// Copied, because the sum is added to in place and the message may be shared.
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
		sum.Waiting, sum.Stuck = sum.Waiting+o.Waiting, sum.Stuck+o.Stuck
		sum.Contended, sum.Unserved = sum.Contended+o.Contended, sum.Unserved+o.Unserved
		sum.Refused, sum.Outside = sum.Refused+o.Refused, mergeOutside(sum.Outside, o.Outside)
		sum.RunUs += o.RunUs
		sum.Limit = max(sum.Limit, o.Limit)
		sum.Rows = append(sum.Rows, o.Rows...)
		slices.SortStableFunc(sum.Rows, func(a, b *pb.ObserverRow) int {
			return cmp.Compare(b.GetRunningMs(), a.GetRunningMs())
		})
		sum.Rows = sum.Rows[:min(len(sum.Rows), maxSummedRows)]
	}
}

// with adds the node unless it is the last one: a node and the workers that report to it are added
// together.
func with(nodes []uint64, node uint64) []uint64 {
	if n := len(nodes); n > 0 && nodes[n-1] == node {
		return nodes
	}
	return append(nodes, node)
}

// StatesEverywhere returns what waits for observers, according to meta and the tablets'
// leaders, and what all nodes do for them. It asks both at once.
func (h *Host) StatesEverywhere(ctx context.Context) ([]*pb.ObserverState, error) {
	var sums *observerSums
	var asking sync.WaitGroup
	asking.Go(func() { sums = h.sum(ctx) })
	// sums belongs to the goroutine until Wait returns.
	states, err := h.waiting(ctx)
	asking.Wait()
	if err != nil {
		return nil, err
	}
	for _, o := range states {
		name := o.GetInfo().GetName()
		o.Status, o.Nodes, o.Silent = sums.status[name], sums.nodes[name], sums.silent
		o.Versions = sums.versionsOf(name)
	}
	return states, nil
}

// versionsOf returns the versions of an observer, lowest first, with their nodes in order.
func (s *observerSums) versionsOf(name string) (out []*pb.ObserverVersion) {
	nodes := s.versions[name]
	for _, v := range slices.Sorted(maps.Keys(nodes)) {
		slices.Sort(nodes[v])
		out = append(out, &pb.ObserverVersion{Version: v, Nodes: nodes[v]})
	}
	return out
}
