package replicas

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zeebo/xxh3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/percolator-go/percolator/actors/tablet/snapshot"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/leaktest"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/store"
)

// snapshotOf creates the pieces of a snapshot as the sender does, with n entries each.
func snapshotOf(t *testing.T, d *pb.TabletDescriptor, replica, index uint64, entries []*wire.Effect,
	each int) (out []*wire.SnapshotChunk) {
	t.Helper()
	must := func(m proto.Message) []byte {
		b, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	conf := &raftpb.ConfState{Voters: []uint64{90}, Learners: []uint64{replica}}
	header := &wire.SnapshotHeader{
		Message: must(&raftpb.Message{
			Type: raftpb.MsgSnap.Enum(), To: &replica, From: proto.Uint64(90),
			Snapshot: &raftpb.Snapshot{
				Metadata: &raftpb.SnapshotMetadata{
					Index: &index, Term: proto.Uint64(6), ConfState: conf,
				},
			},
		}),
		State: must(&wire.TabletState{
			Tablet: d, Catalogue: &pb.Catalogue{}, ConfState: must(conf),
		}), Index: index, Term: 6,
	}
	total := xxh3.New()
	for len(entries) > 0 || len(out) == 0 {
		n := min(each, len(entries))
		c := &wire.SnapshotChunk{
			TabletId: d.TabletId, ToReplica: replica, Id: fmt.Sprint("s", index),
			Sequence: uint64(len(out)), Header: header, Entries: entries[:n],
			Last: n == len(entries),
		}
		header, entries = nil, entries[n:]
		piece := xxh3.New()
		for _, e := range c.Entries {
			_, _ = piece.Write(binary.AppendUvarint(binary.AppendUvarint(nil, uint64(len(e.Key))),
				uint64(len(e.Value))))
			_, _ = piece.Write(slices.Concat(e.Key, e.Value))
		}
		c.Checksum = piece.Sum64()
		_, _ = total.Write(binary.BigEndian.AppendUint64(nil, c.Checksum))
		if c.Last {
			c.Total = total.Sum64()
		}
		out = append(out, c)
	}
	return out
}

func rowsBetween(start, n int) (out []*wire.Effect) {
	for i := range n {
		c := mvcc.Cell{Table: 16, Row: fmt.Sprintf("m%03d", start+i), Column: "c"}
		out = append(out, &wire.Effect{
			Key: store.AppendKey(nil, mvcc.GroupWrite, c, 0), Value: []byte("v"),
		})
	}
	return out
}

// send delivers a piece and returns the answer.
func (r *replicaRig) send(c *wire.SnapshotChunk) *wire.SnapshotAnswer {
	r.t.Helper()
	answers := make(chan *wire.SnapshotAnswer, 1)
	r.Chunk(c, func(a *wire.SnapshotAnswer) { answers <- a })
	select {
	case a := <-answers:
		return a
	case <-time.After(20 * time.Second):
		r.t.Fatal("no answer to a piece")
		return nil
	}
}

func (r *replicaRig) rows() (n int) {
	r.t.Helper()
	snap := r.store.SnapWithLocks()
	defer snap.Close()
	if err := snap.Cursor(store.Rows{Table: 16}).Each(func(_, _ []byte) bool {
		n++
		return true
	}); err != nil {
		r.t.Fatal(err)
	}
	return n
}

// A replica waits for its snapshot, receives it piece by piece, some twice, and continues from it.
func TestSnapshotIntoReplica(t *testing.T) {
	r := newReplicaRig(t, of(2, 1, "a", "m", 1))
	d := of(3, 4, "m", "z", 7)
	r.Deliver(message(d, 7))
	r.settle()
	pieces := snapshotOf(t, d, 7, 40, rowsBetween(0, 10), 3)
	for i, c := range pieces {
		for range 2 {
			a := r.send(c)
			if a.Refused != "" || a.Installed != c.Last || (!c.Last && a.Next != uint64(i+1)) {
				t.Fatalf("piece %d is answered with %v", i, a)
			}
		}
	}
	r.settle()
	if n := r.rows(); n != 10 {
		t.Fatalf("%d rows after the snapshot, want 10", n)
	}
	if s, _, _ := snapshot.StoredReplica(r.store, 3); s.Descriptor.GetEpoch() != 4 ||
		s.ReplicaID != 7 {
		t.Fatalf("the stored replica is %v, want epoch 4 and replica 7", s)
	}
	r.Deliver(message(d, 7))
	if n := r.received(3); n != 2 {
		t.Fatalf("%d messages received, want 2", n)
	}
	// An older one is obsolete, and a newer one replaces all.
	if a := r.send(snapshotOf(t, d, 7, 39, rowsBetween(0, 3), 3)[0]); !a.Installed {
		t.Fatalf("an older snapshot: %v", a)
	}
	r.settle()
	for _, c := range snapshotOf(t, d, 7, 50, rowsBetween(8, 4), 3) {
		if a := r.send(c); a.Refused != "" {
			t.Fatalf("a newer snapshot: %v", a)
		}
	}
	if n := r.rows(); n != 4 {
		t.Fatalf("%d rows after the second, want 4", n)
	}
}

// Refused are: a snapshot whose rows another replica here holds or will hold, one for a replica
// that does not exist here, and pieces out of order. They leave nothing behind.
func TestSnapshotNotTaken(t *testing.T) {
	r := newReplicaRig(t, of(2, 1, "a", "m", 1))
	three, four := of(3, 4, "m", "z", 7), of(4, 4, "p", "z", 8)
	r.Deliver(message(three, 7))
	r.settle()
	r.Deliver(message(four, 8)) // neither of them has rows yet
	r.settle()
	if r.replica(3) != 7 || r.replica(4) != 8 {
		t.Fatal("the replicas were not made")
	}
	refused := func(name string, c *wire.SnapshotChunk) {
		t.Helper()
		if a := r.send(c); a.Refused == "" {
			t.Errorf("%s is answered %v, want a refusal", name, a)
		}
		r.settle()
	}
	refused("a replica that is not here", snapshotOf(t, of(3, 4, "m", "z", 6), 6, 40, nil, 3)[0])
	refused("rows of another", snapshotOf(t, of(3, 4, "l", "z", 7), 7, 40, nil, 3)[0])
	pieces := snapshotOf(t, three, 7, 40, rowsBetween(0, 10), 3)
	refused("the middle", pieces[1])
	if a := r.send(pieces[0]); a.Next != 1 {
		t.Fatal(a)
	}
	refused("rows of one under way", snapshotOf(t, four, 8, 40, nil, 3)[0])
	refused("another one for the same", snapshotOf(t, three, 7, 41, nil, 3)[0])
	refused("a piece too far", pieces[2])
	refused("after it was given up", pieces[1])
	snap := r.store.Snap()
	defer snap.Close()
	if ids, err := snap.StagedTablets(); len(ids) > 0 || err != nil {
		t.Errorf("staged entries of %v are left: %v", ids, err)
	}
	if n := r.rows(); n != 0 {
		t.Errorf("%d rows, want 0", n)
	}
	if a := r.send(snapshotOf(t, four, 8, 40, nil, 3)[0]); !a.Installed {
		t.Errorf("the rows are free, but: %v", a)
	}
}

// A snapshot whose sender falls silent is abandoned, and its rows are released.
func TestSnapshotGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leaktest.Settle(t)
		r := newReplicaRig(t)
		d := of(3, 4, "m", "z", 7)
		r.Deliver(message(d, 7))
		r.settle()
		if a := r.send(snapshotOf(t, d, 7, 40, rowsBetween(0, 10), 3)[0]); a.Next != 1 {
			t.Fatal(a)
		}
		<-time.After(2 * arrivalIdle)
		synctest.Wait()
		snap := r.store.Snap()
		defer snap.Close()
		if ids, err := snap.StagedTablets(); len(ids) > 0 || err != nil {
			t.Errorf("staged entries of %v are left: %v", ids, err)
		}
		r.arrivals.mu.Lock()
		defer r.arrivals.mu.Unlock()
		r.ranges.mu.Lock()
		defer r.ranges.mu.Unlock()
		if len(r.arrivals.under)+len(r.ranges.reserved) > 0 {
			t.Errorf("%d arrivals, %d ranges reserved", len(r.arrivals.under),
				len(r.ranges.reserved))
		}
	})
}

// While a snapshot is being installed no message is delivered, and a replica removed during it is
// gone afterwards.
func TestRemovedWhileInstalling(t *testing.T) {
	r := newReplicaRig(t)
	d := of(3, 4, "m", "z", 7)
	r.Deliver(message(d, 7))
	r.settle()
	before := r.received(3)
	r.owner.mu.Lock()
	once := sync.Once{}
	r.owner.hold = func() {
		once.Do(func() {
			r.Deliver(message(d, 7)) // the owner fails the test if it receives this
			r.removed(3, 7)
		})
	}
	r.owner.mu.Unlock()
	pieces := snapshotOf(t, d, 7, 40, rowsBetween(0, 10), 30)
	if a := r.send(pieces[0]); !a.Installed {
		t.Fatal(a)
	}
	r.settle()
	if r.replica(3) != 0 || r.rows() != 0 || r.received(3) != before {
		t.Fatalf("replica %d, %d rows, %d messages", r.replica(3), r.rows(), r.received(3)-before)
	}
}
