package liveness

import (
	"time"

	"github.com/percolator-go/percolator/internal/wire"
)

// This file compares the speeds of two nodes' clocks by the answers to requests. An answer contains
// the other clock's time at some moment between the sending of the request and the answer's arrival,
// so two answers that are far apart bound the difference of the speeds.

// compareAfter is the minimum time between two answers whose clocks are compared.
const compareAfter = 10 * time.Second

// speed compares another node's clock with this one's.
type speed struct {
	incarnation uint64 // of the other process; a later process may have another clock
	base        exchange
	last        Speed
	known       bool
}

// exchange is the other clock's time, and this one's when the request was sent and answered.
type exchange struct{ sent, got, clock time.Duration }

// Speed is how much faster another node's clock runs than this one's: 0.01 gains 10 ms in a second.
// The true value differs from Faster by at most Error.
type Speed struct {
	Node          uint64
	Faster, Error float64
}

// Beyond reports whether the clocks' speeds certainly differ by more than share: 0.1 is a tenth.
func (s Speed) Beyond(share float64) bool {
	return s.Faster-s.Error > share || s.Faster+s.Error < -share
}

// compare adds the clock's time in an answer of the other node to the comparison of speeds; sent
// is when the request was sent, on this node's clock.
func (n *Node) compare(node uint64, sent time.Duration, s *wire.Support) {
	n.mu.Lock()
	defer n.mu.Unlock()
	r := n.received[node]
	if r == nil || s.GetClockUs() == 0 {
		return
	}
	x := exchange{sent, n.cfg.Clock(), time.Duration(s.GetClockUs()) * time.Microsecond}
	if r.speed.incarnation != s.GetIncarnation() {
		r.speed = speed{incarnation: s.GetIncarnation(), base: x}
		return
	}
	here := x.sent - r.speed.base.sent
	if here < compareAfter {
		return
	}
	there := x.clock - r.speed.base.clock
	errors := (x.got - x.sent) + (r.speed.base.got - r.speed.base.sent)
	r.speed.last = Speed{
		Node: node, Faster: float64(there-here) / float64(here), Error: float64(errors) / float64(here),
	}
	r.speed.known, r.speed.base = true, x
}

// Speeds returns the last comparison with each node that this one asks for support.
func (n *Node) Speeds() (out []Speed) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, r := range n.received {
		if r.wanted != 0 && r.speed.known {
			out = append(out, r.speed.last)
		}
	}
	return out
}
