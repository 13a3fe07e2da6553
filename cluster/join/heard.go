package join

import (
	"maps"
	"slices"
	"sync"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
)

// This file keeps what this process has heard of other nodes: from those that call, on
// the goroutines of the Membership service, and from those that it asks, on the
// goroutines of Enter, Seek and Upkeep. All of it is bounded, and gone with the process.

// heard is what others have said since this process started. Its methods may be called
// concurrently.
type heard struct {
	self   uint64        // this node, of which nothing is kept
	within time.Duration // for how long a sign of life of a fresh node counts

	mu    sync.Mutex
	fresh map[uint64]*freshNode
	// Of nodes of the own cluster, by their own words: where they gossip, and where those
	// listen that have called.
	gossip, callers map[uint64]string
	starts          map[uint64]pb.HelloResponse_Start // what they say of this node's start
	further         uint64                            // how far this node's log had come, by what they have heard
}

// freshNode is another node that, by what was heard last, belongs to no cluster.
type freshNode struct {
	node     *pb.Node
	expect   uint32
	heard    time.Time // it called, or another one spoke of it
	answered time.Time // it answered a question of this node

	clock clockReading // of that answer
	told  bool         // there is one
}

// maxFresh bounds the fresh nodes that are remembered.
const maxFresh = 64

// maxAddress bounds, in bytes, an address that another node names.
const maxAddress = 256

// newHeard returns a heard of the node self that has heard nothing yet.
func newHeard(self uint64, within time.Duration) *heard {
	return &heard{
		self: self, within: within, fresh: map[uint64]*freshNode{}, gossip: map[uint64]string{},
		callers: map[uint64]string{}, starts: map[uint64]pb.HelloResponse_Start{},
	}
}

// fromFresh remembers a fresh node that has called.
func (h *heard) fromFresh(node uint64, listen string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.addFresh(node, listen)
}

// fromMember remembers a node of the own cluster that has called, so that it is asked
// back even if no other source knows its address.
func (h *heard) fromMember(node uint64, at *pb.NodeAddresses) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.keep(h.gossip, node, at.GetGossip())
	h.keep(h.callers, node, at.GetListen())
}

// fromAnswers remembers what nodes have answered to Hello. own is this node's cluster.
func (h *heard) fromAnswers(all []greeting, own string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, g := range all {
		switch {
		case g.r == nil:
		case g.r.ClusterId == "":
			h.addFresh(g.r.NodeId, g.r.Addresses.GetListen())
			if f := h.fresh[g.r.NodeId]; f != nil {
				f.answered, f.expect = time.Now(), g.r.Expect
				f.clock, f.told = g.clock, g.told
			}
			for _, n := range g.r.Fresh[:min(len(g.r.Fresh), maxFresh)] {
				// Only if nothing better is known: an answer of its own counts for longer
				// than what others say.
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

// reached returns how far this node's log had come, by those that know that it has less; 0: none
// does.
func (h *heard) reached() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.further
}

// addFresh remembers a fresh node that called or was spoken of. When there are too many
// it drops those that have not been heard of for long. The caller holds mu.
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

// keep puts the address into the map unless that is full. The caller holds mu.
func (h *heard) keep(in map[uint64]string, node uint64, addr string) {
	if !h.plausible(node, addr) {
		return
	}
	if _, known := in[node]; known || len(in) < cluster.MaxNodes {
		in[node] = addr
	}
}

// plausible reports whether another node can have the id and the address.
func (h *heard) plausible(node uint64, addr string) bool {
	return node != 0 && node != h.self && addr != "" && len(addr) <= maxAddress
}

// recent returns copies of the fresh nodes whose sign of life still counts.
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

// gossiping returns the addresses at which nodes of the own cluster gossip.
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
