package store

import (
	"sync"
)

// sequence assigns the database's versions, which only the Writer requests. It also counts the open
// Snaps at each number, because in managed mode Badger does not protect readers. It is safe for
// concurrent use.
type sequence struct {
	mu       sync.Mutex
	assigned uint64 // highest number assigned to a Txn
	visible  uint64 // highest number such that its commit and all below it have returned
	open     []pins // by ascending number; the first, if any, has count > 0
	discard  uint64 // the sequence number last passed to Badger; never decreases
	held     uint64 // upper limit of discard while tables are held (hold.go); otherwise 0
}

// pins counts the open Snaps at one number.
type pins struct {
	seq   uint64
	count int
}

// begin returns the number for the next Txn.
func (s *sequence) begin() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.assigned++
	return s.assigned
}

// finish makes all numbers up to seq visible: their commits have returned without an error.
// After a failed commit neither finish nor begin may be called, because a later number
// would show the failed Txn's remains in Badger. The writer fails permanently instead.
func (s *sequence) finish(seq uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.visible = seq
}

// current returns the highest number assigned to a Txn.
func (s *sequence) current() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.assigned
}

// pin returns the number to read at and keeps its versions until unpin.
func (s *sequence) pin() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	seq := s.visible
	if n := len(s.open); n > 0 && s.open[n-1].seq == seq {
		s.open[n-1].count++
	} else {
		s.open = append(s.open, pins{seq: seq, count: 1})
	}
	return seq
}

// unpin ends one pin of seq.
func (s *sequence) unpin(seq uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.open { // nearly always the first or the last of a few
		if s.open[i].seq == seq {
			s.open[i].count--
			break
		}
	}
	done := 0
	for done < len(s.open) && s.open[done].count == 0 {
		done++
	}
	s.open = append(s.open[:0], s.open[done:]...)
}

// hold returns the highest visible number and limits discard to it until settle. An earlier
// hold stays in force.
func (s *sequence) hold() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held == 0 {
		s.held = max(s.visible, 1)
	}
	return s.visible
}

// settle limits discard to seq, the number of the last hold. A seq of 0 removes the limit.
func (s *sequence) settle(seq uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = seq
}

// advanceDiscard returns the number up to which Badger may drop all versions but the newest: below
// every open pin, and not above held while tables are held. ok is false if it has not advanced.
func (s *sequence) advanceDiscard() (seq uint64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seq = s.visible
	if len(s.open) > 0 && s.open[0].seq <= seq {
		seq = max(s.open[0].seq, 1) - 1
	}
	if s.held > 0 {
		seq = min(seq, s.held)
	}
	if seq <= s.discard {
		return 0, false
	}
	s.discard = seq
	return seq, true
}

// pinned returns the number of pins: the open Snaps, and that of markDurable with Options.Crashes.
func (s *sequence) pinned() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, p := range s.open {
		n += p.count
	}
	return n
}
