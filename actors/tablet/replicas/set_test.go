package replicas

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/percolator-go/percolator/actors/tablet"
	"github.com/percolator-go/percolator/actors/tablet/snapshot"
	"github.com/percolator-go/percolator/actors/tablet/writers"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/actorkit"
	"github.com/percolator-go/percolator/internal/leaktest"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/store"
)

const thisNode = 20

// owner is a node whose actors only record their calls.
type owner struct {
	t     *testing.T
	store *store.Store
	mu    sync.Mutex
	runs  map[uint64]bool
	stale map[uint64]bool // at their last opening
	got   map[uint64][]*wire.RaftMessage
	meta  map[uint64]*pb.TabletDescriptor
	news  *sync.Cond
	asked int
	hold  func() // called while a replica is stopped
	slow  error  // result of stopping one
	gone  []uint64
	fault error // result of the next opening
	opens func(id uint64)
}

func (o *owner) OpenReplica(id uint64, stale bool) error {
	if o.opens != nil {
		o.opens(id)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.fault; err != nil {
		o.fault = nil
		return err
	}
	if o.runs[id] {
		o.t.Errorf("tablet %d is opened while it runs", id)
	}
	if _, err := o.store.OpenLog(id); err != nil {
		return err
	}
	o.runs[id], o.stale[id] = true, stale
	o.news.Broadcast()
	return nil
}

func (o *owner) StopReplica(id uint64) error {
	o.mu.Lock()
	hold, slow := o.hold, o.slow
	o.runs[id] = false
	o.mu.Unlock()
	if hold != nil {
		hold()
	}
	return slow
}

func (o *owner) Destroyed(id uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.gone = append(o.gone, id)
}

func (o *owner) Deliver(id uint64, m *wire.RaftMessage) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.runs[id] {
		o.t.Errorf("a message for tablet %d, which does not run", id)
	}
	o.got[id] = append(o.got[id], m)
	o.news.Broadcast()
}

func (o *owner) Reread(context.Context) (func(*pb.TabletDescriptor) *pb.TabletDescriptor, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asked++
	if len(o.meta) == 0 {
		return nil, errors.New("meta does not answer")
	}
	now := maps.Clone(o.meta)
	return func(d *pb.TabletDescriptor) *pb.TabletDescriptor { return now[d.GetTabletId()] }, nil
}

// replicaRig is a node's replicas over a store in memory.
type replicaRig struct {
	*Set
	t     *testing.T
	owner *owner
	store *store.Store
}

func newReplicaRig(t *testing.T, held ...*pb.TabletDescriptor) *replicaRig {
	t.Helper()
	return newReplicaRigOn(t, store.Options{InMemory: true}, held...)
}

func newReplicaRigOn(t *testing.T, options store.Options,
	held ...*pb.TabletDescriptor) *replicaRig {
	t.Helper()
	r := newStoppedRig(t, options, held...)
	if err := r.Start(func([]uint64) {}); err != nil {
		t.Fatal(err)
	}
	return r
}

// newStoppedRig is a rig whose replicas are not started yet.
func newStoppedRig(t *testing.T, options store.Options, held ...*pb.TabletDescriptor) *replicaRig {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	options.MemTableSize, options.ReclaimInterval = 16<<20, -1
	st, err := store.Open(options)
	if err != nil {
		t.Fatal(err)
	}
	system := actorkit.NewSystem(quiet)
	logs := writers.Spawn(system, st, actorkit.BatchConfig{}, quiet)
	b := &store.Batch{}
	for _, d := range held {
		tablet.Bootstrap(b, d, 1)
	}
	if err := st.StateWriter().Commit([]*store.Batch{b}); err != nil {
		t.Fatal(err)
	}
	o := &owner{
		t: t, store: st, runs: map[uint64]bool{}, stale: map[uint64]bool{}, got: map[uint64][]*wire.RaftMessage{},
		meta: map[uint64]*pb.TabletDescriptor{},
	}
	o.news = sync.NewCond(&o.mu)
	r := &replicaRig{Set: New(o, st, logs, thisNode, quiet), t: t, owner: o, store: st}
	t.Cleanup(func() {
		r.Close()
		if err := errors.Join(logs.Stop(), st.Close()); err != nil {
			t.Error(err)
		}
		system.Shutdown()
	})
	return r
}

