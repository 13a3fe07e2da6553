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
	"github.com/percolator-go/percolator/internal/inspect"
	"github.com/percolator-go/percolator/internal/txn"
)

// The commands for the cluster's nodes. drain records a request in meta, which placement executes;
// only `drain --wait` waits for it. The other commands have taken effect when they return.

// NodeCommand groups the commands for the cluster's nodes.
func NodeCommand(d *shell.Deps) *cobra.Command {
	return shell.Group("node", "List, drain and forget the cluster's nodes", "node ls",
		nodeList(d), nodeDrain(d), nodeForget(d), nodeLogLevel(d))
}

// nodeList lists meta's node table, with the state of each node in the answering node's gossip.
func nodeList(d *shell.Deps) *cobra.Command {
	return d.ClientCommand(&cobra.Command{
		Use:   "ls",
		Short: "List the nodes of the cluster and their states",
		Long: `List the nodes recorded in meta. STATE is the state recorded there. HERE is alive or away, as the
answering node knows by gossip, at most a few seconds old, and marks the node that leads meta. While meta
has no quorum, the list comes from the answering node's cache, and a line states its age.`,
		Example: "node ls\nnode ls -o json",
	}, listNodes)
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
			if err := s.Out.Print("the drain of node %d is blocked: %s", n.NodeId,
				n.Blocked); err != nil {
				return err
			}
		}
	}
	return nil
}

// drainPoll is the pause between the requests of --wait.
const drainPoll = 500 * time.Millisecond

// nodeDrain returns the command that moves everything off a node, so that it can be stopped
// permanently.
func nodeDrain(d *shell.Deps) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "drain NODE",
		Short: "Move all replicas and leaders away from a node, or undo it",
		Long: `Move all leaders and then all replicas from a node to the other nodes. NODE is its
id or its client address; if several nodes have used the address, the one that is
alive. The node continues to serve. A drained node holds no replicas and may be
stopped permanently.

A drain is refused if the other nodes are too few for the replicas of every tablet: add a node
first. If they become too few later, the drain waits, and node ls shows why. It continues after
a change of leader or a restart.

--wait returns when the node is drained. --undo ends a drain, or allows a drained node to hold
replicas again.`,
		Example: "node drain 127.0.0.1:7810 --wait\nnode drain 127.0.0.1:7810 --undo",
	}
	undo := cmd.Flags().Bool("undo", false, "allow the node to hold replicas again")
	wait := cmd.Flags().Bool("wait", false,
		"return once the node holds no replicas; --timeout then limits connecting only")
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

// drainSays is the interval of --wait's progress reports.
const drainSays = 5 * time.Second

// awaitDrained polls until the node is drained, and reports the drain's progress and what blocks it.
func awaitDrained(ctx context.Context, s *shell.Session, id uint64) error {
	told, left, said := "", uint32(0), time.Time{}
	for {
		nodes, err := s.Admin.Nodes(ctx, &pb.NodesRequest{})
		if err != nil {
			return err
		}
		known := nodes.Unavailable != "" // without meta the list may lack the node: ask again
		for _, n := range nodes.GetNodes() {
			known = known || n.NodeId == id
			switch {
			case n.NodeId != id || nodes.Unavailable != "":
			case n.State == pb.NodeState_NODE_STATE_DRAINED:
				return s.Out.Answer(n, "node %d is drained: it may be stopped permanently", id)
			case n.State != pb.NodeState_NODE_STATE_DRAINING:
				return fmt.Errorf("the drain of node %d was undone", id)
			case n.Blocked != told:
				if told = n.Blocked; told != "" {
					s.Out.Note("node %d is blocked: %s", id, told)
				}
			case n.Replicas != left && time.Since(said) >= drainSays:
				left, said = n.Replicas, time.Now()
				if all := max(n.DrainReplicas, left); n.DrainReplicas > 0 {
					s.Out.Note("node %d: %d of %d replicas have been moved", id, all-left, all)
				} else { // a build that did not count replicas ordered the drain
					s.Out.Note("node %d: %d replicas remain", id, left)
				}
			}
		}
		if !known {
			return fmt.Errorf("node %d was forgotten during its drain", id)
		}
		if err := txn.Sleep(ctx, drainPoll); err != nil {
			return err
		}
	}
}

// nodeForget returns the command that removes a dead node from the node table.
func nodeForget(d *shell.Deps) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "forget NODE --yes",
		Short: "Remove the record of a dead node without replicas",
		Long: `Remove the record of a dead node: one that was drained and stopped, or has been down
until its replicas were replaced. NODE is its id or its client address. The command
fails if the node is alive or holds replicas.

The cluster refuses a node that is started on its directory. Dead nodes without replicas are
forgotten automatically after a day (cluster set forget-after=…).`,
		Example: "node forget 4711 --yes",
	}
	d.Confirmed(cmd, "node %s can never join again with its present directory")
	return d.ClientCommand(cmd, func(ctx context.Context, s *shell.Session, args []string) error {
		id, err := s.NodeID(ctx, args[0])
		if err != nil {
			return err
		}
		_, err = s.Admin.ForgetNode(ctx, &pb.ForgetNodeRequest{NodeId: id})
		return d.Out.Done(err, "node %d is forgotten", id)
	})
}

// logLevels are the levels of a node's log.
var logLevels = []string{"debug", "info", "warn", "error"}

// nodeLogLevel returns the command that changes the log level of the answering node.
func nodeLogLevel(d *shell.Deps) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "log-level LEVEL",
		Short: "Set the log level of a node until it restarts",
		Long: `Set the log level of the node that answers: debug, info, warn or error. The level
applies until the node restarts; --addr selects the node.`,
		Example:   "node log-level debug --addr 127.0.0.1:7900",
		ValidArgs: logLevels,
	}
	return d.ClientCommand(cmd, func(ctx context.Context, s *shell.Session, args []string) error {
		if !slices.Contains(logLevels, args[0]) {
			return shell.Usagef(cmd, "%s is not a log level: valid levels are %s", inspect.Printable(args[0]),
				strings.Join(logLevels, ", "))
		}
		answer, err := s.Admin.SetLogLevel(ctx, &pb.SetLogLevelRequest{Level: args[0]})
		return d.Out.Done(err, "log level is now %s, was %s", args[0],
			strings.ToLower(answer.GetBefore()))
	})
}
