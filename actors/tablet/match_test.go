package tablet

import (
	"log/slog"
	"testing"

	"github.com/asynkron/protoactor-go/actor"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/store"
)

// TestEmptyEntryIsNoProposal: an empty entry of the own term replaces a refused change of the
// replicas, and nothing else. Each later entry is matched with its own proposal: if the match were
// off by one, this replica would write another entry's effects and diverge.
func TestEmptyEntryIsNoProposal(t *testing.T) {
	const id = 9
	r := newRig(t, store.Options{InMemory: true})
	b := &store.Batch{}
	Bootstrap(b, &pb.TabletDescriptor{TabletId: id, Epoch: 1, StartTable: 16, EndTable: 16}, 1)
	if err := r.store.StateWriter().Commit([]*store.Batch{b}); err != nil {
		t.Fatal(err)
	}
	leader := newTablet(r.system, r.store, r.logs, r.readers, id, r,
		Config{Limits: mvcc.DefaultLimits(), Logger: slog.New(slog.DiscardHandler)})
	if err := leader.open(); err != nil {
		t.Fatal(err)
	}
	term := leader.group.Term()
	leader.self.pid = r.system.Root.Spawn(actor.PropsFromFunc(func(actor.Context) {}))
	index := uint64(store.InitialIndex)
	apply := func(command *wire.Command) *applied {
		t.Helper()
		index++
		e := &raftpb.Entry{Index: &index, Term: proto.Uint64(term)}
		if command != nil {
			var err error
			if e.Data, err = proto.Marshal(command); err != nil {
				t.Fatal(err)
			}
		}
		appendTo(t, r.store, id, []*raftpb.Entry{
			{Index: proto.Uint64(index), Term: e.Term, Data: e.Data},
		}, nil)
		a := &applied{index: index, term: term}
		if err := leader.applyEntry(a, e); err != nil {
			t.Fatal(err)
		}
		return a
	}
	first, change, last := leader.newProposal(), leader.newProposal(), leader.newProposal()
	change.command.Replicas = &pb.TabletDescriptor{}
	leader.pipeline.inflight = []*proposal{first, change, last}
	if a := apply(nil); a.proposal != nil || a.change.dropped {
		t.Errorf("the first entry of a leadership passes for proposal %d, dropped",
			a.proposal.number)
	}
	if a := apply(first.command); a.proposal != first || a.change.dropped {
		t.Errorf("the entry of proposal 1 passes for %+v", a.proposal)
	}
	if a := apply(nil); a.proposal != change || !a.change.dropped {
		t.Errorf("in the place of a refused change: %+v, dropped: %v", a.proposal, a.change.dropped)
	}
	if a := apply(last.command); a.proposal != last || a.change.dropped {
		t.Errorf("the entry of proposal 3 passes for %+v", a.proposal)
	}
}
