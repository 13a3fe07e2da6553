package remoting

import "sync/atomic"

// Stats counts since Open.
type Stats struct {
	Sent, Received uint64 // batches
	// Connected and Lost are the connections to other nodes that were made and that ended,
	// Failed the attempts that failed.
	Connected, Lost, Failed uint64
	// Refused is the number of refused frames and calls, Handshakes that of connections without a
	// node's certificate, that did not finish their handshake, or beyond the bound.
	Refused, Handshakes uint64
	// Displaced is the number of connections without a stream that were closed to make room for
	// others.
	Displaced uint64
	Panics    uint64 // of the receiver, each of which has ended a stream
}

// counts holds the live counters behind Stats.
type counts struct {
	sent, received, connected, lost, failed, refused, handshakes, panics atomic.Uint64
}

// Stats returns the counts since Open.
func (l *Link) Stats() Stats {
	c := &l.counts
	return Stats{
		Sent: c.sent.Load(), Received: c.received.Load(),
		Connected: c.connected.Load(), Lost: c.lost.Load(), Failed: c.failed.Load(),
		Refused: c.refused.Load(), Handshakes: c.handshakes.Load(), Panics: c.panics.Load(),
		Displaced: l.limiter.Closed(),
	}
}
