package tablet

import (
	"log/slog"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/percolator-go/percolator/actors/tablet/group"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/actorkit"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/store"
)

// TestManyReplicasCameAndWent: however many replicas a tablet has had, the next one becomes known
// and a voter.
func TestManyReplicasCameAndWent(t *testing.T) {
	g := newGroup(t, 2, 1, testTick)
	g.leader(groupTablet)
	m := g.nodes[1]
	for id := uint64(100); id < 100+2*64; id++ {
		message, err := proto.Marshal(&raftpb.Message{
			Type: raftpb.MsgHeartbeatResp.Enum(), From: &id, To: proto.Uint64(1),
			Term: proto.Uint64(1),
		})
		if err != nil {
			t.Fatal(err)
		}
		Receive(m.system, m.port(groupTablet).PID(), &wire.RaftMessage{
			TabletId: groupTablet, FromNode: 9, FromReplica: id, ToNode: 1, ToReplica: 1,
			Message: message,
		})
	}
	g.change(groupTablet, step(addLearner, 2))
	g.change(groupTablet, step(promote, 2))
}

// TestChangeNotTaken: the caller of a change receives an error when Raft drops it, whichever step
// it is.
func TestChangeNotTaken(t *testing.T) {
	r := newRig(t, store.Options{InMemory: true})
	d := &pb.TabletDescriptor{
		TabletId: 9, Epoch: 1, StartTable: 99, EndUnbounded: true, NextReplicaId: 5,
	}
	for id := uint64(1); id <= 4; id++ {
		d.Replicas = append(d.Replicas, &pb.Replica{ReplicaId: id, NodeId: id})
	}
	b := &store.Batch{}
	Bootstrap(b, d, 1)
	if err := r.store.StateWriter().Commit([]*store.Batch{b}); err != nil {
		t.Fatal(err)
	}
	follower := newTablet(r.system, r.store, r.logs, r.readers, 9, r,
		Config{Limits: mvcc.DefaultLimits(), Logger: slog.New(slog.DiscardHandler)})
	if err := follower.open(); err != nil {
		t.Fatal(err)
	}
	// it has lost its quorum and has not detected it yet
	follower.self.pid, follower.leading = r.port(1).PID(), true
	calls, answered := make(chan *Call, 1), make(chan result, 1)
	asker := r.system.Root.Spawn(actor.PropsFromFunc(func(c actor.Context) {
		if call, ok := c.Message().(*Call); ok {
			calls <- call
		}
	}))
	port := actorkit.NewPort[*pb.TabletRequest, *pb.TabletResponse](r.system, asker, 0)
	req := changeOf(1, step(demote, 3), step(demote, 4))
	if err := port.Tell(req, time.Time{}, true, func(a result) { answered <- a }); err != nil {
		t.Fatal(err)
	}
	follower.barrier.op = &exclusive{
		call: <-calls, change: group.NewChange(req.GetChangeReplicas().Changes),
	}
	follower.tryExclusive()
	select {
	case a := <-answered:
		if a.Value.GetError().GetCode() != pb.Error_CODE_NOT_PROPOSED {
			t.Error(a.Value)
		}
	case <-time.After(20 * time.Second):
		t.Error("no answer")
	}
}