// of returns tablet id with rows [start, end) of table 16, with the given replicas on this node and
// one on another.
func of(id, epoch uint64, start, end string, here ...uint64) *pb.TabletDescriptor {
	d := &pb.TabletDescriptor{
		TabletId: id, Epoch: epoch, StartTable: 16, StartRow: []byte(start), EndTable: 16,
		EndRow: []byte(end), NextReplicaId: 100,
		Replicas: []*pb.Replica{{ReplicaId: 90, NodeId: 10}},
	}
	for _, replica := range here {
		d.Replicas = append(d.Replicas, &pb.Replica{ReplicaId: replica, NodeId: thisNode})
	}
	return d
}

func message(d *pb.TabletDescriptor, to uint64) *wire.RaftMessage {
	return &wire.RaftMessage{
		TabletId: d.TabletId, FromNode: 10, FromReplica: 90, ToNode: thisNode, ToReplica: to,
		Tablet: d,
	}
}

// settle waits until no work is left.
func (r *replicaRig) settle() {
	r.t.Helper()
	done := make(chan struct{})
	for _, id := range []uint64{2, 3, 4, 5} {
		r.enqueue(id, func() { done <- struct{}{} })
		<-done
	}
}

func (r *replicaRig) replica(id uint64) uint64 {
	r.t.Helper()
	s, ok, err := snapshot.StoredReplica(r.store, id)
	if err != nil {
		r.t.Fatal(err)
	}
	if !ok {
		return 0
	}
	return s.ReplicaID
}

func (r *replicaRig) received(id uint64) int {
	r.owner.mu.Lock()
	defer r.owner.mu.Unlock()
	return len(r.owner.got[id])
}

// The first message creates a replica and is delivered to it, if the sender's descriptor lists the
// replica, no other holds its rows, and it was not removed.
func TestFirstContact(t *testing.T) {
	r := newReplicaRig(t, of(2, 1, "a", "m", 1))
	for _, c := range []struct {
		name string
		m    *wire.RaftMessage
		want uint64
	}{
		{"no descriptor", &wire.RaftMessage{TabletId: 3, ToNode: thisNode, ToReplica: 5}, 0},
		{"not listed", message(of(3, 4, "m", "z", 4), 5), 0},
		{"another node", &wire.RaftMessage{
			TabletId: 3, ToNode: 10, ToReplica: 5, Tablet: of(3, 4, "m", "z", 5),
		}, 0},
		{"overlaps", message(of(3, 4, "l", "z", 6), 6), 0},
		{"fits", message(of(3, 4, "m", "z", 7), 7), 7},
		{"a lower one", message(of(3, 4, "m", "z", 6), 6), 7},
		{"a higher one", message(of(3, 6, "m", "z", 9), 9), 9},
	} {
		r.Deliver(c.m)
		r.settle()
		if got := r.replica(3); got != c.want {
			t.Fatalf("%s: replica %d, want %d", c.name, got, c.want)
		}
	}
	if n := r.received(3); n != 2 {
		t.Errorf("%d messages were delivered, want 2", n)
	}
	r.Deliver(message(of(3, 6, "m", "z", 9), 9))
	if n := r.received(3); n != 3 {
		t.Errorf("%d messages were delivered, want 3", n)
	}
	r.removed(3, 9)
	r.settle()
	for _, id := range []uint64{7, 9} {
		r.Deliver(message(of(3, 6, "m", "z", id), id))
		r.settle()
		if got := r.replica(3); got != 0 {
			t.Errorf("replica %d returned after its removal", got)
		}
	}
	if r.current(2) == 0 || r.current(3) != 0 {
		t.Errorf("replicas %d of tablet 2 and %d of tablet 3 are held", r.current(2), r.current(3))
	}
}

// A message from another node for a replica in the store, before or during its start, leaves the
// opening to the start: it is opened once, and later messages are delivered.
func TestMessageWhileStarting(t *testing.T) {
	first, second := of(2, 1, "a", "m", 1), of(3, 1, "m", "z", 1)
	r := newStoppedRig(t, store.Options{InMemory: true}, first, second)
	r.owner.opens = func(id uint64) {
		if id != first.TabletId {
			return
		}
		r.owner.mu.Lock() // the other tablet is opened concurrently
		defer r.owner.mu.Unlock()
		for !r.owner.runs[second.TabletId] {
			r.owner.news.Wait()
		}
	}
	r.Deliver(message(second, 1))
	if err := r.Start(func([]uint64) { r.Deliver(message(second, 1)) }); err != nil {
		t.Fatal(err)
	}
	r.settle()
	for _, d := range []*pb.TabletDescriptor{first, second} {
		if r.Deliver(message(d, 1)); r.replica(d.TabletId) != 1 || r.received(d.TabletId) == 0 {
			t.Errorf("tablet %d: replica %d, %d messages", d.TabletId, r.replica(d.TabletId),
				r.received(d.TabletId))
		}
	}
}

