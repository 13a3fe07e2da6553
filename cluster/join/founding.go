package join

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// Founding of a cluster together with other fresh nodes, on Enter's goroutine, one attempt at a
// time; only withdraw contacts several nodes concurrently, on goroutines that it joins. If the
// process ends, the promises of other nodes remain; the next process requests them again under a
// higher attempt.

// found founds the cluster with the expected number of fresh nodes, if it is this node's turn:
// all of them, itself included, must have promised it. The package documentation explains why
// only one cluster results.
func (d *Membership) found(ctx context.Context) (done bool, err error) {
	set, turn := d.expected()
	if ok, err := d.foundClocks(set); !ok || !turn {
		return false, err
	}
	id := d.cfg.Self.Identity()
	d.attempts++ // only this goroutine changes it
	// The incarnation makes attempts of a later process higher than all earlier ones.
	req := &pb.FoundRequest{
		Founder: id.NodeID, Expect: uint32(d.cfg.Expect), Attempt: id.Incarnation<<32 | d.attempts,
	}
	for _, f := range set {
		req.Nodes = append(req.Nodes, f.node.NodeId)
	}
	// In the order of the node ids: of two founders with the same nodes, one is rejected by the
	// first node that both ask, and then holds no other's promise.
	for _, f := range set {
		holder, err := d.promise(ctx, f, req)
		switch {
		case err != nil:
			d.say("waiting to found a cluster: the promise of a node is missing", "addr", f.node.Listen,
				"error", err)
			return false, nil
		// Another node has this promise. Keeping the others would block it forever.
		case holder != id.NodeID:
			d.logPromised(f, holder, req.Nodes)
			return false, d.withdraw(ctx, set, req)
		}
	}
	// All have promised durably: no other founder can get these promises.
	if err := d.cfg.Self.Found(d.cfg.Bootstrap); err != nil {
		return false, err
	}
	d.cfg.Logger.Info("founded the cluster", "cluster", d.cfg.Self.Identity().ClusterID, "node",
		id.NodeID, "nodes", d.cfg.Expect)
	return true, nil
}

// withdraw gives back an attempt's promises and all earlier ones, so that of two founders that
// block each other, possible after a third has lost its directory, one can continue. The own
// promise is withdrawn first. A node that does not receive the withdrawal receives it after the
// next attempt.
func (d *Membership) withdraw(ctx context.Context, set []*freshNode, req *pb.FoundRequest) error {
	if err := d.cfg.Self.Withdraw(req.Founder, req.Attempt); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	back := proto.CloneOf(req)
	back.Withdraw = true
	var all sync.WaitGroup
	for _, f := range set {
		if f.node.NodeId == req.Founder {
			continue
		}
		all.Go(func() {
			if _, err := d.cfg.Contact.Found(ctx, f.node.Listen, back); err != nil {
				d.cfg.Logger.Debug("withdrawing a promise failed", "addr", f.node.Listen,
					"error", err)
			}
		})
	}
	all.Wait()
	return nil
}

// promise requests the promise of one node, possibly this one, and returns its holder.
func (d *Membership) promise(ctx context.Context, f *freshNode,
	req *pb.FoundRequest) (holder uint64, err error) {
	if f.node.NodeId == req.Founder {
		return d.cfg.Self.Promise(req.Founder, req.Attempt)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	r, err := d.cfg.Contact.Found(ctx, f.node.Listen, req)
	if err != nil {
		return 0, err
	}
	// A promise that is granted to this node but names another founder contradicts itself: it must
	// not count.
	if r.Granted && r.Founder != req.Founder {
		return 0, fmt.Errorf("join: %s reports its promise as granted to this node and as given to another: it does not count",
			f.node.Listen)
	}
	return r.Founder, nil
}

// expected returns the fresh nodes that have responded recently and expect the same number, this
// one included, ordered by node id, and whether it is this node's turn to found: they are exactly
// the expected number, no other fresh node expects another number, and those with lower ids have
// had time to found.
func (d *Membership) expected() (set []*freshNode, turn bool) {
	own := d.cfg.Self.Identity().NodeID
	set = append(set, &freshNode{node: &pb.Node{NodeId: own, Listen: d.cfg.Addresses.GetListen()}})
	var differ []string
	for _, f := range d.heard.recent(func(f *freshNode) time.Time { return f.answered }) {
		if int(f.expect) == d.cfg.Expect {
			set = append(set, f)
		} else {
			differ = append(differ, f.node.Listen)
		}
	}
	slices.SortFunc(set, func(a, b *freshNode) int {
		return cmp.Compare(a.node.NodeId, b.node.NodeId)
	})
	var names, addrs []string
	rank := 0
	for i, f := range set {
		if f.node.NodeId == own {
			rank = i
		}
		names, addrs = append(names, fmt.Sprint(f.node.NodeId)), append(addrs, f.node.Listen)
	}
	// The set has changed, so the turns start again.
	if all := strings.Join(names, " "); all != d.complete {
		d.complete, d.completeAt = all, time.Now()
	}
	since := time.Since(d.completeAt)
	switch {
	case len(differ) > 0:
		d.say("waiting to found a cluster: give all nodes the same --bootstrap-expect", "expect",
			d.cfg.Expect, "others_at", strings.Join(differ, ","))
	case len(set) < d.cfg.Expect:
		d.say("waiting to found a cluster: more nodes are needed", "expect", d.cfg.Expect, "here",
			strings.Join(addrs, ","))
	case len(set) > d.cfg.Expect:
		d.say("waiting to found a cluster: there are more nodes than expected", "expect",
			d.cfg.Expect, "here", strings.Join(addrs, ","))
	default:
		return set, since >= time.Duration(rank)*rankPause
	}
	return set, false
}

// logPromised logs which promise this node is waiting for, and its holder.
func (d *Membership) logPromised(f *freshNode, holder uint64, nodes []uint64) {
	if slices.Contains(nodes, holder) {
		d.say("waiting to found a cluster: another node is founding it", "founder", holder)
		return
	}
	d.say("waiting to found a cluster: a node has promised the founding to a node that does not respond "+
		"and may have founded it; start that "+
		"node again. If its directory is lost, empty the directories of all waiting nodes: they hold no data yet",
		"promised_by", f.node.Listen, "to", holder)
}
