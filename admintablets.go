package percolator

import (
	"context"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// Tablet is a tablet with the part of its range that is in one table.
type Tablet struct {
	ID    uint64
	Epoch uint64 // grows with every change of its range or replicas
	// From is the first row of the tablet's range, Before the first row after the range. "" means
	// the beginning or the end of the table.
	From, Before string
	// Nodes are the ids of the nodes with replicas. Leader is that of the node that leads the
	// tablet; 0 means no node that has answered leads it.
	Nodes  []uint64
	Leader uint64
}

// ClusterNode is a node of the cluster.
type ClusterNode struct {
	ID        uint64
	Addr      string // where clients reach it
	State     string // "active", "draining", "drained", or another of `percolator node ls`
	Alive     bool
	LeadsMeta bool
	Labels    map[string]string
	Version   string
	// Replicas is the number of the node's replicas, Leaders the number of those that lead their
	// tablets, and SizeBytes the total size of the replicas. All are 0 while the node is not alive.
	Replicas, Leaders int
	SizeBytes         uint64
}

// Nodes returns the nodes of the cluster or, while meta does not answer, those known to the
// answering node. Role: reader.
func (a *Admin) Nodes(ctx context.Context) ([]ClusterNode, error) {
	resp, err := call(ctx, a, pb.AdminClient.Nodes, &pb.NodesRequest{})
	if err != nil {
		return nil, err
	}
	nodes := make([]ClusterNode, len(resp.GetNodes()))
	for i, n := range resp.GetNodes() {
		nodes[i] = ClusterNode{
			ID: n.NodeId, Addr: n.Listen, State: wire.NodeStateName(n.State), Alive: n.Alive,
			LeadsMeta: n.LeadsMeta, Labels: n.Labels, Version: n.Version,
			Replicas: int(n.Replicas), Leaders: int(n.Leaders), SizeBytes: n.SizeBytes,
		}
	}
	return nodes, nil
}

// Tablets returns the tablets that hold rows of the table, in row order. A tablet that splits or
// moves during the call is returned in its state before or after that. It returns ErrNoTable. Role:
// reader.
func (a *Admin) Tablets(ctx context.Context, table string) ([]Tablet, error) {
	if err := a.db.check(); err != nil {
		return nil, err
	}
	id, err := a.db.c.TableID(ctx, table)
	if err != nil {
		return nil, err
	}
	resp, err := call(ctx, a, pb.AdminClient.Nodes, &pb.NodesRequest{Leaders: true})
	if err != nil {
		return nil, err
	}
	leaders := map[uint64]uint64{}
	for _, l := range resp.GetLeaders() {
		leaders[l.TabletId] = l.NodeId
	}
	var tablets []Tablet
	for d, err := range a.db.c.TabletsOf(ctx, id) {
		if err != nil {
			return nil, err
		}
		t := tabletOf(d, id)
		t.Leader = leaders[t.ID]
		tablets = append(tablets, t)
	}
	return tablets, nil
}

func tabletOf(d *pb.TabletDescriptor, of mvcc.TableID) Tablet {
	t := Tablet{ID: d.GetTabletId(), Epoch: d.GetEpoch()}
	if mvcc.TableID(d.GetStartTable()) == of {
		t.From = string(d.GetStartRow())
	}
	if !d.GetEndUnbounded() && mvcc.TableID(d.GetEndTable()) == of {
		t.Before = string(d.GetEndRow())
	}
	for _, r := range d.GetReplicas() {
		t.Nodes = append(t.Nodes, r.GetNodeId())
	}
	return t
}

// SplitTablet splits the tablet that holds the row, just before the row. It changes nothing if a
// tablet begins there. Role: operator.
func (a *Admin) SplitTablet(ctx context.Context, table, row string) error {
	if err := a.db.check(); err != nil {
		return err
	}
	return a.db.c.SplitTablet(ctx, table, row)
}

// MergeTablets merges the tablet that begins at the row with the one before it, and returns the
// tablet that then holds the row. It first moves their replicas to the same nodes, which takes as
// long as MoveReplica; then both are unavailable for about a second. It changes nothing if no tablet
// begins there. Role: operator.
func (a *Admin) MergeTablets(ctx context.Context, table, row string) (Tablet, error) {
	resp, err := call(ctx, a, pb.AdminClient.MergeTablets,
		&pb.MergeTabletsRequest{Table: table, Row: []byte(row)})
	if err != nil {
		return Tablet{}, err
	}
	id, err := a.db.c.TableID(ctx, table)
	return tabletOf(resp.GetTablet(), id), err
}

// MoveReplica orders the move of a tablet's replica from one node to another, and returns when the
// order is recorded. The move continues after a change of leader or a restart; Tablets shows its
// result. An order that becomes impossible, because a node is dead or drained, is dropped. After
// ten minutes the cluster may undo a move that unbalances it. Role: operator.
func (a *Admin) MoveReplica(ctx context.Context, tablet, from, to uint64) error {
	return a.move(ctx, &pb.MoveTabletRequest{TabletId: tablet, FromNode: from, ToNode: to})
}

// MoveLeader orders that the replica of the tablet on the node leads, as MoveReplica does for a
// replica. Role: operator.
func (a *Admin) MoveLeader(ctx context.Context, tablet, to uint64) error {
	return a.move(ctx, &pb.MoveTabletRequest{TabletId: tablet, ToNode: to, Leader: true})
}

func (a *Admin) move(ctx context.Context, req *pb.MoveTabletRequest) error {
	_, err := call(ctx, a, pb.AdminClient.MoveTablet, req)
	return err
}
