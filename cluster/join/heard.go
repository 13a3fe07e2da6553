package join

import (
	"maps"
	"slices"
	"sync"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
)

// State received from other nodes by this process: from callers, on the goroutines of the
// Membership service, and in responses, on the goroutines of Enter, Seek and Upkeep. All of it is
// bounded and in memory only.

// heard is the information received from other nodes since this process started. Its methods are
// safe for concurrent use.
type heard struct {
	self   uint64        // this node; nothing is kept about it
	within time.Duration // validity of a fresh node's last sign of life

	mu    sync.Mutex
	fresh map[uint64]*freshNode
	// Reported by nodes of the own cluster: their gossip addresses, and the listen addresses of
	// callers.
	gossip, callers map[uint64]string
	starts          map[uint64]pb.HelloResponse_Start // their verdicts on this node's start
	further         uint64                            // highest position of this node's log known to them
}

// freshNode is another node that belonged to no cluster according to its last message.
type freshNode struct {
	node     *pb.Node
	expect   uint32
	heard    time.Time // last time it called or responded, or was first mentioned by another
	answered time.Time // last time it responded to this node

	clock clockReading // from that response
}

// maxFresh bounds the number of known fresh nodes.
const maxFresh = 64

// maxAddress bounds the bytes of an address received from another node.
const maxAddress = 256

// newHeard returns an empty heard of the node self.
func newHeard(self uint64, within time.Duration) *heard {
	return &heard{
		self: self, within: within, fresh: map[uint64]*freshNode{}, gossip: map[uint64]string{},
		callers: map[uint64]string{}, starts: map[uint64]pb.HelloResponse_Start{},
	}
}

// fromFresh records a fresh node that has called.
func (h *heard) fromFresh(node uint64, listen string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.addFresh(node, listen)
}

// fromMember records a node of the own cluster that has called, so that it is contacted even if
// no other source has its address.
func (h *heard) fromMember(node uint64, at *pb.NodeAddresses) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.keep(h.gossip, node, at.GetGossip())
	h.keep(h.callers, node, at.GetListen())
}

// fromAnswers records the responses to Hello. own is this node's cluster.
func (h *heard) fromAnswers(all []helloResult, own string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, g := range all {
		switch {
		case g.r == nil:
		case g.r.ClusterId == "":
			h.addFresh(g.r.NodeId, g.r.Addresses.GetListen())
			if f := h.fresh[g.r.NodeId]; f != nil {
				f.answered, f.expect, f.clock = time.Now(), g.r.Expect, g.clock
			}
			for _, n := range g.r.Fresh[:min(len(g.r.Fresh), maxFresh)] {
				// Only if it is unknown: its own response counts for longer than a mention by
				// others.
				if h.fresh[n.NodeId] == nil {
					h.addFresh(n.NodeId, n.Listen)
				}
			}
		case g.r.ClusterId == own:
			h.keep(h.gossip, g.r.NodeId, g.r.Addresses.GetGossip())
			h.starts[g.r.NodeId] = g.r.Start
			if g.r.Start == pb.HelloResponse_START_BEHIND && g.r.LogReached < maxReached {
				h.further = max(h.further, g.r.LogReached)
			}
		}
	}
}

// refusals records which nodes of this cluster refuse this node's start, from responses to a Hello
// after which they have not recorded it, and reports whether any does. A refusal counts until the
// node that gave it responds otherwise, even if it no longer responds at all.
func (h *heard) refusals(all []helloResult, own string) (refused bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, g := range all {
		if g.r == nil || g.r.ClusterId != own {
			continue
		}
		switch {
		case g.r.Start == pb.HelloResponse_START_UNKNOWN:
			h.starts[g.r.NodeId] = g.r.Start
		case h.starts[g.r.NodeId] == pb.HelloResponse_START_UNKNOWN:
			delete(h.starts, g.r.NodeId)
		}
	}
	return len(h.refusing()) > 0
}

// refusing returns the nodes that refuse this node's start, in order. The caller holds mu.
func (h *heard) refusing() (nodes []uint64) {
	for node, verdict := range h.starts {
		if verdict == pb.HelloResponse_START_UNKNOWN {
			nodes = append(nodes, node)
		}
	}
	slices.Sort(nodes)
	return nodes
}

// reached returns the highest position of this node's log reported by nodes that know it to be
// behind; 0 if there are none.
func (h *heard) reached() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.further
}

// addFresh records a fresh node that called, responded or was mentioned. Before it adds a new one,
// it drops those not heard from for four times h.within; if maxFresh are left, it ignores the new
// one. The caller holds mu.
func (h *heard) addFresh(node uint64, listen string) {
	if !h.plausible(node, listen) {
		return
	}
	f := h.fresh[node]
	if f == nil {
		maps.DeleteFunc(h.fresh, func(_ uint64, f *freshNode) bool {
			return time.Since(f.heard) > 4*h.within
		})
		if len(h.fresh) >= maxFresh {
			return
		}
		f = &freshNode{}
		h.fresh[node] = f
	}
	f.node, f.heard = &pb.Node{NodeId: node, Listen: listen}, time.Now()
}

// keep stores the address of a node, unless it is implausible, or the node is new and the map full.
// The caller holds mu.
func (h *heard) keep(in map[uint64]string, node uint64, addr string) {
	if !h.plausible(node, addr) {
		return
	}
	if _, known := in[node]; known || len(in) < cluster.MaxNodes {
		in[node] = addr
	}
}

// plausible reports whether the id and the address are valid for another node.
func (h *heard) plausible(node uint64, addr string) bool {
	return node != 0 && node != h.self && addr != "" && len(addr) <= maxAddress
}

// recent returns copies of the fresh nodes for which sign returns a time at most h.within ago.
func (h *heard) recent(sign func(*freshNode) time.Time) []*freshNode {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []*freshNode
	for _, f := range h.fresh {
		if time.Since(sign(f)) <= h.within {
			now := *f
			out = append(out, &now)
		}
	}
	return out
}

// gossiping returns the gossip addresses of nodes of the own cluster.
func (h *heard) gossiping() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Sorted(maps.Values(h.gossip))
}

// calling returns the addresses of the nodes of the own cluster that have called.
func (h *heard) calling() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Collect(maps.Values(h.callers))
}
