package placement

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// TestKeepsOffFullDisks: a node whose disk is full leads nothing while another voter has space; it
// receives and loses no replica. Where all voters are full nothing changes.
func TestKeepsOffFullDisks(t *testing.T) {
	w := newWorld(t, 4)
	for range 8 {
		w.add(1, 2, 3)
	}
	p := newTest(t, w)
	w.turns(p)
	full := w.tablets[0].leader
	w.full = []uint64{full}
	before, _ := w.spread()
	w.turns(p)
	after, leaders := w.spread()
	if leaders[full] != 0 {
		t.Errorf("node %d has a full disk and leads %d tablets", full, leaders[full])
	}
	if after[full] != before[full] {
		t.Errorf("node %d had %d replicas, and has %d", full, before[full], after[full])
	}
	led := w.tablets[0].leader
	w.orders = []*pb.MoveTabletRequest{{TabletId: 1, ToNode: full, Leader: true}}
	w.turns(p)
	if why := fmt.Sprint(p.status.snapshot().Blocked); !strings.Contains(why, "its disk is full") ||
		w.tablets[0].leader != led {
		t.Errorf("an order to lead on a full disk: node %d leads, %s", w.tablets[0].leader, why)
	}
	w.orders = nil
	w.full = []uint64{1, 2, 3, 4}
	places := func() (out []uint64) {
		for _, f := range w.tablets {
			out = append(out, f.leader)
		}
		return out
	}
	was := places()
	w.turns(p)
	if now := places(); !slices.Equal(was, now) {
		t.Errorf("all disks are full: led from %v, before from %v", now, was)
	}
}

// TestReplacesDamagedStore: replicas on a node that reports a damaged store are replaced like those
// of a lost node, although gossip and tablets see it.
func TestReplacesDamagedStore(t *testing.T) {
	w := newWorld(t, 4)
	for range 3 {
		w.add(1, 2, 3)
	}
	p := newTest(t, w)
	w.turns(p)
	before, _ := w.spread()
	w.damaged = []uint64{3}
	w.turns(p)
	if after, _ := w.spread(); after[3] != before[3] {
		t.Errorf("before its time node 3 has %d replicas, and had %d", after[3], before[3])
	}
	w.now += p.cfg.GoneAfter.Milliseconds() + 1000
	w.turns(p)
	w.checkVoters(3)
	if after, _ := w.spread(); after[3] != 0 {
		t.Errorf("a damaged store has %d replicas", after[3])
	}
}

// TestNoReplicaOnFullDisk: a lost node's replicas are recreated on a node with space.
func TestNoReplicaOnFullDisk(t *testing.T) {
	w := newWorld(t, 5)
	for range 4 {
		w.add(1, 2, 3)
	}
	p := newTest(t, w)
	w.full = []uint64{4}
	w.records[3].State = pb.NodeState_NODE_STATE_DRAINING
	w.turns(p)
	replicas, _ := w.spread()
	if replicas[4] != 0 || replicas[3] != 0 || replicas[5] == 0 {
		t.Errorf("node 3 drains, the disk of node 4 is full: replicas %v", replicas)
	}
}
