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

// This file founds a cluster together with other fresh nodes. All of it runs on Enter's
// goroutine, one attempt at a time; withdraw alone asks several nodes at once, and joins
// them. What is in flight when the process ends are promises of others, which they keep:
// the next process asks for them again under a higher attempt.

// found founds the cluster that so many fresh nodes expect, if it is this node's turn:
// all of them must let it, itself included. See the package's documentation for why that
// makes one cluster.
func (d *Membership) found(ctx context.Context) (done bool, err error) {
	set, turn := d.expected()
	if ok, err := d.foundClocks(set); !ok || !turn {
		return false, err
	}
	id := d.cfg.Self.Identity()
	d.attempts++ // by one goroutine only
	// The incarnation makes attempts of a later process higher than all of an earlier
	// one.
	req := &pb.FoundRequest{
		Founder: id.NodeID, Expect: uint32(d.cfg.Expect), Attempt: id.Incarnation<<32 | d.attempts,
	}
	for _, f := range set {
		req.Nodes = append(req.Nodes, f.node.NodeId)
	}
	// In the order of the node ids: of two nodes that want to found with the same others,
	// one is refused by the first that both ask, and holds no other's promise then.
	for _, f := range set {
		holder, err := d.promise(ctx, f, req)
		switch {
		case err != nil:
			d.say("waiting to found a cluster: a node does not answer", "addr", f.node.Listen,
				"error", err)
			return false, nil
		// Another node has this promise. Holding on to the others would block it for
		// ever.
		case holder != id.NodeID:
			d.sayPromised(f, holder, req.Nodes)
			return false, d.withdraw(ctx, set, req)
		}
	}
	// All have promised, and all promises are durable: nobody else can get them.
	if err := d.cfg.Self.Found(d.cfg.Bootstrap); err != nil {
		return false, err
	}
	d.cfg.Logger.Info("founded the cluster", "cluster", d.cfg.Self.Identity().ClusterID, "node",
		id.NodeID, "nodes", d.cfg.Expect)
	return true, nil
}

// withdraw gives up an attempt and all promises for earlier ones, so that of two nodes
// that block each other, as may happen after a third has lost its directory, one can go
// on. The own promise is given up first. A node that does not hear of it is told after
// the next attempt.
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
				d.cfg.Logger.Debug("a promise could not be given back", "addr", f.node.Listen,
					"error", err)
			}
		})
	}
	all.Wait()
	return nil
}

// promise asks one node, perhaps this one itself, for its promise and returns who holds
// it.
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
	// Such an answer contradicts itself, so it must not be counted.
	if r.Granted && r.Founder != req.Founder {
		return 0, fmt.Errorf("join: %s grants what it has promised to another", f.node.Listen)
	}
	return r.Founder, nil
}

// expected returns the fresh nodes that have answered lately and expect the same number,
// this one included, ordered by node id, and whether it is this node's turn to found:
// they are exactly as many as expected, and those with lower ids have had time to do it.
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
	// The set has changed, so everybody's time to found begins anew.
	if all := strings.Join(names, " "); all != d.complete {
		d.complete, d.completeAt = all, time.Now()
	}
	since := time.Since(d.completeAt)
	switch {
	case len(differ) > 0:
		d.say("waiting to found a cluster: give all nodes the same --bootstrap-expect", "expect",
			d.cfg.Expect, "others_at", strings.Join(differ, ","))
	case len(set) < d.cfg.Expect:
		d.say("waiting to found a cluster: for more nodes", "expect", d.cfg.Expect, "here",
			strings.Join(addrs, ","))
	case len(set) > d.cfg.Expect:
		d.say("waiting to found a cluster: there are more nodes than expected", "expect",
			d.cfg.Expect, "here", strings.Join(addrs, ","))
	default:
		return set, since >= time.Duration(rank)*rankPause
	}
	return set, false
}

// sayPromised logs whose promise to whom keeps this node waiting.
func (d *Membership) sayPromised(f *freshNode, holder uint64, nodes []uint64) {
	if slices.Contains(nodes, holder) {
		d.say("waiting to found a cluster: another node is about to", "founder", holder)
		return
	}
	d.say("waiting to found a cluster: a node has promised to let one found it that is not here, "+
		"and may have done so; start that "+
		"node again. If its directory is lost, empty those of all nodes that wait: they hold nothing yet",
		"promised_by", f.node.Listen, "to", holder)
}
