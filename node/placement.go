package node

import (
	"context"
	"fmt"
	"time"

	"github.com/percolator-go/percolator/actors/oracle"
	"github.com/percolator-go/percolator/actors/placement"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/policy"
)

// This file gives placement what it needs of the node: it starts the job and shows it the
// cluster. It owns what placement remembers of the nodes' answers (polling). The job's
// own goroutine calls placed; anybody may wake it or read its status.

// startPlacement starts the job that decides where replicas and leaders are, unless this
// node is configured without.
func (l *leaderJobs) startPlacement() error {
	tune := l.cfg.Placement
	if tune.Off {
		return nil
	}
	p, err := placement.Spawn(l.system, placement.Config{
		Meta: l.meta, Cluster: placed{l, &polling{}}, Replicas: int(l.policy.GetReplicas()),
		GoneAfter:   policy.Millis(l.policy.GetGoneAfterMs()),
		ForgetAfter: policy.Millis(l.policy.GetForgetAfterMs()),
		Interval:    tune.Interval, Busy: tune.Busy, Rest: tune.Rest, Logger: l.cfg.Logger,
	})
	if err != nil {
		return fmt.Errorf("node: %w", err)
	}
	l.began(p, func() { l.placement = p })
	return nil
}

// place wakes placement, if it runs here.
func (l *leaderJobs) place() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.placement != nil {
		l.placement.Wake()
	}
}

// placementStatus returns placement's status; nil if it does not run here.
func (l *leaderJobs) placementStatus() *pb.PlacementStatus {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.placement == nil {
		return nil
	}
	return l.placement.Status()
}

// placed is the cluster as placement sees and changes it. The job's own goroutine calls
// it, one call at a time; Statuses asks all nodes at once and waits for them.
type placed struct {
	jobs *leaderJobs
	*polling
}

// polling is what placement remembers of the nodes' answers. It begins anew with each
// start of the job.
type polling struct {
	clocks oracle.Offsets
	disks  seenDisks
	asked  int // how often
}

// wholePoll is the number of polls of which one is about all replicas. The others are
// about those tablets that nodes know themselves to lead: most replicas follow, and have
// nothing to tell. The whole poll finds a leader that its node does not know of.
const wholePoll = 12

// Alive implements placement.Cluster.
func (p placed) Alive() []uint64 {
	var out []uint64
	for _, m := range p.jobs.members.Alive() {
		out = append(out, m.NodeID)
	}
	return out
}

// Timestamp implements placement.Cluster.
func (p placed) Timestamp(ctx context.Context) (mvcc.Timestamp, error) {
	return p.jobs.client.Timestamp(ctx)
}

// Send implements placement.Cluster.
func (p placed) Send(ctx context.Context, tablet uint64,
	req *pb.TabletRequest) (*pb.TabletResponse, error) {
	return p.jobs.send(ctx, tablet, req)
}

// AheadClocks implements placement.Cluster.
func (p placed) AheadClocks() []uint64 { return p.clocks.Ahead(p.jobs.cfg.MaxClockAhead) }

// FullDisks implements placement.Cluster.
func (p placed) FullDisks() []uint64 {
	full, _ := p.disks.get()
	return full
}

// DamagedStores implements placement.Cluster.
func (p placed) DamagedStores() []uint64 {
	_, damaged := p.disks.get()
	return damaged
}

// Statuses implements placement.Cluster: one question a node, all at once.
func (p placed) Statuses(ctx context.Context) ([]*pb.StatusResponse, error) {
	p.clocks.Forget()
	p.disks.forget()
	leading := p.asked%wholePoll != 0
	p.asked++
	return p.jobs.census.take(ctx, leading,
		func(node uint64, s *pb.NodeStatusResponse, began, ended time.Time) {
			p.clocks.Saw(node, s.GetUnixMs(), began, ended, p.jobs.cfg.MaxClockAhead)
			p.disks.saw(node, s)
		})
}
