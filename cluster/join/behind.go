package join

import (
	"context"
	"fmt"
	"maps"

	"github.com/percolator-go/percolator/store"
)

// Detection of a directory that is an older copy, made since the original's last start, so that the
// start numbers of both are equal. Every vote and acknowledgment of a node is in its Raft log
// before it is sent, and the log's position only increases. Each node sends its position with every
// batch of messages, and the others keep the highest: in memory at once, and durably one to two
// intervals of MembershipConfig.Upkeep later. A starting node sends the position at its start, and
// any node that knows a higher one responds with that. Such a response is certain, so the node does
// not wait for more: it discards its replicas, which placement replaces, and asks again.

// discardStep is the distance by which a node that discards its replicas raises its position
// above the highest reported one, because other nodes may know a higher one: 4,096 segments of
// its log.
const discardStep = 1 << 44

// maxReached bounds the position that another node can claim, so that positions can always
// increase.
const maxReached = 1 << 62

// Reached returns the position of this node's Raft log, for other nodes to keep. It is safe for
// concurrent use and does not block.
func (s *Self) Reached() uint64 { return s.raised.Load() + s.st.LogReached() }

// Started returns the log's position at the first start of this directory after the last one that
// an earlier process confirmed (usually this process's own), or the raised one after Discard.
func (s *Self) Started() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.started
}

// Confirmed records that this start is registered, or confirmed by a majority of the voters.
func (s *Self) Confirmed() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.record.Started == 0 {
		return nil
	}
	return s.change(func(next *selfRecord) { next.Started = 0 })
}

// Discard records that this directory is an older copy: another node knows the position reached.
// Until Discarded is called, Discards returns true, even after a crash. From now on Reached is
// above all positions known to others.
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

// Discards reports whether the replicas of this directory must be discarded.
func (s *Self) Discards() bool { return s.current().Discards }

// Discarded records that the replicas have been discarded.
func (s *Self) Discarded() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.change(func(next *selfRecord) { next.Discards = false })
}

// reachedBefore returns the durably recorded position of another node's log in incarnations
// before the given one.
func (s *Self) reachedBefore(node, incarnation uint64) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := s.seen[node]
	if seen.Incarnation < incarnation {
		return max(seen.Before, seen.Reached)
	}
	return seen.Before
}

// noteReached makes the positions of other nodes' logs as of its previous call durable; reached
// returns the position in the incarnations before a given one. Upkeep calls it once in each
// interval; the delay of one interval avoids rejections when the disks of all nodes are restored as
// of about the same moment.
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
		return fmt.Errorf("join: record the positions of other nodes' logs: %w", err)
	}
	s.seen = seen
	return nil
}

// ReachedBy sets the function that returns the highest position of another node's Raft log, in
// incarnations before the given one, that this process has received. Until it is set only positions
// stored on disk are used.
func (d *Membership) ReachedBy(reached func(node, incarnation uint64) uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reached = reached
}

// reachedFunc returns the function set by ReachedBy.
func (d *Membership) reachedFunc() func(node, incarnation uint64) uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.reached == nil {
		return func(uint64, uint64) uint64 { return 0 }
	}
	return d.reached
}

// behind returns the highest known position of a starting node's log in earlier incarnations if
// that is above started, the one that it claims; otherwise 0.
func (d *Membership) behind(node, incarnation, started uint64) uint64 {
	known := max(d.cfg.Self.reachedBefore(node, incarnation), d.reachedFunc()(node, incarnation))
	if started == 0 || known <= started { // 0: an earlier build does not send it
		return 0
	}
	return known
}

// discard discards the replicas of this node if another one has reported a higher position of its
// log, and returns whether one has.
func (d *Membership) discard(ctx context.Context) (bool, error) {
	reached := d.heard.reached()
	if reached <= d.cfg.Self.Started() {
		return false, nil
	}
	d.cfg.Logger.Error("this directory is an older copy, or its disk has lost synced writes: other nodes have "+
		"heard of more than its log has; its replicas are discarded and replaced",
		"has", d.cfg.Self.Started(), "others_heard", reached)
	if err := d.cfg.Self.Discard(reached); err != nil {
		return true, err
	}
	d.cfg.Discards(ctx)
	return true, nil
}

// checkBehind is discard for a running node: a node that was unavailable at its start may have
// responded since.
func (d *Membership) checkBehind(ctx context.Context) {
	if _, err := d.discard(ctx); err != nil {
		d.warn("cannot discard the replicas of an older copy", "", "error", err)
	}
}
