package join

import (
	"context"
	"fmt"
	"maps"

	"github.com/percolator-go/percolator/store"
)

// Whether a directory is an older copy of the same run. Its starts do not tell, for they are
// the same. But whatever a node promises to others, votes and acknowledgments, is in its Raft
// log first, and how far that has come is a number that only grows. Each node tells it with
// every batch of messages, and the others remember the highest: in memory, and durably as of
// one Upkeep ago. A node that starts says how far its log had come, and whoever has heard of
// more answers so. That is no reason to wait: it is certain. The node discards its replicas, which are
// made anew from the others', and asks again.

// discardStep is by how much a node raises its numbers above the highest that it has heard of
// when it discards its replicas, for others may have heard of more: 4,096 segments of its log.
const discardStep = 1 << 44

// maxReached bounds what another node can claim, so that the numbers can grow for good.
const maxReached = 1 << 62

// Reached returns how far this node's Raft log has come, for others to remember. Any goroutine
// may call it; it does not block.
func (s *Self) Reached() uint64 { return s.raised.Load() + s.st.LogReached() }

// Started returns how far the log had come when the directory was started, by this process or
// by earlier ones that nobody has confirmed.
func (s *Self) Started() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.started
}

// Confirmed notes that others know nothing against this start.
func (s *Self) Confirmed() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.record.Started == 0 {
		return nil
	}
	next := s.record
	next.Started = 0
	return s.write(next, &store.Batch{})
}

// Discard notes that this directory is an older copy: another node has heard that its log had
// come as far as reached. Until Discarded is called, Discards returns true, also after a crash.
// From now on Reached is above all that others have heard of.
func (s *Self) Discard(reached uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.record
	next.Discards = true
	next.Started = reached + discardStep
	next.Raised = next.Started - s.st.LogReached()
	if err := s.write(next, &store.Batch{}); err != nil {
		return err
	}
	s.started = next.Started
	s.raised.Store(next.Raised)
	return nil
}

// Discards reports whether the replicas of this directory have to be discarded.
func (s *Self) Discards() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.record.Discards
}

// Discarded notes that they are.
func (s *Self) Discarded() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.record
	next.Discards = false
	return s.write(next, &store.Batch{})
}

// reachedBefore returns how far another node's log had come in incarnations before the given
// one, as far as the disk knows.
func (s *Self) reachedBefore(node, incarnation uint64) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := s.seen[node]
	if seen.Incarnation < incarnation {
		return max(seen.Before, seen.Reached)
	}
	return seen.Before
}

// noteReached makes durable how far the logs of other nodes had come when it was called last;
// reached tells that of incarnations before one. What the disk has is late by one Upkeep, so
// that nobody objects where the disks of all nodes are restored as of about the same moment.
func (s *Self) noteReached(reached func(node, incarnation uint64) uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen, now := maps.Clone(s.seen), make(map[uint64]seenStart, len(s.seen))
	for node, last := range seen {
		if was := s.reached[node]; was.Incarnation == last.Incarnation {
			last.Reached = max(last.Reached, was.Reached)
			seen[node] = last
		}
		now[node] = seenStart{
			Incarnation: last.Incarnation, Reached: reached(node, last.Incarnation+1),
		}
	}
	s.reached = now
	b := &store.Batch{}
	if err := s.putSeen(b, seen); err != nil || b.Len() == 0 {
		return err
	}
	if err := s.st.StateWriter().Commit([]*store.Batch{b}); err != nil {
		return fmt.Errorf("join: note how far other nodes' logs have come: %w", err)
	}
	s.seen = seen
	return nil
}

// ReachedBy sets what tells how far another node's Raft log had come in incarnations before one,
// by what it has told this process. Until then only the disk does.
func (d *Door) ReachedBy(reached func(node, incarnation uint64) uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reached = reached
}

// reachedFunc returns what ReachedBy has set.
func (d *Door) reachedFunc() func(node, incarnation uint64) uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.reached == nil {
		return func(uint64, uint64) uint64 { return 0 }
	}
	return d.reached
}

// behind returns how far the log of a node that starts had come in an earlier incarnation, if
// that is further than it says; 0: it is not.
func (d *Door) behind(node, incarnation, started uint64) uint64 {
	known := max(d.cfg.Self.reachedBefore(node, incarnation), d.reachedFunc()(node, incarnation))
	if started == 0 || known <= started { // 0: an earlier build does not say
		return 0
	}
	return known
}

// discard has the replicas of this node discarded if another one has answered that its log had
// come further, and reports whether it is so.
func (d *Door) discard(ctx context.Context) (bool, error) {
	reached := d.heard.reached()
	if reached <= d.cfg.Self.Started() {
		return false, nil
	}
	d.cfg.Logger.Error("this directory is an older copy, or its disk has lost synced writes: other nodes have "+
		"heard more of this node than it knows; its replicas are made anew from theirs",
		"has", d.cfg.Self.Started(), "others_heard", reached)
	if err := d.cfg.Self.Discard(reached); err != nil {
		return true, err
	}
	d.cfg.Discards(ctx)
	return true, nil
}

// checkBehind is discard for a node that runs: one that was away when it started may answer now.
func (d *Door) checkBehind(ctx context.Context) {
	if _, err := d.discard(ctx); err != nil {
		d.warn("the replicas of an older copy could not be discarded", "", "error", err)
	}
}
