package join

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/store"
)

// Whether a directory may vote. One that was restored from an old copy has forgotten
// votes and acknowledgments. Meta knows the last start of each node and refuses it, but
// all nodes may be starting, and meta be away: so each node keeps, durably, which start
// of each other node was the last that it has heard of, from that node itself or from
// meta. A node that comes back tells the others of its new start before it votes, and
// waits until a majority of those that it votes with, itself included, have noted it. One
// that knows a start which is not among the directory's own does not note it.
//
// The notes are changed by the service Membership on any goroutine, and by Upkeep; what
// others answer is kept in heard.

// seenStart is the last start of another node that this one has heard of. Start is its
// random number.
type seenStart struct {
	Incarnation uint64 `json:"incarnation"`
	Start       uint64 `json:"start"`
	// Reached is how far its Raft log had come in that start, and Before in earlier ones, late
	// by an Upkeep.
	Reached uint64 `json:"reached,omitempty"`
	Before  uint64 `json:"before,omitempty"`
}

// readSeen reads what is known of other nodes' starts. It is called before the Self is
// shared.
func (s *Self) readSeen(snap *store.Snap) error {
	data, ok, err := snap.Record(startsRecord)
	if err == nil && ok {
		err = json.Unmarshal(data, &s.seen)
	}
	return wrapf(err, "join: read the starts of other nodes")
}

// learnSeen adds newer starts from the records of nodes to the batch and returns all that
// are known then. The caller holds mu, commits the batch and sets s.seen afterwards, so
// that memory never knows more than the disk.
func (s *Self) learnSeen(b *store.Batch, nodes []*pb.Node) (map[uint64]seenStart, error) {
	seen := maps.Clone(s.seen)
	for _, n := range nodes {
		// A record without a start is of a version that did not number them.
		if n.Start != 0 && n.NodeId != s.record.NodeID &&
			n.Incarnation > seen[n.NodeId].Incarnation {
			last := seen[n.NodeId]
			seen[n.NodeId] = seenStart{
				Incarnation: n.Incarnation, Start: n.Start, Before: max(last.Before, last.Reached),
			}
		}
	}
	return seen, s.putSeen(b, seen)
}

// putSeen adds what is known of other nodes' starts to the batch, if it has changed.
func (s *Self) putSeen(b *store.Batch, seen map[uint64]seenStart) error {
	if maps.Equal(seen, s.seen) {
		return nil
	}
	data, err := json.Marshal(seen)
	if err != nil {
		return fmt.Errorf("join: encode the starts of other nodes: %w", err)
	}
	b.PutRecord(startsRecord, data)
	return nil
}

// Confirm notes another node's start, the last in starts, if that directory knows the
// last start that this node has heard of. Otherwise it is an old copy, and Confirm
// returns false, as it does for a node that a recovery has declared dead. The note is
// durable when it returns true.
func (s *Self) Confirm(node, incarnation uint64, starts []uint64) (bool, error) {
	if node == 0 || len(starts) == 0 || len(starts) > maxStarts || s.declaredDead(node) {
		return false, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	known, ok := s.seen[node]
	if ok && !slices.Contains(starts, known.Start) {
		return false, nil
	}
	// The notes are bounded; nodes that are in them already are still confirmed.
	if !ok && len(s.seen) >= cluster.MaxNodes {
		return false, nil
	}
	b := &store.Batch{}
	seen, err := s.learnSeen(b, []*pb.Node{
		{NodeId: node, Incarnation: incarnation, Start: starts[len(starts)-1]},
	})
	if err != nil {
		return false, err
	}
	// The same process asks many times: only the first time there is something to write.
	if b.Len() > 0 {
		if err := s.st.StateWriter().Commit([]*store.Batch{b}); err != nil {
			return false, fmt.Errorf("join: note the start of node %d: %w", node, err)
		}
	}
	s.seen = seen
	return true, nil
}

// History returns the numbers of this directory's last starts, oldest first, the present
// one last. The slice must not be changed.
func (s *Self) History() []uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.record.History
}

// confirmed reports whether a majority of the voters, this node included, have noted its
// start; why says what is missing.
func (h *heard) confirmed(voters []uint64) (ok bool, why string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	// This node votes too, and knows its own start.
	all, noted := 1, 1
	var silent, refusing []uint64
	for _, node := range voters {
		if node == h.self {
			continue
		}
		all++
		switch answer, known := h.starts[node]; {
		case !known:
			silent = append(silent, node)
		case answer == pb.HelloResponse_START_UNKNOWN:
			refusing = append(refusing, node)
		case answer == pb.HelloResponse_START_BEHIND: // it is asked again
			silent = append(silent, node)
		default: // confirmed, or of a version that does not say
			noted++
		}
	}
	if noted > all/2 {
		return true, ""
	}
	why = fmt.Sprintf("%d of the %d nodes that vote with this one, itself included, have "+
		"confirmed its start", noted, all)
	if len(silent) > 0 {
		why += fmt.Sprintf("; no answer from nodes %d", silent)
	}
	if len(refusing) > 0 {
		why += fmt.Sprintf("; nodes %d know of a later start: this directory is an old copy, and "+
			"must be deleted", refusing)
	}
	return false, why
}

// hold pauses for one round while others have yet to confirm this start, and tells the
// log and MembershipConfig.Waiting why.
func (d *Membership) hold(ctx context.Context, why string) error {
	d.say("waiting: the node neither votes nor serves until a majority of those that it votes "+
		"with confirms that its directory is no old copy",
		"missing", why)
	d.cfg.Waiting(why)
	return d.pause(ctx, roundPause)
}
