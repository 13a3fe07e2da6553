package shell

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/coded"
	"github.com/percolator-go/percolator/internal/wire"
)

// NoteStale tells how old the list is, if it does not come from meta.
func NoteStale(out *Printer, nodes *pb.NodesResponse) {
	if nodes.GetUnavailable() == "" {
		return
	}
	table := "it never read the table of all nodes: nodes that are away may be missing"
	if nodes.AgeMs >= 0 {
		table = "it read the table of all nodes " +
			Span(time.Duration(nodes.AgeMs)*time.Millisecond) + " ago"
	}
	out.Note("this list comes from the answering node's cache, since meta does not answer "+
		"(%s); %s",
		nodes.Unavailable, table)
}

// NodeLine is a node's line in the table.
func NodeLine(n *pb.Node) []any {
	state := wire.NodeStateName(n.State)
	switch {
	case n.State != pb.NodeState_NODE_STATE_UNSPECIFIED:
	case n.Alive:
		state = "joining" // gossip knows it, meta does not yet
	default:
		state = "unknown" // it holds replicas, and meta does not answer
	}
	zone := n.Labels["zone"]
	zone = cmp.Or(zone, "-")
	line := []any{n.NodeId, n.Listen, state}
	if !n.Alive {
		return append(line, "away", zone, "-", "-", "-", "-", "-", n.Version)
	}
	here := "alive"
	if n.LeadsMeta {
		here = "alive, leads meta"
	}
	return append(line, here, zone, n.Replicas, n.Leaders,
		ByteText(int64(n.SizeBytes)),
		n.Load, ByteText(int64(n.DiskFree)), n.Version)
}

// errWhichNode is returned for an address that several nodes have had.
var errWhichNode = errors.New("several nodes have this address")

// NodeID returns the id of the node that name denotes: an id, or an address for clients.
// Several nodes may have had an address in turn, and their records stay; it denotes the
// one that is alive. An address that several nodes had is refused if none of them, or
// more than one, is alive.
func (s *Session) NodeID(ctx context.Context, name string) (uint64, error) {
	if id, err := strconv.ParseUint(name, 10, 64); err == nil {
		return id, nil
	}
	nodes, err := s.Admin.Nodes(ctx, &pb.NodesRequest{})
	if err != nil {
		return 0, err
	}
	var all, alive []*pb.Node
	for _, n := range nodes.GetNodes() {
		if n.Listen != name {
			continue
		}
		all = append(all, n)
		if n.Alive {
			alive = append(alive, n)
		}
	}
	switch {
	case len(all) == 0:
		return 0, WithHint(fmt.Errorf("no node listens at %s", Printable(name)),
			"`node ls` lists the nodes")
	case len(alive) == 1:
		return alive[0].NodeId, nil
	case len(all) == 1:
		return all[0].NodeId, nil
	}
	var candidates []string
	for _, n := range all {
		line := NodeLine(n)
		candidates = append(candidates, fmt.Sprintf("node %d (incarnation %d, %s, %s)",
			n.NodeId, n.Incarnation, line[2], line[3]))
	}
	return 0, WithHint(coded.Errorf("", "%w, and %d of them are alive: %s: %s",
		errWhichNode, len(alive), Printable(name), strings.Join(candidates, ", ")),
		"name the one that is meant by its id")
}
