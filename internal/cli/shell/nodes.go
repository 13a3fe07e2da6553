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
	"github.com/percolator-go/percolator/internal/inspect"
	"github.com/percolator-go/percolator/internal/wire"
)

// NoteStale prints that a list of nodes comes from the answering node's cache, and how old the
// cached node table is. It prints nothing if the list was read from meta.
func NoteStale(out *Printer, nodes *pb.NodesResponse) {
	if nodes.GetUnavailable() == "" {
		return
	}
	table := "it never read the node table: nodes that are down may be missing"
	if nodes.AgeMs >= 0 {
		table = "it read the node table " +
			inspect.Span(time.Duration(nodes.AgeMs)*time.Millisecond) + " ago"
	}
	out.Note("this list comes from the answering node's cache, since meta does not answer "+
		"(%s); %s",
		nodes.Unavailable, table)
}

// NodeLine returns a node's line in the table.
func NodeLine(n *pb.Node) []any {
	state := wire.NodeStateName(n.State)
	switch {
	case n.State != pb.NodeState_NODE_STATE_UNSPECIFIED:
	case n.Alive:
		state = "joining" // in gossip, but not yet in meta
	default:
		state = "unknown" // the node has replicas, but meta does not answer
	}
	zone := n.Labels["zone"]
	zone = cmp.Or(zone, "-")
	line := []any{n.NodeId, n.Listen, state}
	if !n.Alive {
		return append(line, "away", zone, "-", "-", "-", "-", "-", buildText(n))
	}
	here := "alive"
	if n.LeadsMeta {
		here = "alive, leads meta"
	}
	return append(line, here, zone, n.Replicas, n.Leaders,
		ByteText(int64(n.SizeBytes)),
		n.Load, ByteText(int64(n.DiskFree)), buildText(n))
}

// buildText returns the version of a node's program: its own, if it links the library, and that of the
// library.
func buildText(n *pb.Node) string {
	if n.Program == "" {
		return n.Version
	}
	return inspect.Printable(n.Program) + ", with percolator " + n.Version
}

// errWhichNode reports an address that several nodes have had.
var errWhichNode = errors.New("several nodes have had this address")

// NodeID returns the id of the node that name denotes: an id, or an address for clients. If several
// nodes have had the address, it denotes the one that is alive, and errWhichNode is returned unless
// exactly one is.
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
		return 0, WithHint(fmt.Errorf("no node has the address %s", inspect.Printable(name)),
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
		errWhichNode, len(alive), inspect.Printable(name), strings.Join(candidates, ", ")),
		"use the node's id")
}
