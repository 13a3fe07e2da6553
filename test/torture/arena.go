package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"math/rand/v2"
	"time"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/test/cluster"
	"github.com/percolator-go/percolator/test/workload"
)

// arena is a cluster under one fault. Its methods belong to the goroutine that strikes.
type arena struct {
	o       options
	c       *cluster.Cluster
	db      *percolator.DB // for orders
	rng     *rand.Rand
	until   time.Time // no harm after that: the workloads' last checks need a sound cluster
	strikes int
	steps   *log.Logger
}

func (a *arena) log(format string, args ...any) { a.steps.Printf(format, args...) }

func (a *arena) left() time.Duration { return max(time.Until(a.until), 0) }

// wait lets time pass.
func (a *arena) wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
	return nil
}

// hold is how long a fault lasts: two to eight seconds, a person's or a watchdog's time to notice.
func (a *arena) hold(ctx context.Context) error {
	return a.wait(ctx, min(2*time.Second+time.Duration(a.rng.Int64N(int64(6*time.Second))), a.left()))
}

// strikeAll repeats the fault until the time is up, with a few sound seconds between.
func (a *arena) strikeAll(ctx context.Context, f fault) error {
	for a.left() > 0 && ctx.Err() == nil {
		if err := f.strike(ctx, a); err != nil {
			return fmt.Errorf("strike %d: %w", a.strikes, err)
		}
		a.strikes++
		_ = a.wait(ctx, min(2*time.Second+time.Duration(a.rng.Int64N(int64(4*time.Second))), a.left()))
	}
	return nil
}

// any is one of the nodes that began the cluster.
func (a *arena) any() *cluster.Process { return a.c.Node(a.rng.IntN(a.o.nodes)) }

// start starts nodes and waits until they are ready.
func (a *arena) start(ctx context.Context, nodes ...*cluster.Process) error {
	var errs []error
	for _, p := range nodes {
		errs = append(errs, p.Start())
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return errors.Join(append(errs, a.c.Ready(ctx))...)
}

// members are the nodes as the cluster knows them.
func (a *arena) members(ctx context.Context) ([]*pb.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	r, err := a.db.Client().Transport().Nodes(ctx, &pb.NodesRequest{})
	return r.GetNodes(), err
}

// best is the process whose node is rated highest; any, if the cluster does not tell.
func (a *arena) best(ctx context.Context, rate func(*pb.Node) uint32) *cluster.Process {
	nodes, _ := a.members(ctx)
	best, rating := a.any(), uint32(0)
	for _, n := range nodes {
		if p := a.process(n); p != nil && rate(n) > rating {
			best, rating = p, rate(n)
		}
	}
	return best
}

func (a *arena) process(n *pb.Node) *cluster.Process {
	for _, p := range a.c.Nodes() {
		if p.Listen == n.Listen && p.Running() {
			return p
		}
	}
	return nil
}

// leader is the node that leads most tablets, oracle the one that leads meta.
func (a *arena) leader(ctx context.Context) *cluster.Process {
	return a.best(ctx, func(n *pb.Node) uint32 { return n.Leaders })
}

func (a *arena) oracle(ctx context.Context) *cluster.Process {
	return a.best(ctx, func(n *pb.Node) uint32 {
		if n.LeadsMeta {
			return 1
		}
		return 0
	})
}

// busy reports whether an order was refused for what will pass.
func busy(err error) bool {
	return errors.Is(err, percolator.ErrUnavailable) || errors.Is(err, percolator.ErrOverloaded) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, percolator.ErrInvalid)
}

func (a *arena) splitSomewhere(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	row := fmt.Sprintf("%02x", a.rng.IntN(256))
	a.log("split at %s", row)
	if err := a.db.Client().Transport().SplitTablet(ctx, workload.Table, row); err != nil && !busy(err) {
		return fmt.Errorf("split: %w", err)
	}
	return nil
}

// moveSomething moves the leadership of a tablet of the workloads' to another of its replicas.
func (a *arena) moveSomething(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	t := a.db.Client().Transport()
	found, err := t.Locate(ctx, mvcc.FirstUserTable, "", 64)
	if err != nil || len(found) == 0 {
		return nil // asked again at the next strike
	}
	d := found[a.rng.IntN(len(found))]
	r := d.Replicas[a.rng.IntN(len(d.Replicas))]
	a.log("let node %d lead tablet %d", r.NodeId, d.TabletId)
	_, err = t.MoveTablet(ctx, &pb.MoveTabletRequest{TabletId: d.TabletId, ToNode: r.NodeId, Leader: true})
	if err != nil {
		a.log("refused: %v", err)
	}
	return nil
}

// drain waits until the node holds nothing.
func (a *arena) drain(ctx context.Context, p *cluster.Process) error {
	t := a.db.Client().Transport()
	for began := time.Now(); time.Since(began) < time.Minute && ctx.Err() == nil; {
		nodes, _ := a.members(ctx)
		for _, n := range nodes {
			if n.Listen != p.Listen {
				continue
			}
			if n.State == pb.NodeState_NODE_STATE_DRAINED {
				a.log("drained %d", p.Index)
				return nil
			}
			if n.State == pb.NodeState_NODE_STATE_ACTIVE {
				_, err := t.DrainNode(ctx, &pb.DrainNodeRequest{NodeId: n.NodeId})
				a.log("drain %d: %v", p.Index, err)
			}
		}
		_ = a.wait(ctx, 500*time.Millisecond)
	}
	return fmt.Errorf("node %d was not drained in a minute", p.Index)
}
