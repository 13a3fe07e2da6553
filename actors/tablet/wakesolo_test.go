package tablet

import (
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/percolator-go/percolator/actors/tablet/group"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/store"
)

// TestOnlyReplicaAfterCrash: a crash between the commit and the apply of the change that leaves one
// replica. That replica does not campaign before it has applied the change, and must not be treated
// as one that needs no ticks afterwards.
func TestOnlyReplicaAfterCrash(t *testing.T) {
	for _, learners := range [][]uint64{{2}, {}} {
		g := newGroup(t, 1, 0, 0)
		m := g.nodes[1]
		d := &pb.TabletDescriptor{
			TabletId: groupTablet, Epoch: 4, StartTable: 16, EndUnbounded: true, NextReplicaId: 3,
		}
		d.Replicas = []*pb.Replica{{ReplicaId: 1, NodeId: 1}}
		for _, id := range learners {
			d.Replicas = append(d.Replicas, &pb.Replica{ReplicaId: id, NodeId: id, Learner: true})
		}
		m.bootstrap(d, 1)
		var entries []*raftpb.Entry
		for at := d; len(entries) == 0 || len(at.Replicas) > 1; {
			kind := addLearner
			if len(at.Replicas) > 1 {
				kind = dismiss
			}
			next, _, err := group.NextDescriptor(at, []*pb.ReplicaChange{step(kind, 2)})
			if err != nil {
				t.Fatal(err)
			}
			entries = append(entries, changeEntry(t, uint64(len(entries)), at, next))
			at = next
		}
		hard := &raftpb.HardState{
			Term: proto.Uint64(6), Vote: proto.Uint64(1), Commit: entries[len(entries)-1].Index,
		}
		appendTo(t, m.store, groupTablet, entries, hard)
		m.spawn(groupTablet)
		g.elect(groupTablet, 1)
		g.wait("rest", func() bool { g.tick(1); return g.asleep(1) })
	}
}

// changeEntry is the log's n-th entry: the step from one descriptor to the next.
func changeEntry(t *testing.T, n uint64, before, after *pb.TabletDescriptor) *raftpb.Entry {
	t.Helper()
	c := group.ConfChange(before, after)
	var err error
	if c.Context, err = proto.Marshal(&wire.Command{Epoch: before.Epoch,
		Replicas: after}); err != nil {
		t.Fatal(err)
	}
	data, err := proto.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return &raftpb.Entry{
		Index: proto.Uint64(store.InitialIndex + 1 + n), Term: proto.Uint64(6),
		Type: raftpb.EntryConfChangeV2.Enum(), Data: data,
	}
}
