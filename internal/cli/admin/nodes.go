package admin

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/cli/shell"
	"github.com/percolator-go/percolator/internal/txn"
)

// The commands about the cluster's nodes. Meta records what they order, and placement
// carries it out; only `drain --wait` watches.

// NodeCommand holds the commands about the cluster's nodes.
func NodeCommand(d *shell.Deps) *cobra.Command {
	return shell.Group("node", "List, drain and forget the cluster's nodes", "node ls",
		nodeList(d), nodeDrain(d), nodeForget(d), nodeLogLevel(d))
}

// nodeList shows the node table, which meta keeps, beside what the answering node has
// heard of each by gossip.
func nodeList(d *shell.Deps) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List the nodes that have joined, and what the answering node has heard of them",
		Long: `List the nodes that have joined, as meta has them, with what the answering node
has heard of each by gossip, some seconds ago at most. While meta does not answer, for want of
a quorum, the list is what the answering node knows by itself, and a line says how old that is.`,
		Example: "node ls\nnode ls -o json",
	}
	return d.ClientCommand(cmd, listNodes)
}

// listNodes prints a line for each node.
func listNodes(ctx context.Context, s *shell.Session, _ []string) error {
	nodes, err := s.Admin.Nodes(ctx, &pb.NodesRequest{})
	if err != nil {
		return err
	}
	defer shell.NoteStale(s.Out, nodes) // after the table
	list := s.Out.Listing("NODE, ADDRESS, STATE, HERE, ZONE, REPLICAS, LEADERS, SIZE, OPS/S, "+
		"FREE, VERSION", 5, 6, 7, 8, 9)
	for _, n := range nodes.GetNodes() {
		list.Add(n, shell.NodeLine(n)...)
	}
	if err := list.End(); err != nil || s.Out.JSON() {
		return err
	}
	for _, n := range nodes.GetNodes() {
		if n.Blocked != "" {
			if err := s.Out.Print("node %d waits with its drain: %s", n.NodeId,
				n.Blocked); err != nil {
				return err
			}
		}
	}
	return nil
}

// drainPoll is the pause between the requests of --wait.
const drainPoll = 500 * time.Millisecond

// nodeDrain empties a node, so that it can be stopped for good.
func nodeDrain(d *shell.Deps) *cobra.Command {
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
			return shell.Usagef(cmd, "--undo is done at once: there is nothing to --wait for")
		}
		return d.Conn.Talk(cmd, func(ctx context.Context, s *shell.Session) error {
			id, err := s.NodeID(ctx, args[0])
			if err != nil {
				return err
			}
			resp, err := s.Admin.DrainNode(ctx, &pb.DrainNodeRequest{NodeId: id, Undo: *undo})
			switch {
			case err != nil:
				return err
			case *undo:
				return d.Out.Answer(resp.GetNode(), "node %d may hold replicas again", id)
			case !*wait:
				return d.Out.Answer(resp.GetNode(),
					"node %d is being drained; node ls tells when it is", id)
			}
			return awaitDrained(ctx, s, id)
		}, *wait)
	}
	return d.WithClient(cmd)
}

// drainSays is how often --wait says how far a drain is.
const drainSays = 5 * time.Second

// awaitDrained polls until the node is drained, and reports how far the drain is, and what it
// waits for.
func awaitDrained(ctx context.Context, s *shell.Session, id uint64) error {
	told, left, said := "", uint32(0), time.Time{}
	for {
		nodes, err := s.Admin.Nodes(ctx, &pb.NodesRequest{})
		if err != nil {
			return err
		}
		for _, n := range nodes.GetNodes() {
			switch {
			case n.NodeId != id || nodes.Unavailable != "": // meta knows, and will answer again
			case n.State == pb.NodeState_NODE_STATE_DRAINED:
				return s.Out.Answer(n, "node %d is drained: it may be stopped for good", id)
			case n.State != pb.NodeState_NODE_STATE_DRAINING:
				return fmt.Errorf("the drain of node %d was taken back", id)
			case n.Blocked != told:
				if told = n.Blocked; told != "" {
					s.Out.Note("node %d waits: %s", id, told)
				}
			case n.Replicas != left && time.Since(said) >= drainSays:
				left, said = n.Replicas, time.Now()
				if all := max(n.DrainReplicas, left); n.DrainReplicas > 0 {
					s.Out.Note("node %d: %d of %d replicas have been moved", id, all-left, all)
				} else { // ordered by a build that did not count them
					s.Out.Note("node %d: %d replicas are still on it", id, left)
				}
			}
		}
		if err := txn.Sleep(ctx, drainPoll); err != nil {
			return err
		}
	}
}

// nodeForget removes a node that is gone from the node table.
func nodeForget(d *shell.Deps) *cobra.Command {
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
	d.Confirmed(cmd, "node %s is never let in again on the directory that it has")
	return d.ClientCommand(cmd, func(ctx context.Context, s *shell.Session, args []string) error {
		id, err := s.NodeID(ctx, args[0])
		if err != nil {
			return err
		}
		if _, err := s.Admin.ForgetNode(ctx, &pb.ForgetNodeRequest{NodeId: id}); err != nil {
			return err
		}
		return d.Out.Done("node %d is forgotten", id)
	})
}

// logLevels are the levels of a node's log.
var logLevels = []string{"debug", "info", "warn", "error"}

// nodeLogLevel changes the level of the node that answers.
func nodeLogLevel(d *shell.Deps) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "log-level LEVEL",
		Short: "Change how much the node that answers logs, until it is started again",
		Long: `Change how much the node that answers logs: debug, info, warn or error. It holds
until the node is started again; give --addr to choose the node.`,
		Example:   "node log-level debug --addr 127.0.0.1:7900",
		ValidArgs: logLevels,
	}
	return d.ClientCommand(cmd, func(ctx context.Context, s *shell.Session, args []string) error {
		if !slices.Contains(logLevels, args[0]) {
			return shell.Usagef(cmd, "%s is no level: known are %s", shell.Printable(args[0]),
				strings.Join(logLevels, ", "))
		}
		answer, err := s.Admin.SetLogLevel(ctx, &pb.SetLogLevelRequest{Level: args[0]})
		if err != nil {
			return err
		}
		return d.Out.Done("the node logs from %s on; before, from %s", args[0],
			strings.ToLower(answer.GetBefore()))
	})
}
