package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/test/cluster"
	"github.com/percolator-go/percolator/test/workload"
)

// busy reports whether a command was refused for a reason that is no failure: temporarily, or since
// the tablets have changed (ErrInvalid).
func busy(err error) bool {
	return errors.Is(err, percolator.ErrUnavailable) || errors.Is(err, percolator.ErrOverloaded) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, percolator.ErrInvalid)
}

// walk queries every tablet itself, from the first to the last, because the maps cached by nodes
// may be older.
func walk(ctx context.Context, db *percolator.DB) (found []*pb.TabletDescriptor, err error) {
	at := wire.Position{Table: mvcc.MetaTable}
	for {
		r, _, err := handle.Client(db).Send(ctx, at,
			&pb.TabletRequest{Op: &pb.TabletRequest_Status{Status: &pb.StatusRequest{}}})
		if err != nil {
			return found, err
		}
		d := r.GetStatus().GetTablet()
		if found = append(found, d); d.EndUnbounded {
			return found, nil
		}
		at = wire.Position{Table: mvcc.TableID(d.EndTable), Row: string(d.EndRow)}
	}
}

// splitSomewhere splits the workloads' table, or now and then the observers'.
func (a *arena) splitSomewhere(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	table, row := workload.Table, fmt.Sprintf("%02x", a.rng.IntN(256))
	if a.rng.IntN(5) == 0 {
		table, row = "counting", []string{"row/", "shard/", "shard/2", "trace/"}[a.rng.IntN(4)]
	}
	err := handle.Client(a.db).Transport().SplitTablet(ctx, table, row)
	a.log("split %s at %s: %v", table, row, err)
	if err != nil && !busy(err) {
		return fmt.Errorf("split: %w", err)
	}
	return nil
}

// mergeSomewhere merges two tablets of the workloads' table, once there are many. A refusal, such
// as because of another change, is not a failure.
func (a *arena) mergeSomewhere(ctx context.Context) error {
	const many = 4
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	client := handle.Client(a.db)
	id, err := client.TableID(ctx, workload.Table)
	found, walkErr := walk(ctx, a.db)
	var rows [][]byte
	for _, d := range found {
		if mvcc.TableID(d.StartTable) == id && len(d.StartRow) > 0 {
			rows = append(rows, d.StartRow)
		}
	}
	if err != nil || walkErr != nil || len(rows) < many {
		a.log("nothing to merge: %v", errors.Join(err, walkErr))
		return nil
	}
	row := rows[a.rng.IntN(len(rows))]
	_, err = client.Admin().MergeTablets(ctx, &pb.MergeTabletsRequest{Table: workload.Table, Row: row})
	a.log("merge %s at %s: %v", workload.Table, row, err)
	return nil
}

// moveSomething moves the leadership of a tablet to a random one of its replicas, or a replica
// to a node that has none of it.
func (a *arena) moveSomething(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	t := handle.Client(a.db).Admin()
	found, err := walk(ctx, a.db)
	nodes, nodesErr := a.members(ctx)
	if err != nil || nodesErr != nil || len(found) == 0 {
		a.log("nothing to move: %v", errors.Join(err, nodesErr))
		return nil // the next strike tries again
	}
	d := found[a.rng.IntN(len(found))]
	req := &pb.MoveTabletRequest{
		TabletId: d.TabletId, ToNode: d.Replicas[a.rng.IntN(len(d.Replicas))].NodeId, Leader: true,
	}
	holds := map[uint64]bool{}
	for _, r := range d.Replicas {
		holds[r.NodeId] = true
	}
	var free []uint64
	for _, n := range nodes {
		if !holds[n.NodeId] && n.State == pb.NodeState_NODE_STATE_ACTIVE {
			free = append(free, n.NodeId)
		}
	}
	if len(free) > 0 && a.rng.IntN(2) == 0 {
		req.FromNode, req.ToNode, req.Leader = req.ToNode, free[a.rng.IntN(len(free))], false
	}
	_, err = t.MoveTablet(ctx, req)
	a.log("move tablet %d from node %d to %d, leader %t: %v", req.TabletId, req.FromNode,
		req.ToNode, req.Leader, err)
	return nil // a refusal is no error: another change may be under way
}

// share waits until every node holds a replica, or the time for faults is over: placement does not
// move a tablet again for a minute after a change.
func (a *arena) share(ctx context.Context) {
	for began := time.Now(); ctx.Err() == nil && a.left() > 0; {
		nodes, err := a.members(ctx)
		idle, held := 0, []uint32(nil)
		for _, n := range nodes {
			if !n.Alive {
				continue
			}
			if held = append(held, n.Replicas); n.Replicas == 0 {
				idle++
			}
		}
		if err == nil && idle == 0 {
			a.log("after %v the nodes hold %v replicas", time.Since(began), held)
			return
		}
		_ = a.wait(ctx, 300*time.Millisecond)
	}
	a.log("some node still holds no replica")
}

// drain drains the node and waits until it holds no replica.
func (a *arena) drain(ctx context.Context, p *cluster.Process) error {
	const patience = 90 * time.Second
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	t, last := handle.Client(a.db).Admin(), pb.NodeState_NODE_STATE_UNSPECIFIED
	for ctx.Err() == nil {
		nodes, err := a.members(ctx)
		for _, n := range nodes {
			if !n.Alive || a.process(n) != p {
				continue
			}
			if n.State != last {
				a.log("node %d is %v, with %d replicas, %d leaders: %v", p.Index, n.State,
					n.Replicas, n.Leaders, err)
			}
			if last = n.State; last == pb.NodeState_NODE_STATE_DRAINED {
				return nil
			}
			if last == pb.NodeState_NODE_STATE_ACTIVE {
				_, err := t.DrainNode(ctx, &pb.DrainNodeRequest{NodeId: n.NodeId})
				a.log("drain %d: %v", p.Index, err)
			}
		}
		_ = a.wait(ctx, 300*time.Millisecond)
	}
	return fmt.Errorf("node %d was not drained in %v", p.Index, patience)
}
