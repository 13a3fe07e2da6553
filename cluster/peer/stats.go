package peer

import "sync/atomic"

// Stats counts since New. Bytes are nowhere counted, messages everywhere.
type Stats struct {
	Requests   uint64 // asked of others
	Answers    uint64 // that somebody waited for
	Late       uint64 // answers that nobody waited for any more
	Overloaded uint64 // requests that failed because too much was under way
	Raft       uint64 // Raft messages taken
	// RaftDropped are Raft messages that were not taken because too much waited.
	RaftDropped uint64
	// Batches and Messages were handed to the link; Unsent are the batches among them
	// that it could not send.
	Batches, Messages, Unsent uint64
	Handled                   uint64 // requests of others
	// requests of others that were not taken because too many were handled
	Refused        uint64
	AnswersDropped uint64 // answers replaced by "unknown" for want of room
	// batches of another cluster, for another node, of an ended incarnation, or of too
	// many messages
	Foreign uint64
	Panics  uint64 // of the handler
}

// counts is Stats while they are counted, on any goroutine.
type counts struct {
	requests, answers, late, overloaded, raft, raftDropped atomic.Uint64
	batches, messages, unsent                              atomic.Uint64
	handled, refused, answersDropped, foreign, panics      atomic.Uint64
}

// Stats returns what has been counted since New.
func (p *Peers) Stats() Stats {
	c := &p.counts
	return Stats{
		Requests: c.requests.Load(), Answers: c.answers.Load(), Late: c.late.Load(),
		Overloaded: c.overloaded.Load(),
		Raft:       c.raft.Load(), RaftDropped: c.raftDropped.Load(),
		Batches: c.batches.Load(), Messages: c.messages.Load(), Unsent: c.unsent.Load(),
		Handled: c.handled.Load(), Refused: c.refused.Load(),
		AnswersDropped: c.answersDropped.Load(),
		Foreign:        c.foreign.Load(), Panics: c.panics.Load(),
	}
}
