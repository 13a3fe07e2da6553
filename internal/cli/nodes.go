package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/wire"
)

// The commands about the cluster's nodes. Meta records what they order, and placement
// carries it out; only `drain --wait` watches.

// nodeCommand holds the commands about the cluster's nodes.
func nodeCommand(d *deps) *cobra.Command {
	return group("node", "List, drain and forget the cluster's nodes", "node ls",
		nodeList(d), nodeDrain(d), nodeForget(d), nodeLogLevel(d))
}

// nodeList shows the node table, which meta keeps, beside what the answering node has
// heard of each by gossip.
func nodeList(d *deps) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List the nodes that have joined, and what the answering node has heard of them",
		Long: `List the nodes that have joined, as meta has them, with what the answering node
has heard of each by gossip, some seconds ago at most. While meta does not answer, for want of
a quorum, the list is what the answering node knows by itself, and a line says how old that is.`,
		Example: "node ls\nnode ls -o json",
	}
	return d.client(cmd, listNodes)
}

// listNodes prints a line for each node.
func listNodes(ctx context.Context, s *session, _ []string) error {
	nodes, err := s.admin.Nodes(ctx, &pb.NodesRequest{})
	if err != nil {
		return err
	}
	defer noteStale(s.out, nodes) // after the table
	list := s.out.listing("NODE, ADDRESS, STATE, HERE, ZONE, REPLICAS, LEADERS, SIZE, OPS/S, "+
		"FREE, VERSION", 5, 6, 7, 8, 9)
	for _, n := range nodes.GetNodes() {
		list.add(n, nodeLine(n)...)
	}
	if err := list.end(); err != nil || s.out.json() {
		return err
	}
	for _, n := range nodes.GetNodes() {
		if n.Blocked != "" {
			if err := s.out.print("node %d waits with its drain: %s", n.NodeId,
				n.Blocked); err != nil {
				return err
			}
		}
	}
	return nil
}

// noteStale tells how old the list is, if it does not come from meta.
func noteStale(out *printer, nodes *pb.NodesResponse) {
	if nodes.GetUnavailable() == "" {
		return
	}
	table := "it never read the table of all nodes: nodes that are away may be missing"
	if nodes.AgeMs >= 0 {
		table = "it read the table of all nodes " +
			span(time.Duration(nodes.AgeMs)*time.Millisecond) + " ago"
	}
	out.note("this is what the answering node knows by itself, for meta does not answer it "+
		"(%s); %s",
		nodes.Unavailable, table)
}

// nodeLine is a node's line in the table.
func nodeLine(n *pb.Node) []any {
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
	line := []any{n.NodeId, n.Listen, state}
	if !n.Alive {
		return append(line, "away", zone, "-", "-", "-", "-", "-", n.Version)
	}
	here := "alive"
	if n.LeadsMeta {
		here = "alive, leads meta"
	}
	return append(line, here, zone, n.Replicas, n.Leaders,
		byteText(int64(n.SizeBytes)),
		n.Load, byteText(int64(n.DiskFree)), n.Version)
}

// drainPoll is the pause between the requests of --wait.
const drainPoll = 500 * time.Millisecond

// nodeDrain empties a node, so that it can be stopped for good.
func nodeDrain(d *deps) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "drain NODE",
		Short: "Move all replicas and leaders away from a node, or take that back",
		Long: `Move all leaders and then all replicas away from a node, to the other nodes. NODE
is its id or the address that clients reach it at: of several nodes that had the address in
turn, the one that is alive. The node goes on serving meanwhile. Once it is drained it holds
nothing and may be stopped for good.

A drain is refused if the other nodes are too few for as many replicas as every tablet has: add
a node first. Should they become too few later, it waits, and node ls says why. It goes on
whatever node leads, also after a restart.

--wait returns when the node is drained. --undo ends a drain, or lets a drained node hold
replicas again.`,
		Example: "node drain 127.0.0.1:7810 --wait\nnode drain 127.0.0.1:7810 --undo",
	}
	undo := cmd.Flags().Bool("undo", false, "let the node hold replicas again")
	wait := cmd.Flags().Bool("wait", false,
		"return when the node holds nothing any more; --timeout bounds the connecting only")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *undo && *wait {
			return usagef(cmd, "--undo is done at once: there is nothing to --wait for")
		}
		return d.conn.talk(cmd, func(ctx context.Context, s *session) error {
			id, err := s.nodeID(ctx, args[0])
			if err != nil {
				return err
			}
			resp, err := s.admin.DrainNode(ctx, &pb.DrainNodeRequest{NodeId: id, Undo: *undo})
			switch {
			case err != nil:
				return err
			case *undo:
				return d.out.answer(resp.GetNode(), "node %d may hold replicas again", id)
			case !*wait:
				return d.out.answer(resp.GetNode(),
					"node %d is being drained; node ls tells when it is", id)
			}
			return awaitDrained(ctx, s, id)
		}, *wait)
	}
	return d.withClient(cmd)
}