// A replica here that still has to be split keeps out the split's other side; the split opens that
// side.
func TestSplitComesLate(t *testing.T) {
	r := newReplicaRig(t, of(2, 1, "a", "z", 1))
	child := of(3, 2, "m", "z", 1)
	r.Deliver(message(child, 1))
	r.settle()
	if r.replica(3) != 0 {
		t.Fatal("a tablet was made whose rows wait to be split off here")
	}
	b := &store.Batch{}
	tablet.Bootstrap(b, of(2, 2, "a", "m", 1), 1)
	tablet.Bootstrap(b, child, 1)
	if err := r.store.StateWriter().Commit([]*store.Batch{b}); err != nil {
		t.Fatal(err)
	}
	r.SplitApplied(3)
	r.settle()
	r.Deliver(message(child, 1))
	if n := r.received(3); n != 1 {
		t.Fatalf("%d messages received after the split, want 1", n)
	}
}

// A split that creates a tablet reopens its replica if that was waiting here for its first
// snapshot.
func TestSplitOverWaiting(t *testing.T) {
	r := newReplicaRig(t)
	child := of(3, 2, "m", "z", 1)
	r.Deliver(message(child, 1))
	r.settle()
	b := &store.Batch{}
	tablet.Bootstrap(b, child, 1)
	if err := r.store.StateWriter().Commit([]*store.Batch{b}); err != nil {
		t.Fatal(err)
	}
	r.SplitApplied(3) // the owner fails the test if it still runs
	r.settle()
	if s, _, _ := snapshot.StoredReplica(r.store, 3); s.Descriptor.GetEpoch() != 2 {
		t.Fatalf("the stored replica is %v, want epoch 2", s)
	}
}

// The rows of a tablet that was removed from here before a split created it are cleared.
func TestSplitOfRemoved(t *testing.T) {
	r := newReplicaRig(t, of(2, 2, "a", "m", 1))
	r.removed(3, 1)
	r.settle()
	child := of(3, 2, "m", "z")
	key := store.AppendKey(nil, mvcc.GroupWrite, mvcc.Cell{Table: 16, Row: "n", Column: "c"}, 0)
	b := &store.Batch{}
	b.Put(key, []byte("v"))
	if err := snapshot.PutClearing(b, child); err != nil {
		t.Fatal(err)
	}
	if err := r.store.StateWriter().Commit([]*store.Batch{b}); err != nil {
		t.Fatal(err)
	}
	r.Deliver(message(of(4, 1, "n", "o", 3), 3)) // its rows are not cleared yet
	r.settle()
	if r.replica(4) != 0 {
		t.Fatal("a replica was made where rows are to be cleared")
	}
	r.SplitApplied(3)
	r.settle()
	snap := r.store.Snap()
	defer snap.Close()
	if _, ok, err := snap.Get(key); ok || err != nil {
		t.Fatalf("the row is still there: %v", err)
	}
	if stored, err := snapshot.StoredReplicas(r.store); len(stored) != 1 || err != nil {
		t.Fatalf("the stored replicas are %v, %v, want 1", stored, err)
	}
}

// TestSlowStop: a replica whose actor stops too slowly is opened again after it has stopped.
func TestSlowStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leaktest.Settle(t)
		r := newReplicaRig(t)
		d := of(3, 4, "m", "z", 7)
		r.Deliver(message(d, 7))
		r.settle()
		slow := func(err error) {
			r.owner.mu.Lock()
			defer r.owner.mu.Unlock()
			r.owner.slow = err
		}
		slow(errors.New("it takes long"))
		for _, c := range snapshotOf(t, d, 7, 40, rowsBetween(0, 10), 100) {
			if a := r.send(c); a.Refused == "" {
				t.Fatalf("a piece is answered with %v, want a refusal", a)
			}
		}
		if s := r.Stats(); s.Closed != 1 || !errors.Is(s.Why, ErrClosed) ||
			!strings.Contains(s.Why.Error(), "it takes long") {
			t.Errorf("%d replicas are closed: %v", s.Closed, s.Why)
		}
		slow(nil)
		<-time.After(2 * inspectInterval)
		synctest.Wait()
		r.owner.mu.Lock()
		defer r.owner.mu.Unlock()
		if s := r.Stats(); !r.owner.runs[3] || s.Closed != 0 || s.Why != nil {
			t.Errorf("the replica stays closed: %v", s.Why)
		}
	})
}
