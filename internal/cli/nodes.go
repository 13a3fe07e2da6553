package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/wire"
)

// nodeCommand holds the commands about the cluster's nodes.
func (r *run) nodeCommand() *cobra.Command {
	return group("node", "List, drain and forget the cluster's nodes", r.example("node ls"), r.nodeList(), r.nodeDrain(),
		r.nodeForget())
}

// nodeList shows the node table, which meta keeps, beside what the answering node has
// heard of each by gossip.
func (r *run) nodeList() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List the nodes that have joined, and what the answering node has heard of them",
		Long: `List the nodes that have joined, as meta has them, with what the answering node has heard of each by gossip. While meta does
not answer, for want of a quorum, the list is what the answering node knows by itself, and a line says how old that is.`,
		Example: r.example("node ls", "node ls -o json"),
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return r.talk(cmd, r.nodes)
		},
	}
	return r.withClient(cmd)
}

// nodes prints one line a node.
func (r *run) nodes(ctx context.Context, s *session) error {
	nodes, err := s.admin.Nodes(ctx, &pb.NodesRequest{})
	if err != nil {
		return err
	}
	var g grid
	g.numbers(5, 6, 7, 8, 9)
	g.add("NODE", "ADDRESS", "STATE", "HERE", "ZONE", "REPLICAS", "LEADERS", "SIZE", "OPS/S", "FREE", "VERSION")
	for _, n := range nodes.GetNodes() {
		if r.output == outputJSON {
			if err := r.message(n); err != nil {
				return err
			}
			continue
		}
		g.add(nodeLine(n)...)
	}
	defer r.noteStale(nodes) // after the table
	if r.output == outputJSON {
		return nil
	}
	if err := g.write(r.Stdout); err != nil {
		return err
	}
	for _, n := range nodes.GetNodes() {
		if n.Blocked != "" {
			if err := r.print("node %d waits with its drain: %s", n.NodeId, n.Blocked); err != nil {
				return err
			}
		}
	}
	return nil
}

// noteStale says so if the nodes are not as meta has them.
func (r *run) noteStale(nodes *pb.NodesResponse) {
	if nodes.GetUnavailable() == "" {
		return
	}
	table := "it never read the table of all nodes: nodes that are away may be missing"
	if nodes.AgeMs >= 0 {
		table = "it read the table of all nodes " + span(time.Duration(nodes.AgeMs)*time.Millisecond) + " ago"
	}
	r.note("this is what the answering node knows by itself, for meta does not answer it (%s); %s", nodes.Unavailable, table)
}

// nodeLine is a node's line in the table.
func nodeLine(n *pb.Node) []string {
	state := wire.NodeStateName(n.State)
	switch {
	case n.State != pb.NodeState_NODE_STATE_UNSPECIFIED:
	case n.Alive:
		state = "joining" // gossip knows it, meta does not yet
	default:
		state = "unknown" // it holds replicas, and meta does not answer
	}
	zone := n.Labels["zone"]
	if zone == "" {
		zone = "-"
	}
	line := []string{fmt.Sprint(n.NodeId), n.Listen, state}
	if !n.Alive {
		return append(line, "away", zone, "-", "-", "-", "-", "-", n.Version)
	}
	here := "alive"
	if n.LeadsMeta {
		here = "alive, leads meta"
	}
	return append(line, here, zone, fmt.Sprint(n.Replicas), fmt.Sprint(n.Leaders), byteText(int64(n.SizeBytes)), fmt.Sprint(n.Load),
		byteText(int64(n.DiskFree)), n.Version)
}

// members sums up the nodes for status.
func members(nodes []*pb.Node) string {
	alive, leader := 0, "unknown"
	for _, n := range nodes {
		if n.Alive {
			alive++
		}
		if n.LeadsMeta {
			leader = fmt.Sprintf("node %d", n.NodeId)
		}
	}
	return fmt.Sprintf("%d nodes, %d alive; meta's leader: %s", len(nodes), alive, leader)
}
