package cli

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// tabletMove orders one move; placement does it.
func (r *run) tabletMove() *cobra.Command {
	var from, to string
	var leader bool
	cmd := &cobra.Command{
		Use:   "move TABLET {--from NODE | --leader} --to NODE",
		Short: "Move one replica of a tablet to another node, or its leadership",
		Long: `Move one replica of a tablet from one node to another; or, with --leader, have the replica on a node lead. TABLET is a
number of tablet ls. Nodes are named by their ids or by the addresses that clients reach them at.

It returns when the order is recorded. What is ordered is done whatever node leads, also after a restart; tablet ls shows
how far it is. An order that can't be carried out any more, because a node has gone or is drained, ends. Replicas and
leaders are spread evenly by themselves: after ten minutes a move that makes the cluster uneven may be undone.

It is refused if there is no such node or tablet, if the replica is not there, if the other node has one already, or if
two replicas would come into one zone that need not.`,
		Example: r.example("tablet move 7 --from 127.0.0.1:7800 --to 127.0.0.1:7810", "tablet move 7 --leader --to 127.0.0.1:7810"),
		Args:    argsBetween(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := strconv.ParseUint(args[0], 10, 64)
			switch {
			case err != nil:
				return usagef(cmd, "TABLET is a number of tablet ls, not %s", printable(args[0]))
			case to == "":
				return usagef(cmd, "--to says to which node")
			case leader == (from != ""):
				return usagef(cmd, "give one of --from NODE, for a replica, and --leader")
			}
			return r.talk(cmd, func(ctx context.Context, s *session) error {
				return r.move(ctx, s, &pb.MoveTabletRequest{TabletId: id, Leader: leader}, from, to)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&from, "from", "", "the node whose replica moves")
	flags.StringVar(&to, "to", "", "the node that gets it, or that is to lead")
	flags.BoolVar(&leader, "leader", false, "move the leadership only")
	return r.withClient(cmd)
}

func (r *run) move(ctx context.Context, s *session, req *pb.MoveTabletRequest, from, to string) (err error) {
	if req.ToNode, err = nodeID(ctx, s, to); err != nil {
		return err
	}
	if !req.Leader {
		if req.FromNode, err = nodeID(ctx, s, from); err != nil {
			return err
		}
	}
	if _, err := s.admin.MoveTablet(ctx, req); err != nil {
		return err
	}
	if req.Leader {
		return r.done("node %d is to lead tablet %d", req.ToNode, req.TabletId)
	}
	return r.done("the replica of tablet %d on node %d is to move to node %d", req.TabletId, req.FromNode, req.ToNode)
}
