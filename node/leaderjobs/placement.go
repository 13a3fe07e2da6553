package leaderjobs

import (
	"context"
	"time"

	"github.com/percolator-go/percolator/actors/oracle"
	"github.com/percolator-go/percolator/actors/placement"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster/meta"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/policy"
)

// This file starts placement and gives it what it needs of the node. It owns what placement
// keeps of the nodes' answers (lastAnswers): the goroutines of a poll write them one at a time, and
// the job's goroutine reads them between polls. Any goroutine may wake the job or read its status.

// startPlacement starts the job that decides where replicas and leaders are, unless this
// node is configured without.
func (l *Jobs) startPlacement() error {
	tune := l.cfg.Node.Placement
	if tune.Off {
		return nil
	}
	// The policy's settings are fixed for a job: after a change of the policy the worker of changes
	// ends the job and starts another (Follow). The other settings are this node's own and may
	// differ between leaders of meta.
	p, err := placement.Spawn(l.cfg.System, placement.Config{
		Meta: struct {
			*meta.NodeTable
			*meta.TabletMap
			*meta.Moves
		}{l.cfg.Meta.Nodes, l.cfg.Meta.Tablets, l.cfg.Meta.Moves},
		Cluster:     placedCluster{l, &lastAnswers{clocks: &l.clocks}},
		Replicas:    int(l.policy.GetReplicas()),
		GoneAfter:   policy.Millis(l.policy.GetGoneAfterMs()),
		ForgetAfter: policy.Millis(l.policy.GetForgetAfterMs()),
		Interval:    tune.Interval, Busy: tune.Busy, Rest: tune.Rest, Logger: l.cfg.Node.Logger,
	})
	return began(l, &l.placement, p, "the placement", err)
}

// Place wakes placement, if it runs here.
func (l *Jobs) Place() {
	if j := l.placement.Load(); j != nil {
		j.Wake()
	}
}

// Offsets implements telemetry.Jobs. The offsets stay as they were when leadership goes.
func (l *Jobs) Offsets() map[uint64]time.Duration { return l.clocks.Last() }

// PlacementStatus returns placement's status; nil if it does not run here.
func (l *Jobs) PlacementStatus() *pb.PlacementStatus {
	if j := l.placement.Load(); j != nil {
		return j.Status()
	}
	return nil
}

// placedCluster is the cluster as placement sees and changes it. The job's own goroutine
// calls it, one call at a time.
type placedCluster struct {
	jobs *Jobs
	*lastAnswers
}

// lastAnswers holds the nodes' answers to placement's last poll. It is new with each start of the
// job. During a poll several goroutines write to it, one at a time; placement reads it between
// polls. A node that has not answered is in neither list.
type lastAnswers struct {
	clocks  *oracle.Offsets
	full    []uint64 // nodes that refuse writes for lack of disk space or the like
	damaged []uint64 // nodes whose stores are damaged
	polls   int      // number of polls so far
}

// wholePoll is the number of polls of which one covers all replicas. The others cover only the
// tablets that nodes know themselves to lead, because most replicas follow and have nothing to
// report. The whole poll finds a leader that its node does not know.
const wholePoll = 12

// Alive implements placement.Cluster.
func (p placedCluster) Alive() []uint64 {
	var out []uint64
	for _, m := range p.jobs.cfg.Members.Alive() {
		out = append(out, m.NodeID)
	}
	return out
}

// Timestamp implements placement.Cluster.
func (p placedCluster) Timestamp(ctx context.Context) (mvcc.Timestamp, error) {
	return p.jobs.cfg.Client.Timestamp(ctx)
}

// Send implements placement.Cluster.
func (p placedCluster) Send(ctx context.Context, tablet uint64,
	req *pb.TabletRequest) (*pb.TabletResponse, error) {
	return p.jobs.cfg.Send(ctx, tablet, req)
}

// AheadClocks implements placement.Cluster.
func (p placedCluster) AheadClocks() []uint64 { return p.clocks.Ahead(p.jobs.cfg.Node.MaxClockAhead) }

// FullDisks implements placement.Cluster.
func (p placedCluster) FullDisks() []uint64 { return p.full }

// DamagedStores implements placement.Cluster.
func (p placedCluster) DamagedStores() []uint64 { return p.damaged }

// Statuses implements placement.Cluster. It polls all nodes at once and waits for them.
func (p placedCluster) Statuses(ctx context.Context) ([]*pb.StatusResponse, error) {
	// The previous answer of a node that does not answer this poll is not kept: another node, with
	// another disk and clock, may have replaced it.
	p.clocks.Forget()
	p.full, p.damaged = nil, nil
	leading := p.polls%wholePoll != 0
	p.polls++
	return p.jobs.statuses.poll(ctx, leading,
		func(node uint64, s *pb.NodeStatusResponse, began, ended time.Time) {
			// The node read its clock at some time between request and answer: the longer the two
			// are apart, the less accurate the comparison.
			p.clocks.Saw(node, s.GetUnixMs(), began, ended, p.jobs.cfg.Node.MaxClockAhead)
			if s.GetWriteBlocked() != "" {
				p.full = append(p.full, node)
			}
			if s.GetDamaged() != "" {
				p.damaged = append(p.damaged, node)
			}
		})
}
