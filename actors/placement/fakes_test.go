package placement

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

var (
	errCrash   = errors.New("crash")
	errRefused = errors.New("refused")
)

// lastIndex is the last index of a replica that has caught up.
const lastIndex = 10_000

// world fakes everything that placement uses: live and dead nodes, tablets whose replicas change by
// the rules, and meta's records. It can fail at its n-th operation, before or after executing it,
// and at all later ones until restart: the process of that placement has died.
type world struct {
	t       *testing.T
	mu      sync.Mutex
	now     int64 // oracle time in milliseconds
	records map[uint64]*wire.NodeRecord
	alive   map[uint64]bool
	silent  map[uint64]bool // alive, but not in gossip
	ahead   []uint64        // nodes with clocks ahead
	full    []uint64        // nodes with full disks
	damaged []uint64        // nodes with damaged stores
	tablets []*fakeTablet
	orders  []*pb.MoveTabletRequest
	target  int

	ops, failAt int
	after       bool
	sent        []string
	stamps      int // timestamps granted
	linger      int // number of statuses for which a joint configuration lasts
	slow        int // number of statuses until a learner has caught up
}

type fakeTablet struct {
	d          *pb.TabletDescriptor
	leader     uint64
	size, load uint64
	match      map[uint64]uint64
	stale      map[uint64]bool // replicas, by id
	joint      int             // statuses until the joint configuration is left
	next       *pb.TabletDescriptor
}

func newWorld(t *testing.T, nodes int, zones ...string) *world {
	w := &world{
		t: t, now: 1_000_000, records: map[uint64]*wire.NodeRecord{}, alive: map[uint64]bool{},
		silent: map[uint64]bool{}, target: 3, slow: 1,
	}
	for i := range nodes {
		zone := ""
		if len(zones) > 0 {
			zone = zones[i%len(zones)]
		}
		w.join(uint64(i)+1, zone)
	}
	return w
}

func (w *world) join(id uint64, zone string) {
	w.alive[id] = true
	w.records[id] = &wire.NodeRecord{
		NodeId: id, Incarnation: 1, State: pb.NodeState_NODE_STATE_ACTIVE,
		Labels: map[string]string{"zone": zone},
	}
}

// add appends a tablet with voters on the nodes; the first leads.
func (w *world) add(voters ...uint64) *fakeTablet {
	f := &fakeTablet{leader: voters[0], match: map[uint64]uint64{}}
	f.d = &pb.TabletDescriptor{
		TabletId: uint64(len(w.tablets)) + 1, Epoch: 1, NextReplicaId: 1, EndUnbounded: true,
	}
	if n := len(w.tablets); n > 0 {
		at := uint32(mvcc.FirstUserTable) + uint32(n)
		last := w.tablets[n-1].d
		last.EndUnbounded, last.EndTable, f.d.StartTable = false, at, at
	}
	for _, v := range voters {
		f.grow(v, false)
		f.match[v] = lastIndex
	}
	w.tablets = append(w.tablets, f)
	return f
}

func (f *fakeTablet) grow(node uint64, learner bool) {
	f.d.Replicas = append(f.d.Replicas, &pb.Replica{
		ReplicaId: f.d.NextReplicaId, NodeId: node, Learner: learner,
	})
	f.d.NextReplicaId++
}

func (f *fakeTablet) on() (voters, learners []uint64) {
	for _, r := range f.d.Replicas {
		if r.Learner {
			learners = append(learners, r.NodeId)
		} else {
			voters = append(voters, r.NodeId)
		}
	}
	return voters, learners
}

// op counts an operation; done reports its fate.
func (w *world) op() (done func() error, err error) {
	w.ops++
	if w.failAt != 0 && (w.ops > w.failAt || w.ops == w.failAt && !w.after) {
		return nil, errCrash
	}
	crash := w.ops == w.failAt
	return func() error {
		if crash {
			return errCrash
		}
		return nil
	}, nil
}

// restart lets the next placement live.
func (w *world) restart() { w.failAt = 0 }

// Nodes implements Meta.
func (w *world) Nodes(context.Context) (out []*wire.NodeRecord, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	done, err := w.op()
	if err != nil {
		return nil, err
	}
	for id := uint64(1); len(out) < len(w.records); id++ {
		if r := w.records[id]; r != nil {
			out = append(out, proto.CloneOf(r))
		}
	}
	return out, done()
}

// Tablets implements Meta.
func (w *world) Tablets(context.Context) (out []*pb.TabletDescriptor, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	done, err := w.op()
	if err != nil {
		return nil, err
	}
	for _, f := range w.tablets {
		out = append(out, proto.CloneOf(f.d))
	}
	return out, done()
}

// Report implements Meta: the map here is what the tablets report.
func (w *world) Report(context.Context, *pb.TabletDescriptor) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	done, err := w.op()
	if err != nil {
		return err
	}
	return done()
}

// MoveOrders implements Meta.
func (w *world) MoveOrders(context.Context) (out []*pb.MoveTabletRequest, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	done, err := w.op()
	if err != nil {
		return nil, err
	}
	return slices.Clone(w.orders), done()
}

