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

// Confirmation that a directory may vote. One restored from an old copy lacks votes and
// acknowledgments. Meta records the last start of each node and rejects an older one, but all
// nodes may be starting and meta be unavailable: each node therefore durably keeps the last start
// of each other node that it has received, from that node itself or from meta. A returning node
// sends the others its new start before it votes, and waits until a majority of the nodes that it
// votes with, itself included, have recorded it. A node that knows a start that the directory lacks
// refuses the new one, and while one has refused, no majority suffices.
//
// The records are changed by the service Membership on any goroutine, and by Upkeep; the
// responses of other nodes are kept in heard.

// seenStart is the last known start of another node. Start is its random number.
type seenStart struct {
	Incarnation uint64 `json:"incarnation"`
	Start       uint64 `json:"start"`
	// Reached is the last known position of the node's Raft log in that start, and Before the
	// highest in earlier starts. Both may be up to two intervals of MembershipConfig.Upkeep old.
	Reached uint64 `json:"reached,omitempty"`
	Before  uint64 `json:"before,omitempty"`
}

// readSeen reads the known starts of other nodes. It is called before the Self is shared.
func (s *Self) readSeen(snap *store.Snap) error {
	data, ok, err := snap.Record(startsRecord)
	if err == nil && ok {
		err = json.Unmarshal(data, &s.seen)
	}
	return wrapf(err, "join: read the starts of other nodes")
}

// learnSeen adds newer starts from the records of nodes to the batch and returns the resulting
// known starts. The caller holds mu, commits the batch and sets s.seen afterwards, so that memory
// is never ahead of the disk.
func (s *Self) learnSeen(b *store.Batch, nodes []*pb.Node) (map[uint64]seenStart, error) {
	seen := maps.Clone(s.seen)
	for _, n := range nodes {
		// A record without a start is of a version without start numbers.
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

// putSeen adds the known starts of other nodes to the batch if they have changed.
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

// Confirm records another node's start, the last in starts, if that directory contains its last
// start known here. Otherwise it is an old copy, and Confirm returns false, as it does for a node
// that a recovery declared dead, and for a new one once MaxNodes are recorded. The record is
// durable when Confirm returns true.
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
	// The records are bounded; nodes already in them are still confirmed.
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
	// The same process asks repeatedly; only the first time there is something to write.
	if b.Len() > 0 {
		if err := s.st.StateWriter().Commit([]*store.Batch{b}); err != nil {
			return false, fmt.Errorf("join: the start of node %d is not confirmed: record it: %w", node, err)
		}
	}
	s.seen = seen
	return true, nil
}

// History returns the numbers of this directory's last starts, oldest first, including the
// current one. The slice must not be changed.
func (s *Self) History() []uint64 { return s.current().History }

// confirmed reports whether a majority of the voters, this node included, have recorded its
// start, and no node of the cluster, voter or not, has refused it; why describes what is missing.
func (h *heard) confirmed(voters []uint64) (ok bool, why string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	// This node votes too and has recorded its own start.
	all, noted := 1, 1
	var silent []uint64
	refusing := h.refusing()
	for _, node := range voters {
		if node == h.self {
			continue
		}
		all++
		switch answer, known := h.starts[node]; {
		case !known:
			silent = append(silent, node)
		case answer == pb.HelloResponse_START_UNKNOWN: // refusing contains the node already
		case answer == pb.HelloResponse_START_BEHIND: // asked again in the next round
			silent = append(silent, node)
		default: // confirmed, or of a version without confirmations
			noted++
		}
	}
	if noted > all/2 && len(refusing) == 0 {
		return true, ""
	}
	why = fmt.Sprintf("%d of the %d voters, including this node, have "+
		"confirmed its start", noted, all)
	if len(silent) > 0 {
		why += fmt.Sprintf("; no response from nodes %d", silent)
	}
	if len(refusing) > 0 {
		why += fmt.Sprintf("; nodes %d know a later start: this directory is an old copy and "+
			"must be deleted", refusing)
	}
	return false, why
}

// hold pauses for one round while confirmations of this start are missing, and reports why to the
// log and MembershipConfig.Waiting.
func (d *Membership) hold(ctx context.Context, why string) error {
	d.say("waiting: the node neither votes nor serves until a majority of its fellow voters, "+
		"itself included, confirms that its directory is not an old copy, and none denies it",
		"missing", why)
	d.cfg.Waiting(why)
	return d.pause(ctx, roundPause)
}
