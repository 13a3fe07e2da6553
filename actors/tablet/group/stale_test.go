package group

import (
	"testing"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// threeVoters returns a tablet with voters on nodes 1 to 3.
func threeVoters() *world {
	w := &world{cut: map[uint64]bool{}, down: map[uint64]bool{}, full: map[uint64]bool{}}
	d := &pb.TabletDescriptor{TabletId: firstTablet, Epoch: 1, NextReplicaId: 4}
	for id := uint64(1); id <= 3; id++ {
		d.Replicas = append(d.Replicas, &pb.Replica{ReplicaId: id, NodeId: id})
	}
	for _, r := range d.Replicas {
		w.add(firstTablet, r.ReplicaId, r.NodeId,
			state{index: beginIndex, term: beginTerm, descriptor: d, conf: ConfState(d)})
	}
	return w
}

// TestOldCopyDoesNotVote: replica 2 alone has acknowledged an entry to the leader, and restarts
// with an older copy of its log. After the leader's first message it does not vote for replica 3,
// which lacks the entry too. Catches BROKEN=forgotten_ack.
func TestOldCopyDoesNotVote(t *testing.T) {
	w := threeVoters()
	first, old, behind := w.at(firstTablet, 1), w.at(firstTablet, 2), w.at(firstTablet, 3)
	first.group.campaign()
	w.stabilize(nil)
	old.copy()
	w.cut[3] = true
	must(first.group.Propose([]byte("kept")))
	first.group.Wake()
	w.stabilize(nil)
	acknowledged := first.group.Visible()
	old.log, old.checkpoint = old.copied.log, old.copied.checkpoint
	old.start(false)
	for range 3 {
		first.tick(true, true)
		w.stabilize([]uint64{1, 2})
	}
	w.cut = map[uint64]bool{1: true}
	for range 10 * ElectionTicks {
		for _, r := range []*replica{old, behind} {
			r.tick(true, true)
		}
		w.stabilize([]uint64{2, 3})
		for _, r := range []*replica{old, behind} {
			if !r.group.MayLead() {
				continue
			}
			entries, err := r.log.Entries(acknowledged, acknowledged+1, 1<<20)
			must(err)
			if string(entries[0].Data) != "kept" {
				t.Fatalf("LOST-ENTRY: node %d leads, and lacks entry %d, which was acknowledged", r.node,
					acknowledged)
			}
		}
	}
	if !old.group.Stale() {
		t.Error("replica 2 does not know that its log is an older copy")
	}
}

// TestForgottenReplicaIsStale: a node whose directory is an older copy has no trace of a replica
// that has acknowledged entries. The replica is recreated without its log and is stale: it neither
// votes nor waits for entries that its leader never sends.
func TestForgottenReplicaIsStale(t *testing.T) {
	w := threeVoters()
	leader := w.at(1, 1)
	leader.group.campaign()
	w.stabilize(nil)
	w.replicas = []*replica{leader, w.at(1, 3)}
	for range 2 * ElectionTicks {
		leader.tick(true, true)
		w.stabilize(nil)
	}
	made := w.at(1, 2)
	if made == nil || !made.group.Stale() {
		t.Fatalf("FORGOTTEN-REPLICA: the replica on node 2 is %+v", made)
	}
	for _, p := range leader.group.Progress() {
		if p.Stale != (p.Replica.NodeId == 2) {
			t.Errorf("the leader reports %v", p)
		}
	}
}
