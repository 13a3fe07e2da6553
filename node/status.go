package node

import (
	"context"
	"errors"
	"slices"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/cluster/admin"
	"github.com/percolator-go/percolator/cluster/join"
	"github.com/percolator-go/percolator/cluster/route"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/version"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/node/hosting"
	"github.com/percolator-go/percolator/node/leaderjobs"
	"github.com/percolator-go/percolator/node/telemetry"
	"github.com/percolator-go/percolator/store"
)

// statuses assembles this node's status from its parts. Some fields are read from meta; while meta
// does not answer, the status repeats the last answer with its age. statuses owns those last
// answers, except for the node table, which package admin keeps. HTTP, operators, other nodes and
// the metrics call it concurrently; concurrent statuses share only those answers.
type statuses struct {
	cfg       Config
	self      join.Identity
	started   time.Time
	now       func() time.Time // by the oracle's clock
	store     *store.Store
	router    *route.Router
	peerNodes *cluster.PeerNodes
	oracle    *localOracle
	tablets   *tablets
	observers *hosting.Host
	policy    *cluster.PolicyView
	jobs      *leaderjobs.Jobs
	gate      *version.Gate
	health    *metaHealth
	certs     certificates
	addr      func() string // address for clients; empty: none, or the node does not serve yet
	httpAddr  func() string

	reported admin.Jobs                 // jobs that clients have reported to this node
	linked   admin.LastAnswer[[]string] // observers, sorted
}

// earlyStatus returns the status of a node that does not serve yet.
func earlyStatus(started time.Time) *pb.NodeStatusResponse {
	return &pb.NodeStatusResponse{Version: Version(), Program: version.Application(), StartedUnixMs: started.UnixMilli()}
}

// get returns the node's status within the lifetime of asker; for leading see NodeStatusRequest.
// Fields from meta and other nodes may be missing or stale. It fails only if asker has ended or,
// with leading, if the replicas have taken more than 1 s to answer.
func (s *statuses) get(asker context.Context, leading bool) (*pb.NodeStatusResponse, error) {
	ctx, cancel := context.WithTimeout(asker, time.Second)
	defer cancel()
	// Nothing above the test of leading sends a message to another node; the rest may query meta.
	// Placement's inputs (the time, full disks, damage) must be above that test: most of its polls
	// request leading tablets only.
	log, _ := s.tablets.logs.Stats()
	out := &pb.NodeStatusResponse{
		ClusterId: s.self.ClusterID, NodeId: s.self.NodeID, Incarnation: s.self.Incarnation,
		Version: Version(), Program: version.Application(), Listen: s.addr(), Http: s.httpAddr(),
		StartedUnixMs: s.started.UnixMilli(),
		LogBatches:    log.Batches.Count(), LogRequests: uint64(log.Batches.Sum), Observers: s.observers.Status(),
		Registering: s.observers.Unregistered(),
		Versions:    wire.VersionsPB(s.gate.Build()), Agreed: wire.AgreedPB(s.gate.Agreed()),
	}
	// The counters persist when meta's leadership moves: they count what was issued here.
	last, served, batches := s.oracle.stats()
	out.OracleLast, out.OracleServed, out.OracleBatches = uint64(last), served, batches
	// The slowest step: each replica that is not quiescent answers on its own actor. The time and
	// the other fields are read after this step.
	out.Tablets = s.tablets.statuses(ctx, leading)
	out.UnixMs = s.now().UnixMilli()
	out.Placement, out.Splits = s.jobs.PlacementStatus(), s.jobs.SplitsStatus()
	if err := s.store.WriteBlocked(); err != nil {
		out.WriteBlocked = err.Error()
	}
	if err := s.store.Damaged(); err != nil {
		out.Damaged = err.Error()
	}
	if leading { // for the statusCache, which must know that no leader is missing
		return out, ctx.Err()
	}
	// By asker, not ctx: slow replicas must not make meta appear silent.
	s.askMeta(asker, out)
	out.Certificates, out.Roleless = s.certs.status(), s.certs.roleless()
	out.Revoked = s.certs.revoked()
	out.Stale = s.tablets.stale()
	out.ClockSpeeds = clockSpeeds(s.tablets.liveness.Speeds())
	out.Jobs = s.reported.All(s.now())
	// A damaged store sets both fields: Damaged is for placement, Failed for operators.
	if err := errors.Join(s.store.Damaged(), s.tablets.failures.first()); err != nil {
		out.Failed = err.Error()
	}
	// The history is that of the tablets that have answered above.
	out.History = s.history(out.Tablets)
	out.Expiry = s.jobs.Expiry()
	s.disk(out)
	out.PolicyDiffers, out.MaxTablets = s.policy.Overruled(), s.policy.Now().GetSplitMaxTablets()
	return out, asker.Err()
}

