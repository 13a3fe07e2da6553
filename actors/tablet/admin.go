package tablet

import (
	"fmt"
	"log/slog"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/tracker"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// raiseMark raises the oracle's persisted mark to the maximum of both (design section 6):
// a raw operation, for a Percolator transaction would need a timestamp.
func (e *evaluation) raiseMark(call *Call, to uint64) {
	own := e.newProposal()
	own.command.RaiseMark = to
	own.answer(call, &pb.TabletResponse{Result: &pb.TabletResponse_Mark{Mark: &pb.MarkResponse{Term: e.term, Mark: max(to, e.mark)}}})
	e.ownEntry(own)
}

// ownEntry proposes a command that shares its entry with nothing, in order after what was
// evaluated before.
func (e *evaluation) ownEntry(p *proposal) (proposed bool) {
	e.propose(e.proposal)
	proposed = e.propose(p)
	e.proposal = e.newProposal()
	return proposed
}

func (t *Tablet) markResponse() *pb.TabletResponse {
	return &pb.TabletResponse{Result: &pb.TabletResponse_Mark{Mark: &pb.MarkResponse{Term: t.term, Mark: t.mark}}}
}

// setCatalogue takes a newer version of the catalogue; evaluation honours it from this
// moment (design section 7).
func (e *evaluation) setCatalogue(call *Call, message *pb.Catalogue) {
	response := mutationResponse(mvcc.Result{})
	if message.GetVersion() <= e.catalogue.version() {
		e.proposal.answer(call, response)
		return
	}
	own := e.newProposal()
	own.command.Catalogue = message
	own.answer(call, response)
	before := e.catalogue
	e.Tablet.catalogue = newCatalogue(message)
	if !e.ownEntry(own) {
		e.Tablet.catalogue = before
	}
}

func (t *Tablet) status(req *pb.StatusRequest) *pb.TabletResponse {
	last, _ := t.log.LastIndex()
	first, _ := t.log.FirstIndex()
	s := &pb.StatusResponse{
		Tablet: t.descriptor, Leader: t.leading, Term: t.term, AppliedIndex: t.visible, LastIndex: last, FirstIndex: first,
		CatalogueVersion: t.appliedCatalogue.version(), Locks: uint64(t.locks.len()),
		Bound: uint64(t.appliedBound), Safepoint: uint64(t.appliedSafepoint), Garbage: t.garbageWaiting(), Collected: t.collection.deleted,
		Reads: t.counters.reads, Mutations: t.counters.mutations, Batches: t.counters.batches, Proposals: t.counters.proposals,
		SizeBytes: t.size(req.GetMeasureAbove()), Load: t.loads.perSecond(time.Now(), t.counters.reads+t.counters.mutations),
		SizeKey: wire.Bytes(t.sizing.half), LoadKey: wire.Bytes(t.loads.half()),
		ReplicaId: t.replica, NodeId: t.cfg.NodeID, LeaderNode: t.nodeOfLeader(), LeaderlessMs: t.leaderless(), Quiescent: t.asleep, Replicas: t.progress(),
	}
	if t.beat != nil && t.asleep && t.failed == nil && req.GetMeasureAbove() != 0 && s.Load == 0 && t.loads.ops == t.counters.reads+t.counters.mutations {
		t.beat.said.Store(s)
	}
	return &pb.TabletResponse{Result: &pb.TabletResponse_Status{Status: s}}
}

// unsay has the next one who wants to know the replica's status ask it: something happens
// to it, but a question for that.
func (t *Tablet) unsay(message any) {
	if call, ok := message.(*Call); ok && call.Req.GetStatus() != nil {
		return
	}
	if t.beat != nil && t.beat.said.Load() != nil {
		t.beat.said.Store(nil)
	}
}

// progress is how far this leader has brought each replica.
func (t *Tablet) progress() []*pb.ReplicaProgress {
	if !t.elected || t.failed != nil {
		return nil
	}
	out := make([]*pb.ReplicaProgress, 0, len(t.nodes))
	t.node.WithProgress(func(id uint64, _ raft.ProgressType, p tracker.Progress) {
		if r := replicaOf(t.descriptor, id); r != nil {
			out = append(out, &pb.ReplicaProgress{
				Replica: r, Match: p.Match, Active: id == t.replica || t.active(id), Snapshot: p.State == tracker.StateSnapshot,
			})
		}
	})
	return out
}

// raftLogger gives Raft's words to slog. Raft's own chatter is for debugging; its panics
// are broken invariants.
type raftLogger struct{ l *slog.Logger }

func (r raftLogger) Debug(v ...any)              {}
func (r raftLogger) Debugf(f string, v ...any)   {}
func (r raftLogger) Info(v ...any)               { r.l.Debug(fmt.Sprint(v...)) }
func (r raftLogger) Infof(f string, v ...any)    { r.l.Debug(fmt.Sprintf(f, v...)) }
func (r raftLogger) Warning(v ...any)            { r.l.Warn(fmt.Sprint(v...)) }
func (r raftLogger) Warningf(f string, v ...any) { r.l.Warn(fmt.Sprintf(f, v...)) }
func (r raftLogger) Error(v ...any)              { r.l.Error(fmt.Sprint(v...)) }
func (r raftLogger) Errorf(f string, v ...any)   { r.l.Error(fmt.Sprintf(f, v...)) }
func (r raftLogger) Fatal(v ...any)              { panic(fmt.Sprint(v...)) }
func (r raftLogger) Fatalf(f string, v ...any)   { panic(fmt.Sprintf(f, v...)) }
func (r raftLogger) Panic(v ...any)              { panic(fmt.Sprint(v...)) }
func (r raftLogger) Panicf(f string, v ...any)   { panic(fmt.Sprintf(f, v...)) }

// counters are what status tells of since the replica was opened.
type counters struct {
	reads, mutations, batches, proposals, notifies uint64
	sent, refused                                  uint64 // messages for other replicas; those of others that were dropped
}
