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
)

// drainPoll is how often --wait asks.
const drainPoll = 500 * time.Millisecond

// nodeDrain empties a node, so that it may be stopped for good.
func (r *run) nodeDrain() *cobra.Command {
	var undo, wait bool
	cmd := &cobra.Command{
		Use:   "drain NODE",
		Short: "Move all replicas and leaders away from a node, or take that back",
		Long: `Move all leaders and then all replicas away from a node, to the other nodes. NODE is its id or the address that clients
reach it at: of several nodes that had the address in turn, the one that is alive. The node goes on serving meanwhile.
Once it is drained it holds nothing and may be stopped for good.

A drain is refused if the other nodes are too few for as many replicas as every tablet has: add a node first. Should they
become too few later, it waits, and node ls says why. It goes on whatever node leads, also after a restart.

--wait returns when the node is drained. --undo ends a drain, or lets a drained node hold replicas again.`,
		Example: r.example("node drain 127.0.0.1:7810 --wait", "node drain 127.0.0.1:7810 --undo"),
		Args:    argsBetween(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if undo && wait {
				return usagef(cmd, "--undo is done at once: there is nothing to --wait for")
			}
			talk := r.talk
			if wait {
				talk = r.talkLong
			}
			return talk(cmd, func(ctx context.Context, s *session) error {
				return r.drain(ctx, s, args[0], undo, wait)
			})
		},
	}
	cmd.Flags().BoolVar(&undo, "undo", false, "let the node hold replicas again")
	cmd.Flags().BoolVar(&wait, "wait", false, "return when the node holds nothing any more; --timeout bounds the connecting only")
	return r.withClient(cmd)
}

func (r *run) drain(ctx context.Context, s *session, name string, undo, wait bool) error {
	id, err := nodeID(ctx, s, name)
	if err != nil {
		return err
	}
	resp, err := s.admin.DrainNode(ctx, &pb.DrainNodeRequest{NodeId: id, Undo: undo})
	switch {
	case err != nil:
		return err
	case undo:
		return r.nodeDone(resp.GetNode(), "node %d may hold replicas again", id)
	case !wait:
		return r.nodeDone(resp.GetNode(), "node %d is being drained; node ls tells when it is", id)
	}
	return r.awaitDrained(ctx, s, id)
}

// awaitDrained tells on stderr what the drain waits for.
func (r *run) awaitDrained(ctx context.Context, s *session, id uint64) error {
	told := ""
	for {
		nodes, err := s.admin.Nodes(ctx, &pb.NodesRequest{})
		if err != nil {
			return err
		}
		for _, n := range nodes.GetNodes() {
			switch {
			case n.NodeId != id || nodes.Unavailable != "": // meta knows, and will answer again
			case n.State == pb.NodeState_NODE_STATE_DRAINED:
				return r.nodeDone(n, "node %d is drained: it may be stopped for good", id)
			case n.State != pb.NodeState_NODE_STATE_DRAINING:
				return fmt.Errorf("the drain of node %d was taken back", id)
			case n.Blocked != told:
				if told = n.Blocked; told != "" {
					r.note("node %d waits: %s", id, told)
				}
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(drainPoll):
		}
	}
}

// nodeDone confirms a change of a node.
func (r *run) nodeDone(n *pb.Node, format string, args ...any) error {
	if r.output != outputJSON {
		return r.done(format, args...)
	}
	return r.message(n)
}

// errWhichNode: an address does not tell which node is meant.
var errWhichNode = errors.New("several nodes have this address")

// nodeID is the id of a node that is named by it, or by the address for clients. An address may
// have had several nodes in turn, whose records stay: the one that is alive there is meant. Where
// none or several are alive the address is refused unless only one node ever had it.
func nodeID(ctx context.Context, s *session, name string) (uint64, error) {
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
		return 0, &hintError{err: fmt.Errorf("no node listens at %s", printable(name)), hint: "`node ls` lists the nodes"}
	case len(alive) == 1:
		return alive[0].NodeId, nil
	case len(all) == 1:
		return all[0].NodeId, nil
	}
	var candidates []string
	for _, n := range all {
		candidates = append(candidates, fmt.Sprintf("node %d (incarnation %d, %s)", n.NodeId, n.Incarnation, strings.Join(nodeLine(n)[2:4], ", ")))
	}
	return 0, &hintError{
		err:  fmt.Errorf("%w, and %d of them are alive: %s: %s", errWhichNode, len(alive), printable(name), strings.Join(candidates, ", ")),
		hint: "name the one that is meant by its id",
	}
}