// statusTimeout limits the wait for one node's status.
const statusTimeout = 2 * time.Second

// of returns the status of this node or another, restricted to led tablets if leading.
func (s *statuses) of(ctx context.Context, id uint64,
	leading bool) (*pb.NodeStatusResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	// Without a message, so that it also works on a single node.
	if id == s.self.NodeID {
		return s.get(ctx, leading)
	}
	return s.peerNodes.Status(ctx, id, &pb.NodeStatusRequest{Leading: leading})
}

// linkedTimeout bounds a status's request to meta. It is short, because a status must be available
// without meta.
const linkedTimeout = 300 * time.Millisecond

// askMeta sets which observers are linked, by meta's record, and, unless the node is alone,
// whether meta answers.
func (s *statuses) askMeta(ctx context.Context, out *pb.NodeStatusResponse) {
	asking, cancel := context.WithTimeout(ctx, linkedTimeout)
	defer cancel()
	began := time.Now()
	linked, err := s.observers.Linked(asking)
	if err == nil {
		names := make([]string, 0, len(linked))
		for name := range linked {
			names = append(names, name)
		}
		slices.Sort(names)
		s.linked.Set(names)
	}
	// Without an answer from meta, the status has meta's last answer and its age.
	out.Linked, out.LinkedAgeMs = s.linked.GetMs()
	if err == nil {
		out.LinkedAgeMs = 0
	}
	if s.peerNodes.Alone() {
		return // this node leads meta
	}
	// If asker has ended, the error is no evidence about meta.
	if ctx.Err() == nil {
		s.health.record(began, err)
	}
	out.Meta = s.health.status()
	out.Meta.LeaderNode = s.router.Leader(cluster.MetaTablet)
}

// history returns the progress of collection: the collector's view, if it runs here, and the lowest
// bound and safepoint of the given tablets, which are those of this node that have answered.
func (s *statuses) history(tablets []*pb.StatusResponse) *pb.HistoryStatus {
	out := &pb.HistoryStatus{BlockedBy: telemetry.CollectionOff}
	if c := s.jobs.Collection(); c != nil {
		out = c
	} else if !s.policy.Now().GetNoCollection() {
		out.BlockedBy = telemetry.LeaderKnows
	}
	first := true
	// A bound of 0 means that a tablet has none yet, and counts as the lowest, so first marks that
	// no tablet was seen.
	for _, t := range tablets {
		if end, bounded := wire.EndOf(t.GetTablet()); bounded &&
			!(wire.Position{Table: mvcc.FirstUserTable}).Less(end) {
			continue // meta has no history
		}
		if first || t.Bound < out.Bound {
			out.Bound = t.Bound
		}
		if first || t.Safepoint < out.Safepoint {
			out.Safepoint = t.Safepoint
		}
		first = false
		out.Collected += t.Collected
	}
	return out
}

// disk sets the disk usage and free space; nothing for a store in memory.
func (s *statuses) disk(out *pb.NodeStatusResponse) {
	if s.cfg.Store.InMemory {
		return
	}
	if free, err := s.store.FreeBytes(); err == nil {
		out.DiskFree = free
	}
	// This walks the store's directories: a status is not for hot paths.
	st := s.store.Stats()
	out.DiskUsed = st.DiskBytes
	out.Log = &pb.LogStatus{
		Dir: s.cfg.LogDir, DiskFree: st.LogFreeBytes,
		Segments: uint64(st.Log.Segments), Bytes: uint64(st.Log.Bytes),
		LiveBytes: uint64(st.Log.LiveBytes),
		Written:   st.Log.Written, Syncs: st.Log.Syncs.Count(),
		Unchecked: st.Unchecked, CheckpointAgeMs: st.CheckpointAge.Milliseconds(),
	}
}
