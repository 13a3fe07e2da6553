package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// nodeForget removes a node that is gone from the node table.
func (r *run) nodeForget() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "forget NODE --yes",
		Short: "Remove the record of a node that is gone and holds nothing",
		Long: `Remove the record of a node that is gone: one that was drained and stopped, or has been away for so long
that what it held is elsewhere. NODE is its id or the address that clients reached it at. A node that is
alive or holds replicas is refused.

Its directory is of no use any more: a node that is started on it is refused. Nodes that hold nothing are
forgotten by themselves after a day (cluster set forget-after=…).`,
		Example: r.example("node forget 4711 --yes"),
		Args:    argsBetween(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cost := fmt.Sprintf("node %s is never let in again on the directory that it has", printable(args[0]))
			if err := r.confirm(cmd, yes, args[0], cost); err != nil {
				return err
			}
			return r.talk(cmd, func(ctx context.Context, s *session) error {
				id, err := nodeID(ctx, s, args[0])
				if err != nil {
					return err
				}
				if _, err := s.admin.ForgetNode(ctx, &pb.ForgetNodeRequest{NodeId: id}); err != nil {
					return err
				}
				return r.done("node %d is forgotten", id)
			})
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "it is meant")
	return r.withClient(cmd)
}
