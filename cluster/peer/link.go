package peer

import "github.com/percolator-go/percolator/internal/wire"

// This file says what Peers expects of a network. A Link owns its connections and
// goroutines; Peers gives it batches from outboxes' actors and is called back on the
// link's goroutines.

// Link carries batches between the nodes of a cluster, each at most once; those from one
// node to another in order, as long as both live. The remoting is one over
// protoactor-go's remote (package cluster/remoting); tests have one in memory.
type Link interface {
	// Send hands a batch over. It does not block. An error means that the batch was
	// surely not sent.
	Send(node uint64, b *wire.PeerBatch) error
	// Receive sets where batches for this node go, before the first arrives. The function
	// is called on any goroutine, for each sending node on one at a time, and must not
	// block.
	Receive(func(*wire.PeerBatch))
	// Down says that the node's incarnation is known dead: what waits to be sent to it
	// may be dropped.
	Down(node, incarnation uint64)
	Close() error
}

// Paced is a Link that tells what becomes of batches, so that what follows waits here,
// where it is batched, and not there. With a Link that is not paced a batch counts as on
// its way once Send has returned.
type Paced interface {
	Link
	// SendThen is Send; if it returns nil, then is called once, on any goroutine, perhaps
	// before SendThen returns: with nil when the batch is on its way, with an error if it
	// surely will not be sent. It must not block.
	SendThen(node uint64, b *wire.PeerBatch, then func(error)) error
	// Lost sets what is called when a connection to a node has ended: what was on its way
	// may not have arrived. Set it before the first Send. The function must not block.
	Lost(func(node uint64))
}