// drainSays is how often --wait says how far a drain is.
const drainSays = 5 * time.Second

// awaitDrained polls until the node is drained, and reports how far the drain is, and what it
// waits for.
func awaitDrained(ctx context.Context, s *session, id uint64) error {
	told, left, said := "", uint32(0), time.Time{}
	for {
		nodes, err := s.admin.Nodes(ctx, &pb.NodesRequest{})
		if err != nil {
			return err
		}
		for _, n := range nodes.GetNodes() {
			switch {
			case n.NodeId != id || nodes.Unavailable != "": // meta knows, and will answer again
			case n.State == pb.NodeState_NODE_STATE_DRAINED:
				return s.out.answer(n, "node %d is drained: it may be stopped for good", id)
			case n.State != pb.NodeState_NODE_STATE_DRAINING:
				return fmt.Errorf("the drain of node %d was taken back", id)
			case n.Blocked != told:
				if told = n.Blocked; told != "" {
					s.out.note("node %d waits: %s", id, told)
				}
			case n.Replicas != left && time.Since(said) >= drainSays:
				left, said = n.Replicas, time.Now()
				if all := max(n.DrainReplicas, left); n.DrainReplicas > 0 {
					s.out.note("node %d: %d of %d replicas have been moved", id, all-left, all)
				} else { // ordered by a build that did not count them
					s.out.note("node %d: %d replicas are still on it", id, left)
				}
			}
		}
		if err := txn.Sleep(ctx, drainPoll); err != nil {
			return err
		}
	}
}

// nodeForget removes a node that is gone from the node table.
func nodeForget(d *deps) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "forget NODE --yes",
		Short: "Remove the record of a node that is gone and holds nothing",
		Long: `Remove the record of a node that is gone: one that was drained and stopped, or
has been away for so long that what it held is elsewhere. NODE is its id or the address that
clients reached it at. A node that is alive or holds replicas is refused.

Its directory is of no use any more: a node that is started on it is refused. Nodes that hold
nothing are forgotten by themselves after a day (cluster set forget-after=…).`,
		Example: "node forget 4711 --yes",
	}
	d.confirmed(cmd, "node %s is never let in again on the directory that it has")
	return d.client(cmd, func(ctx context.Context, s *session, args []string) error {
		id, err := s.nodeID(ctx, args[0])
		if err != nil {
			return err
		}
		if _, err := s.admin.ForgetNode(ctx, &pb.ForgetNodeRequest{NodeId: id}); err != nil {
			return err
		}
		return d.out.done("node %d is forgotten", id)
	})
}

// errWhichNode is returned for an address that several nodes have had.
var errWhichNode = errors.New("several nodes have this address")

// nodeID returns the id of the node that name denotes: an id, or an address for clients.
// Several nodes may have had an address in turn, and their records stay; it denotes the
// one that is alive. An address that several nodes had is refused if none of them, or
// more than one, is alive.
func (s *session) nodeID(ctx context.Context, name string) (uint64, error) {
	if id, err := strconv.ParseUint(name, 10, 64); err == nil {
		return id, nil
	}
	nodes, err := s.admin.Nodes(ctx, &pb.NodesRequest{})
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
		return 0, withHint(fmt.Errorf("no node listens at %s", printable(name)),
			"`node ls` lists the nodes")
	case len(alive) == 1:
		return alive[0].NodeId, nil
	case len(all) == 1:
		return all[0].NodeId, nil
	}
	var candidates []string
	for _, n := range all {
		line := nodeLine(n)
		candidates = append(candidates, fmt.Sprintf("node %d (incarnation %d, %s, %s)",
			n.NodeId, n.Incarnation, line[2], line[3]))
	}
	return 0, withHint(fmt.Errorf("%w, and %d of them are alive: %s: %s",
		errWhichNode, len(alive), printable(name), strings.Join(candidates, ", ")),
		"name the one that is meant by its id")
}
