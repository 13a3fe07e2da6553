package peer

import (
	"errors"

	"github.com/percolator-go/percolator/internal/wire"
)

// Interface between Peers and the network. A Link owns its connections and goroutines. The
// outboxes' actors pass it batches; it calls back on its own goroutines.

// ErrCertificates reports that this node and another do not accept each other's certificates.
var ErrCertificates = errors.New("peer: the nodes do not accept each other's certificates")

// Link delivers batches between the nodes of a cluster, each at most once. Batches from one
// node to another arrive in order as long as their connection lives. Package
// cluster/remoting implements it between processes, package memlink in memory for tests.
type Link interface {
	// Send accepts a batch without blocking. An error means that the batch was certainly not
	// sent. If Send returns nil, the callback then is called once, on any goroutine and perhaps
	// before Send returns: with nil when the batch is in flight, with an error if it will certainly
	// not be sent. Until then further messages collect in the outbox. then must not block.
	Send(node uint64, b *wire.PeerBatch, then func(error)) error
	// Lost sets the function to call when a connection to a node has ended, so that batches
	// in flight may not have arrived. It must be called before the first Send. The function
	// must not block.
	Lost(func(node uint64))
	// Receive sets the function that handles batches for this node. It must be called before
	// the first batch arrives. The function is called on any goroutine, for one batch of
	// each sending node at a time, and must not block.
	Receive(func(*wire.PeerBatch))
	// Down reports that the node's incarnation is dead. The link may drop unsent batches to
	// it.
	Down(node, incarnation uint64)
	Close() error
}
