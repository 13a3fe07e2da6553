// Package memlink is a network in memory for tests of several nodes in one process, also
// inside testing/synctest. Batches are marshalled on their way, as on a real network:
// nodes share no memory.
//
// Invariants:
//  1. Without Filter, what one node sends another arrives once and in order, unless the nodes are
//     cut off or more than maxWaiting batches wait.
//  2. Nothing arrives at a link that is closed, and nothing from before at one that took its place.
//
// A link delivers on a goroutine of its own, which Close joins. Used by tests only.
package memlink

import (
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/percolator-go/percolator/cluster/peer"
	"github.com/percolator-go/percolator/internal/wire"
)

// ErrUnreachable is the answer to sending to a node that has no link.
var ErrUnreachable = errors.New("memlink: no such node")

// maxWaiting bounds what waits for one node; beyond it batches are dropped.
const maxWaiting = 1 << 16

// Network connects links. All methods may be used concurrently, by tests and by the goroutines of
// links. Batches in flight wait in their target's link or, if Filter delays them, in a timer; the
// mutex guards the connections and partitions.
type Network struct {
	// Filter, if set, returns for each batch the delay of each of its copies; without a copy the
	// batch is lost. Delays may reorder batches. It may be called concurrently, and must not change
	// the batch. Set it before the first Send.
	Filter func(from, to uint64, b *wire.PeerBatch) (copies []time.Duration)

	mu    sync.Mutex
	links map[uint64]*link
	cut   map[direction]bool
	lost  uint64
}

type direction struct{ from, to uint64 }

// NewNetwork returns a network without nodes.
func NewNetwork() *Network {
	return &Network{links: make(map[uint64]*link), cut: make(map[direction]bool)}
}

// Link connects a node. It disconnects an earlier link of the node, which has restarted.
func (n *Network) Link(node uint64) peer.Link {
	l := &link{network: n, node: node, wake: make(chan struct{}, 1), done: make(chan struct{})}
	n.mu.Lock()
	n.links[node] = l
	n.mu.Unlock()
	l.running.Go(l.run)
	return l
}

// Cut loses everything that goes from one node to another, until Heal or Reconnect. What goes the
// other way arrives.
func (n *Network) Cut(from, to uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut[direction{from, to}] = true
}

// Isolate cuts a node off from those that are connected now, both ways.
func (n *Network) Isolate(node uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for other := range n.links {
		n.cut[direction{node, other}], n.cut[direction{other, node}] = true, true
	}
}

// Reconnect undoes every cut from and to a node. Cuts between other nodes stay.
func (n *Network) Reconnect(node uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	maps.DeleteFunc(n.cut, func(d direction, _ bool) bool { return d.from == node || d.to == node })
}

// Partition cuts every node of one group off from those of the other groups, both ways.
func (n *Network) Partition(groups ...[]uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i, group := range groups {
		for j, other := range groups {
			if i == j {
				continue
			}
			for _, a := range group {
				for _, b := range other {
					n.cut[direction{a, b}] = true
				}
			}
		}
	}
}

// Heal undoes every cut.
func (n *Network) Heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.cut)
}

// Lost returns the number of batches, or copies of them, that were lost on their way.
func (n *Network) Lost() uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.lost
}

// send delivers a batch as often as Filter requires. It returns ErrUnreachable if there is no such
// node.
func (n *Network) send(from, to uint64, b *wire.PeerBatch) error {
	copies := []time.Duration{0}
	if n.Filter != nil {
		copies = n.Filter(from, to, b)
	}
	data, err := proto.Marshal(b)
	if err != nil {
		return fmt.Errorf("memlink: encode a batch: %w", err)
	}
	n.mu.Lock()
	target := n.links[to]
	if len(copies) == 0 {
		n.lost++
	}
	n.mu.Unlock()
	if target == nil {
		return fmt.Errorf("%w: %d", ErrUnreachable, to)
	}
	for _, after := range copies {
		if after <= 0 {
			n.arrive(from, target, data)
		} else {
			time.AfterFunc(after, func() { n.arrive(from, target, data) })
		}
	}
	return nil
}

// arrive hands a batch to the target, unless that has gone or is cut off.
func (n *Network) arrive(from uint64, target *link, data []byte) {
	n.mu.Lock()
	// Checked on arrival: since the send the target may have been cut off, closed or replaced.
	gone := n.cut[direction{from, target.node}] || n.links[target.node] != target
	n.mu.Unlock()
	if gone || !target.push(data) {
		n.mu.Lock()
		n.lost++
		n.mu.Unlock()
	}
}

// link is one node's end. Senders put encoded batches into waiting on their goroutines;
// run takes them out, one after another.
type link struct {
	network *Network
	node    uint64
	wake    chan struct{} // one token while batches wait
	done    chan struct{} // closed by Close
	running sync.WaitGroup

	mu      sync.Mutex
	receive func(*wire.PeerBatch)
	waiting [][]byte
	closed  bool
}

var _ peer.Link = (*link)(nil)

// Send implements peer.Link. It calls the callback then as soon as the network has accepted the
// batch, which may still be lost.
func (l *link) Send(node uint64, b *wire.PeerBatch, then func(error)) error {
	l.mu.Lock()
	closed := l.closed
	l.mu.Unlock()
	if closed || !l.current() {
		return fmt.Errorf("%w: the sender's link is closed", ErrUnreachable)
	}
	err := l.network.send(l.node, node, b)
	if err == nil {
		then(nil)
	}
	return err
}

// Lost implements peer.Link. It never calls the function, because there are no connections to lose.
func (l *link) Lost(func(uint64)) {}

// current reports whether the link has not been replaced.
func (l *link) current() bool {
	l.network.mu.Lock()
	defer l.network.mu.Unlock()
	return l.network.links[l.node] == l
}

// Receive implements peer.Link.
func (l *link) Receive(fn func(*wire.PeerBatch)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.receive = fn
}

// Down implements peer.Link. It does nothing.
func (l *link) Down(uint64, uint64) {}

// Close implements peer.Link.
func (l *link) Close() error {
	l.network.mu.Lock()
	if l.network.links[l.node] == l {
		delete(l.network.links, l.node)
	}
	l.network.mu.Unlock()
	l.mu.Lock()
	first := !l.closed
	l.closed = true
	l.mu.Unlock()
	if first {
		close(l.done)
	}
	l.running.Wait()
	return nil
}

// push queues a batch. It returns false if the link is closed, has no receiver yet, or
// has maxWaiting batches waiting.
func (l *link) push(data []byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.receive == nil || len(l.waiting) >= maxWaiting {
		return false
	}
	l.waiting = append(l.waiting, data)
	select {
	case l.wake <- struct{}{}:
	default:
	}
	return true
}

// run delivers batches until Close.
func (l *link) run() {
	for {
		select {
		case <-l.wake:
		case <-l.done:
			return
		}
		l.mu.Lock()
		waiting, receive := l.waiting, l.receive
		l.waiting = nil
		l.mu.Unlock()
		for _, data := range waiting {
			b := &wire.PeerBatch{}
			if err := proto.Unmarshal(data, b); err != nil {
				panic(fmt.Sprintf("memlink: a batch that was marshalled here: %v", err))
			}
			select {
			case <-l.done:
				return
			default:
				receive(b)
			}
		}
	}
}