// EndMove implements Meta.
func (w *world) EndMove(_ context.Context, o *pb.MoveTabletRequest) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	done, err := w.op()
	if err != nil {
		return err
	}
	w.orders = slices.DeleteFunc(w.orders, func(p *pb.MoveTabletRequest) bool {
		return proto.Equal(o, p)
	})
	return done()
}

// SetNodeState implements Meta.
func (w *world) SetNodeState(_ context.Context, id uint64, to pb.NodeState,
	from ...pb.NodeState) (*wire.NodeRecord, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	done, err := w.op()
	if err != nil {
		return nil, err
	}
	for _, f := range w.tablets {
		if wire.ReplicaOn(f.d, id) != nil {
			w.t.Errorf("node %d becomes %v and holds a replica of tablet %d", id, to, f.d.TabletId)
		}
	}
	if r := w.records[id]; slices.Contains(from, r.State) {
		r.State = to
	}
	return proto.CloneOf(w.records[id]), done()
}

// SetNodeGone implements Meta.
func (w *world) SetNodeGone(_ context.Context, id, incarnation,
	since uint64) (*wire.NodeRecord, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	done, err := w.op()
	if err != nil {
		return nil, err
	}
	r := w.records[id]
	if r.Incarnation == incarnation {
		r.GoneSince = since
		if since == 0 && r.State == pb.NodeState_NODE_STATE_GONE {
			r.State = pb.NodeState_NODE_STATE_ACTIVE
		}
	}
	return proto.CloneOf(r), done()
}

// ForgetNode implements Meta.
func (w *world) ForgetNode(_ context.Context, id uint64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	done, err := w.op()
	if err != nil {
		return err
	}
	for _, f := range w.tablets {
		if wire.ReplicaOn(f.d, id) != nil {
			w.t.Errorf("node %d is forgotten and holds a replica of tablet %d", id, f.d.TabletId)
		}
	}
	if w.records[id].GetGoneSince() == 0 {
		w.t.Errorf("node %d is forgotten and not away", id)
	}
	delete(w.records, id)
	return done()
}

// Alive implements Cluster.
func (w *world) Alive() (out []uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, is := range w.alive {
		if is && !w.silent[id] {
			out = append(out, id)
		}
	}
	return out
}

// AheadClocks implements Cluster.
func (w *world) AheadClocks() []uint64 { return w.ahead }

// FullDisks implements Cluster.
func (w *world) FullDisks() []uint64 { return w.full }

// DamagedStores implements Cluster.
func (w *world) DamagedStores() []uint64 { return w.damaged }

// Timestamp implements Cluster.
func (w *world) Timestamp(context.Context) (mvcc.Timestamp, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	done, err := w.op()
	if err != nil {
		return 0, err
	}
	w.now++
	w.stamps++
	return mvcc.TimestampAt(w.now), done()
}

// Statuses implements Cluster. Each call advances time: learners catch up, joint configurations are
// left, voters elect.
func (w *world) Statuses(context.Context) (out []*pb.StatusResponse, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	done, err := w.op()
	if err != nil {
		return nil, err
	}
	for _, f := range w.tablets {
		w.pass(f)
		if f.leader == 0 {
			continue
		}
		out = append(out, w.statusOf(f))
	}
	return out, done()
}

// statusOf returns the report of the tablet's leader.
func (w *world) statusOf(f *fakeTablet) *pb.StatusResponse {
	s := &pb.StatusResponse{
		Tablet: proto.CloneOf(f.d), Leader: true, Term: 1, NodeId: f.leader,
		LastIndex: lastIndex, SizeBytes: f.size, Load: f.load,
	}
	for _, r := range f.d.Replicas {
		s.Replicas = append(s.Replicas, &pb.ReplicaProgress{
			Replica: r, Match: f.match[r.NodeId], Active: w.votes(f, r.NodeId),
			Stale: f.stale[r.ReplicaId], Snapshot: f.match[r.NodeId] == 0,
		})
	}
	return s
}

// votes reports whether the replica on the node lives and votes.
func (w *world) votes(f *fakeTablet, node uint64) bool {
	return w.alive[node] && !f.stale[wire.ReplicaOn(f.d, node).GetReplicaId()]
}

func (w *world) pass(f *fakeTablet) {
	voters, learners := f.on()
	for _, n := range learners {
		if w.alive[n] && !f.stale[wire.ReplicaOn(f.d, n).ReplicaId] {
			f.match[n] = min(lastIndex, f.match[n]+uint64(lastIndex/w.slow))
		}
	}
	if f.next != nil && f.joint <= 0 {
		f.d, f.next = f.next, nil
		voters, _ = f.on()
	}
	f.joint--
	live := slices.DeleteFunc(slices.Clone(voters), func(n uint64) bool { return !w.votes(f, n) })
	switch {
	case len(live) <= len(voters)/2:
		f.leader = 0
	case !slices.Contains(live, f.leader):
		f.leader = live[0]
	}
}
