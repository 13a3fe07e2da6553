package peer

import "github.com/percolator-go/percolator/internal/wire"

// This file declares what Peers needs of a network. A Link owns its connections and
// goroutines. The actors of outboxes give it batches; it calls back on its own goroutines.

// Link carries batches between the nodes of a cluster, each at most once. Batches from one
// node to another arrive in order as long as their connection lives. Package
// cluster/remoting has the Link between processes; tests use one in memory (package memlink).
type Link interface {
	// Send hands a batch over. It does not block. An error means that the batch was
	// surely not sent. If Send returns nil, then is called once, on any goroutine and
	// perhaps before Send returns: with nil when the batch is on its way, with an error if
	// it surely will not be sent. Until then further messages wait in the outbox, where
	// they are batched. then must not block.
	Send(node uint64, b *wire.PeerBatch, then func(error)) error
	// Lost sets the function that is called when a connection to a node has ended, so that
	// batches on their way may not have arrived. It must be called before the first Send.
	// The function must not block.
	Lost(func(node uint64))
	// Receive sets the function that takes batches for this node. It must be called before
	// the first batch arrives. The function is called on any goroutine, for one batch of
	// each sending node at a time, and must not block.
	Receive(func(*wire.PeerBatch))
	// Down reports that the node's incarnation is known dead. The link may drop what waits
	// to be sent to it.
	Down(node, incarnation uint64)
	Close() error
}
