package meta

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"

	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/internal/wire"
)

// The node table, the authoritative list of the cluster's nodes. A node's record is changed by the
// node that registers (RegisterNode), by operators (StartDrain, SetNodeState) and by placement on
// the node that leads meta (SetNodeState, SetNodeGone), each on its own goroutine and possibly
// concurrently: every change is computed from the current record and written on condition that it
// is unchanged.

// prefixNode is the prefix of the rows of node records, one for each node that has joined and is
// not forgotten.
const prefixNode = "node/"

// maxNodeRecord is the maximum size of a registered record in bytes.
const maxNodeRecord = 4096

// NodeTable is the list of the cluster's nodes.
type NodeTable struct {
	records
	tablets *TabletMap // for the replicas of a node to be forgotten
}

// Reasons to reject a change of the node table. Each comes with a txn.ServerError that names the
// node.
var (
	// ErrNoNode reports that meta has no record of the node.
	ErrNoNode = errors.New("meta: no such node")
	// ErrNodeState reports that the node's state does not allow the change.
	ErrNodeState = errors.New("meta: the node's state does not allow it")
)

// nodeRow returns the row of a node's record.
func nodeRow(id uint64) string { return prefixNode + strconv.FormatUint(id, 10) }

// Nodes returns the node table in the order of node ids.
func (t *NodeTable) Nodes(ctx context.Context) ([]*wire.NodeRecord, error) {
	all, err := list[*wire.NodeRecord](ctx, t.records, prefixNode)
	slices.SortFunc(all, func(a, b *wire.NodeRecord) int { return cmp.Compare(a.NodeId, b.NodeId) })
	return all, err
}

// RegisterNode records an incarnation of a node, with its addresses, labels and version, and
// returns the resulting record. now, a new oracle timestamp, becomes the JoinedTs of a new node.
//
// A state set by an operator is kept; a node that was declared gone is active again. The same
// process may repeat the call. Errors: ErrStaleIncarnation, ErrDuplicateNode, ErrForgotten,
// version.ErrIncompatible.
func (t *NodeTable) RegisterNode(ctx context.Context, r *wire.NodeRecord,
	now uint64) (*wire.NodeRecord, error) {
	if r.NodeId == 0 || r.Incarnation == 0 || proto.Size(r) > maxNodeRecord {
		return nil, refuse(pb.Error_CODE_INVALID,
			"a node registers with its id and incarnation, in at most %d bytes", maxNodeRecord)
	}
	register := func(have *wire.NodeRecord) (*wire.NodeRecord, error) {
		// fn may be called again, so r itself is not changed.
		to := proto.CloneOf(r)
		to.GoneSince, to.State, to.JoinedTs = 0, pb.NodeState_NODE_STATE_ACTIVE, now
		// Only the last start, this process's, is kept; the others only prove that the directory
		// is the right one.
		to.Starts = to.Starts[max(0, len(to.Starts)-1):]
		if have == nil {
			return to, t.roomForNode(ctx)
		}
		switch {
		case have.Incarnation > r.Incarnation:
			return nil, refuseAs(cluster.ErrStaleIncarnation,
				"node %d has registered as incarnation %d, later than %d: this directory is in use "+
					"elsewhere, or was restored from a copy",
				r.NodeId, have.Incarnation, r.Incarnation)
		case have.Incarnation == r.Incarnation && !sameProcess(have, r):
			return nil, refuseAs(cluster.ErrDuplicateNode,
				"node %d, incarnation %d, is registered at %s by another process: if this directory is a copy "+
					"of that one's, delete it and join with an empty one",
				r.NodeId, r.Incarnation, have.Peer)
		case !knowsStart(have, r):
			return nil, refuseAs(cluster.ErrStaleIncarnation,
				"node %d has run as incarnation %d since this directory was copied: its later votes and "+
					"acknowledgments are not "+
					"in it; delete it and join with an empty one", r.NodeId, have.Incarnation)
		}
		// The node is known: take only the addresses, labels, version, incarnation and start from
		// the new record.
		to.JoinedTs = have.JoinedTs
		if have.State != pb.NodeState_NODE_STATE_GONE {
			to.State, to.DrainReplicas = have.State, have.DrainReplicas
		}
		return to, nil
	}
	return t.changeNode(ctx, r.NodeId, register, func() (change, error) { return t.admit(ctx, r) })
}

// admit rejects a node whose build is incompatible with the cluster's agreed versions, and
// returns the condition that these are unchanged when the node is registered.
func (t *NodeTable) admit(ctx context.Context, r *wire.NodeRecord) (change, error) {
	p, value, err := load[*pb.Policy](ctx, t.records, rowPolicy)
	if err != nil {
		return change{}, err
	}
	if err := wire.Agreed(p.GetAgreed()).Admit(wire.Versions(r.Versions)); err != nil {
		return change{}, refuseAs(err, "node %d, of build %s, is not admitted", r.NodeId, r.Version)
	}
	return change{row: rowPolicy, old: value, keep: true}, nil
}

