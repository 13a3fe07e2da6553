package peer

import "sync/atomic"

// Stats counts messages and batches since New.
type Stats struct {
	Requests   uint64 // requests to other nodes
	Answers    uint64 // answers to them
	Late       uint64 // answers that arrived after their request was settled
	Overloaded uint64 // requests refused: too much was in flight, too large, or during Close
	Raft       uint64 // Raft messages accepted for sending
	// RaftDropped is the number of Raft messages dropped, nearly always because the queue was full.
	RaftDropped uint64
	// Batches and Messages are the numbers passed to the link, Unsent is the number of batches
	// that it could not send.
	Batches, Messages, Unsent uint64
	Handled                   uint64 // requests of other nodes passed to the handler
	Refused                   uint64 // requests of other nodes beyond the bounds
	AnswersDropped            uint64 // answers replaced by CODE_UNKNOWN
	// Foreign is the number of rejected batches: those of another cluster, for another node, of an
	// older incarnation or a build that the cluster no longer admits, or with too many messages.
	Foreign uint64
	Panics  uint64 // panics of the handler
}

// counts holds the live counters behind Stats.
type counts struct {
	requests, answers, late, overloaded, raft, raftDropped atomic.Uint64
	batches, messages, unsent                              atomic.Uint64
	handled, refused, answersDropped, foreign, panics      atomic.Uint64
}

// Stats returns the counts since New.
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
