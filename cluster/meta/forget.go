package meta

import (
	"context"
	"errors"
	"slices"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/internal/wire"
)

// Removal of nodes from the node table. Only the ids of forgotten nodes are kept, in one record.
// The directory of such a node may contain votes for groups that have since continued without it,
// and must not be admitted again.

// rowForgotten is the row of the forgotten ids; maxForgotten bounds them, at eight bytes each.
const (
	rowForgotten = "forgotten"
	maxForgotten = 1 << 16
)

// Reasons not to forget a node. Each comes with a txn.ServerError that names the node.
var (
	// ErrNodeInUse reports that the node holds replicas.
	ErrNodeInUse = errors.New("meta: the node is in use")
	// ErrNotAway reports that meta's leader has not recorded the node as away. The leader does so
	// within seconds after the node has stopped.
	ErrNotAway = errors.New("meta: the node is not recorded as away")
)

// notForgotten returns the condition for a node's first record: the node is not forgotten, now or
// when that record is written. It fails with ErrForgotten if it has been forgotten.
func (t *NodeTable) notForgotten(ctx context.Context, id uint64) (change, error) {
	f, old, err := load[*wire.ForgottenNodes](ctx, t.records, rowForgotten)
	if err != nil {
		return change{}, err
	}
	if slices.Contains(f.Nodes, id) {
		return change{}, refuseAs(cluster.ErrForgotten,
			"node %d was forgotten, or declared dead by a recovery: delete its directory, and "+
				"join with an empty one", id)
	}
	return change{row: rowForgotten, old: old, keep: true}, nil
}

// ForgetNode removes the record of a node that meta's leader has recorded as away and that holds
// no replica. It may be repeated: forgetting a forgotten node is no error. Errors: ErrNoNode,
// ErrNotAway, ErrNodeInUse.
func (t *NodeTable) ForgetNode(ctx context.Context, id uint64) error {
	return retry(ctx, func() (bool, error) {
		f, forgotten, err := load[*wire.ForgottenNodes](ctx, t.records, rowForgotten)
		if err != nil {
			return false, err
		}
		have, old, err := load[*wire.NodeRecord](ctx, t.records, nodeRow(id))
		switch {
		case err != nil:
			return false, err
		// An earlier call, whose response may have been lost, removed it.
		case old == nil && slices.Contains(f.Nodes, id):
			return true, nil
		case old == nil:
			return false, refuseAs(ErrNoNode, "there is no node %d", id)
		// Whether this node believes the node alive does not matter: the leader of meta decides.
		case have.GoneSince == 0:
			return false, refuseAs(ErrNotAway, "node %d is not recorded as away: stop it; the node that "+
				"leads meta records it within seconds", id)
		// Dropping an old id instead would readmit its directory.
		case len(f.Nodes) >= maxForgotten:
			return false, refuse(pb.Error_CODE_TOO_LARGE, "%d nodes were forgotten; at most %d",
				len(f.Nodes), maxForgotten)
		}
		// Read after the record: a node that has come back in the meantime and holds a replica
		// has changed its record.
		if err := t.holdsNothing(ctx, id); err != nil {
			return false, err
		}
		value, err := withForgotten(f, id)
		if err != nil {
			return false, err
		}
		// Record and list change together: without the record only the list rejects the
		// directory.
		return t.swap(ctx, change{row: nodeRow(id), old: old},
			change{row: rowForgotten, old: forgotten, value: value})
	})
}

// holdsNothing returns ErrNodeInUse if the tablet map has a replica on the node, of any kind,
// including learners and outgoing ones.
func (t *NodeTable) holdsNothing(ctx context.Context, id uint64) error {
	tablets, err := t.tablets.Tablets(ctx)
	if err != nil {
		return err
	}
	held := 0
	for _, d := range tablets {
		if wire.ReplicaOn(d, id) != nil {
			held++
		}
	}
	if held > 0 {
		return refuseAs(ErrNodeInUse, "node %d holds replicas of %d tablets by the tablet map: they are "+
			"recreated elsewhere once it has been away for "+
			"replace-dead-after, if there are other nodes for them", id, held)
	}
	return nil
}
