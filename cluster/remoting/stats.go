package remoting

import "sync/atomic"

// Stats are the counts of a Link since Open.
type Stats struct {
	Sent, Received uint64 // batches
	// Connected is the number of connections made to other nodes, Lost the number of those that
	// have ended, Failed the number of failed attempts.
	Connected, Lost, Failed uint64
	// Refused is the number of refused frames and calls. Handshakes is the number of connections
	// that had no node's certificate or did not complete their handshake, and of calls on
	// connections beyond Config.MaxConnections.
	Refused, Handshakes uint64
	// Displaced is the number of connections without a stream that were closed to make room for
	// others.
	Displaced uint64
	Panics    uint64 // panics of the receiver, each of which has ended a stream
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