// sameProcess reports whether two records of one incarnation are of one process: two processes
// cannot have the same addresses.
func sameProcess(a, b *wire.NodeRecord) bool {
	return a.Listen == b.Listen && a.Peer == b.Peer && a.Gossip == b.Gossip
}

// knowsStart reports whether the registering directory contains the start that registered last.
// Otherwise it was restored from a copy, and its votes or acknowledgments would contradict those
// that the node has given since. The incarnation cannot show that: it increases with every start,
// including rejected ones.
func knowsStart(have, r *wire.NodeRecord) bool {
	if len(have.Starts) == 0 || len(r.Starts) == 0 { // one is of a version without start numbers
		return true
	}
	return slices.Contains(r.Starts, have.Starts[len(have.Starts)-1])
}

// roomForNode rejects a further node when there are records of cluster.MaxNodes. Concurrent
// registrations may exceed the limit by their number.
func (t *NodeTable) roomForNode(ctx context.Context) error {
	all, err := t.Nodes(ctx)
	if err == nil && len(all) >= cluster.MaxNodes {
		return refuse(pb.Error_CODE_TOO_LARGE,
			"there are records of %d nodes; at most %d: `percolator node forget` removes records of "+
				"nodes that are gone",
			len(all), cluster.MaxNodes)
	}
	return err
}

// SetNodeState sets the node's state and returns the resulting record. The node must be in one of
// the states in from, or already in the new one; an empty from allows any. Errors: ErrNoNode,
// ErrForgotten, ErrNodeState.
func (t *NodeTable) SetNodeState(ctx context.Context, id uint64, to pb.NodeState,
	from ...pb.NodeState) (*wire.NodeRecord, error) {
	return t.changeNode(ctx, id, func(have *wire.NodeRecord) (*wire.NodeRecord, error) {
		switch {
		case have == nil:
			return nil, refuseAs(ErrNoNode, "there is no node %d", id)
		case have.State != to && len(from) > 0 && !slices.Contains(from, have.State):
			return nil, refuseAs(ErrNodeState, "node %d is %s and cannot become %s", id,
				wire.NodeStateName(have.State), wire.NodeStateName(to))
		}
		have.State = to
		return have, nil
	})
}

// StartDrain is like SetNodeState, from active or drained to draining, and records the node's
// current number of replicas, all of which the drain moves. Repeated, it changes nothing.
func (t *NodeTable) StartDrain(ctx context.Context, id uint64,
	replicas uint32) (*wire.NodeRecord, error) {
	return t.changeNode(ctx, id, func(have *wire.NodeRecord) (*wire.NodeRecord, error) {
		switch have.GetState() {
		case pb.NodeState_NODE_STATE_DRAINING:
			return have, nil
		case pb.NodeState_NODE_STATE_ACTIVE, pb.NodeState_NODE_STATE_DRAINED:
			have.State, have.DrainReplicas = pb.NodeState_NODE_STATE_DRAINING, replicas
			return have, nil
		}
		if have == nil {
			return nil, refuseAs(ErrNoNode, "there is no node %d", id)
		}
		return nil, refuseAs(ErrNodeState, "node %d is %s and cannot be drained", id,
			wire.NodeStateName(have.State))
	})
}

// SetNodeGone records since when, in oracle time, the incarnation has not been seen alive, 0 if
// it is alive, and returns the resulting record. If another incarnation has registered in the
// meantime, it changes nothing. A node declared gone that is seen again becomes active.
func (t *NodeTable) SetNodeGone(ctx context.Context, id, incarnation,
	since uint64) (*wire.NodeRecord, error) {
	return t.changeNode(ctx, id, func(have *wire.NodeRecord) (*wire.NodeRecord, error) {
		if have == nil {
			return nil, refuseAs(ErrNoNode, "there is no node %d", id)
		}
		if have.Incarnation == incarnation {
			have.GoneSince = since
			if since == 0 && have.State == pb.NodeState_NODE_STATE_GONE {
				have.State = pb.NodeState_NODE_STATE_ACTIVE
			}
		}
		return have, nil
	})
}

// changeNode replaces a record by fn's result and returns it. have is nil if there is no record,
// and fn may edit it in place. fn is called again after a conflict. A forgotten node gets no new
// record: ErrForgotten. The change is also conditional on the further conditions.
func (t *NodeTable) changeNode(
	ctx context.Context, id uint64, fn func(have *wire.NodeRecord) (*wire.NodeRecord, error),
	conditions ...func() (change, error),
) (*wire.NodeRecord, error) {
	return update(ctx, t.records, nodeRow(id),
		func(have *wire.NodeRecord) (to *wire.NodeRecord, with []change, err error) {
			for _, condition := range conditions {
				c, err := condition()
				if err != nil {
					return nil, nil, err
				}
				with = append(with, c)
			}
			// A first record is written on condition that the node has not been forgotten.
			if have == nil {
				unless, err := t.notForgotten(ctx, id)
				if err != nil {
					return nil, nil, err
				}
				with = append(with, unless)
			}
			to, err = fn(have)
			return to, with, err
		})
}
