package group

import (
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/percolator-go/percolator/internal/wire"
)

// oneNode are the Leases of a node that supports others as a test says.
type oneNode struct {
	supported map[uint64]uint64 // epoch by node
	holds     bool              // the last promise
	waiting   bool
	fortified support
	refused   support
}

func (o *oneNode) Now() time.Duration                        { return 0 }
func (o *oneNode) SupportUntil(uint64, uint64) time.Duration { return 0 }
func (o *oneNode) Supported(node uint64) uint64              { return o.supported[node] }
func (o *oneNode) Withdraw(uint64, uint64) bool              { return !o.holds }
func (o *oneNode) Refuse(node, epoch uint64)                 { o.refused = support{node, epoch} }
func (o *oneNode) Waiting() bool                             { return o.waiting }
func (o *oneNode) Fortify(_, node, epoch uint64)             { o.fortified = support{node, epoch} }
func (o *oneNode) Fortified(uint64) (node, epoch uint64)     { return o.fortified.node, o.fortified.epoch }

// TestPromise: a replica that has acknowledged a leader with an epoch gives no vote to a replica on
// another node while the promise may hold, also after it was opened again.
func TestPromise(t *testing.T) {
	node := &oneNode{supported: map[uint64]uint64{2: 7}, holds: true}
	p := newPromise(node, firstTablet)
	vote := func(from uint64, context string) bool {
		return p.barsVote(&Incoming{RaftMessage: &wire.RaftMessage{FromNode: from},
			Raft: &raftpb.Message{Type: raftpb.MsgPreVote.Enum(), Context: []byte(context)}})
	}
	if vote(3, "") || p.fortify(2) != 7 {
		t.Fatal("bound before the first acknowledgment, or the acknowledgment has no epoch")
	}
	for _, reopened := range []bool{false, true} {
		if reopened {
			p = newPromise(node, firstTablet)
		}
		if !p.barred() || !vote(3, "") || vote(2, "") || vote(3, string(campaignTransfer)) {
			t.Errorf("reopened %t: want only candidates on other nodes barred, unless by a transfer", reopened)
		}
	}
	node.waiting = true
	if !vote(2, "") {
		t.Error("a vote for node 2, although promises of an earlier process may hold")
	}
	node.waiting, node.holds = false, false
	if vote(3, "") || node.fortified != (support{}) {
		t.Errorf("bound to %v after the promise has run out", node.fortified)
	}
}

// TestPromiseWithoutAnEpoch: an acknowledgment without an epoch keeps the promise to the same node,
// and ends the one to another, whose term is over. Only a promise is refused.
func TestPromiseWithoutAnEpoch(t *testing.T) {
	node := &oneNode{supported: map[uint64]uint64{2: 7}, holds: true}
	p := newPromise(node, firstTablet)
	p.refuse()
	if node.refused != (support{}) {
		t.Errorf("refused %v without a promise", node.refused)
	}
	p.fortify(2)
	p.refuse()
	clear(node.supported)
	if p.fortify(2) != 0 || !p.barred() || node.refused != (support{2, 7}) {
		t.Errorf("refused %v; want {2 7}, still bound by it", node.refused)
	}
	if p.fortify(3) != 0 || p.barred() {
		t.Error("bound to the leader of an earlier term")
	}
	if none := newPromise(nil, firstTablet); none.barred() {
		t.Error("barred without leases")
	}
}
