package node_test

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"sync"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/node"
	"github.com/percolator-go/percolator/test/workload"
)

// patience is a caller's timeout for one transaction while the cluster changes.
const patience = 20 * time.Second

// adders count their commits in the background, one row each, until they are stopped.
type adders struct {
	end  chan struct{}
	runs sync.WaitGroup
	sums []int
}

func startAdders(t *testing.T, n int, db func() *percolator.DB) *adders {
	a := &adders{end: make(chan struct{}), sums: make([]int, n)}
	for i := range n {
		a.runs.Go(func() {
			for {
				select {
				case <-a.end:
					return
				default:
				}
				if err := addOne(db(), i); err != nil {
					t.Errorf("a patient caller: %v", err)
					return
				}
				a.sums[i]++
			}
		})
	}
	return a
}

func (a *adders) stop() {
	close(a.end)
	a.runs.Wait()
}

// adderRow spreads the rows over the table's tablets.
func adderRow(i int) string { return fmt.Sprintf("%02x/adder", (i*37)%256) }

var adderColumn = percolator.Column{Table: workload.Table, Name: "n"}

func addOne(db *percolator.DB, i int) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return db.Transact(ctx, func(ctx context.Context, tx *percolator.Tx) error {
		value, _, err := tx.Get(ctx, adderRow(i), adderColumn)
		if err != nil {
			return err
		}
		n, _ := strconv.Atoi(string(value))
		tx.Set(adderRow(i), adderColumn, strconv.AppendInt(nil, int64(n+1), 10))
		return nil
	})
}

// check compares the rows with the counted commits.
func (a *adders) check(ctx context.Context, t *testing.T, db *percolator.DB) {
	t.Helper()
	total := 0
	for i, want := range a.sums {
		total += want
		err := db.Transact(ctx, func(ctx context.Context, tx *percolator.Tx) error {
			value, _, err := tx.Get(ctx, adderRow(i), adderColumn)
			if got, _ := strconv.Atoi(string(value)); err == nil && got != want {
				t.Errorf("row %d holds %d, and %d were committed", i, got, want)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
	t.Logf("%d transactions", total)
}

// layout is the positions of replicas and leaders, by the leaders' reports.
type layout struct {
	tablets           map[uint64]*pb.StatusResponse
	replicas, leaders map[uint64]int
}

func (r *rig) layout() layout {
	l := layout{map[uint64]*pb.StatusResponse{}, map[uint64]int{}, map[uint64]int{}}
	for _, n := range r.nodes {
		if n == nil {
			continue
		}
		for _, s := range n.Status().Tablets {
			if have := l.tablets[s.Tablet.TabletId]; s.Leader &&
				(have == nil || have.Term < s.Term) {
				l.tablets[s.Tablet.TabletId] = s
			}
		}
	}
	for _, s := range l.tablets {
		l.leaders[s.NodeId]++
		for _, x := range s.Tablet.Replicas {
			l.replicas[x.NodeId]++
		}
	}
	return l
}

// settled returns why the layout does not have n tablets with the required voters each, spread
// evenly over the nodes; empty: it has.
func (l *layout) settled(tablets, voters int, nodes []uint64) string {
	if len(l.tablets) != tablets {
		return fmt.Sprintf("%d tablets have a leader, of %d", len(l.tablets), tablets)
	}
	for id, s := range l.tablets {
		n := 0
		for _, x := range s.Tablet.Replicas {
			if !x.Learner && !x.Incoming && !x.Outgoing {
				n++
			}
		}
		if n != voters || len(s.Tablet.Replicas) != voters {
			return fmt.Sprintf("tablet %d: %v", id, s.Tablet.Replicas)
		}
	}
	for what, on := range map[string]map[uint64]int{"replicas": l.replicas, "leaders": l.leaders} {
		sum := 0
		for _, n := range on {
			sum += n
		}
		mean := float64(sum) / float64(len(nodes))
		for _, id := range nodes {
			if off := max(float64(on[id])-math.Ceil(mean),
				math.Floor(mean)-float64(on[id])); off > max(1, mean/5) {
				return fmt.Sprintf("node %d has %d %s of a mean of %.1f: %v", id, on[id], what,
					mean, on)
			}
			sum -= on[id]
		}
		if sum != 0 {
			return fmt.Sprintf("%d %s are on other nodes than %v: %v", sum, what, nodes, on)
		}
	}
	return ""
}

// placed waits until the tablets are placed correctly on the named live nodes.
func (r *rig) placed(ctx context.Context, tablets, voters int, live ...int) {
	r.t.Helper()
	nodes := make([]uint64, len(live))
	for i, n := range live {
		nodes[i] = r.id(n)
	}
	began := time.Now()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		l := r.layout()
		why := l.settled(tablets, voters, nodes)
		if why == "" {
			r.t.Logf("%d nodes: %d replicas of each tablet after %v: %v, leaders %v", len(live),
				voters, time.Since(began).Round(time.Millisecond), l.replicas, l.leaders)
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			for _, n := range r.nodes {
				if n != nil {
					r.t.Logf("node %d: %v", n.Status().NodeId, n.Status().Placement)
				}
			}
			r.t.Fatalf("%d nodes: %s", len(live), why)
		}
	}
}

// TestGrowsAndShrinks: one node becomes three, then five, then three again, under writes. No caller
// with a long timeout sees an error, replicas and leaders are spread evenly each time, and every
// commit is present, equal on every replica.
func TestGrowsAndShrinks(t *testing.T) {
	t.Parallel()
	const tablets = 12
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	r := newRig(t, 1, func(_ int, c *node.Config) {
		c.Placement = node.Placement{
			Busy: 20 * time.Millisecond, Interval: 200 * time.Millisecond, Rest: time.Second,
		}
		c.Splits.Off = true
	})
	operator := r.nodes[0].DB()
	if err := workload.Prepare(ctx, operator, tablets); err != nil {
		t.Fatal(err)
	}
	descriptors, err := handle.Client(operator).Transport().Locate(ctx, 0, "", 1000)
	if err != nil {
		t.Fatal(err)
	}
	all := len(descriptors)
	load := startAdders(t, 4, func() *percolator.DB { return operator })
	r.add()
	r.add()
	r.placed(ctx, all, 3, 0, 1, 2)
	r.add()
	r.add()
	r.placed(ctx, all, 3, 0, 1, 2, 3, 4)
	for _, i := range []int{1, 2} {
		if _, err := handle.Client(operator).Admin().DrainNode(ctx,
			&pb.DrainNodeRequest{NodeId: r.id(i)}); err != nil {
			t.Fatal(err)
		}
	}
	r.placed(ctx, all, 3, 0, 3, 4)
	r.drained(ctx, r.id(1), r.id(2))
	r.stop(1)
	r.stop(2)
	r.placed(ctx, all, 3, 0, 3, 4)
	if _, err := handle.Client(operator).Admin().DrainNode(ctx,
		&pb.DrainNodeRequest{NodeId: r.id(3)}); err == nil {
		t.Error("a drain that leaves two nodes for three replicas is taken on")
	}
	load.stop()
	load.check(ctx, t, r.nodes[3].DB())
	for id := range r.layout().tablets {
		v, err := handle.Client(operator).Admin().VerifyTablet(ctx, &pb.VerifyTabletRequest{TabletId: id})
		if err != nil || !v.Equal || len(v.Replicas) != 3 {
			t.Errorf("tablet %d: %v, %v", id, v, err)
		}
	}
}

// drained waits until meta lists the nodes as drained.
func (r *rig) drained(ctx context.Context, ids ...uint64) {
	r.t.Helper()
	left := map[uint64]bool{}
	for _, id := range ids {
		left[id] = true
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for len(left) > 0 {
		resp, err := handle.Client(r.nodes[0].DB()).Admin().Nodes(ctx, &pb.NodesRequest{})
		if err != nil {
			r.t.Fatal(err)
		}
		for _, n := range resp.Nodes {
			if n.State == pb.NodeState_NODE_STATE_DRAINED {
				delete(left, n.NodeId)
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			r.t.Fatalf("not drained: %v", resp.Nodes)
		}
	}
}

// TestReplacesALostNode: the replicas of the node that founded the cluster are recreated on others
// after it has died; requests to move a replica, and leadership, are executed.
func TestReplacesALostNode(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	r := newRig(t, 4, func(_ int, c *node.Config) {
		c.Placement = node.Placement{
			Busy: 20 * time.Millisecond, Interval: 100 * time.Millisecond, GoneAfter: time.Second,
			Rest: time.Second,
		}
		c.Splits.Off = true
	})
	db := r.nodes[1].DB()
	if err := workload.Prepare(ctx, db, 3); err != nil {
		t.Fatal(err)
	}
	load := startAdders(t, 2, func() *percolator.DB { return db })
	descriptors, err := handle.Client(db).Transport().Locate(ctx, 0, "", 1000)
	if err != nil {
		t.Fatal(err)
	}
	r.placed(ctx, len(descriptors), 3, 0, 1, 2, 3)
	r.crash(0)
	r.placed(ctx, len(descriptors), 3, 1, 2, 3)
	load.stop()
	load.check(ctx, t, r.nodes[2].DB())
	operator := handle.Client(r.nodes[3].DB()).Admin()
	id, to := descriptors[len(descriptors)-1].TabletId, uint64(0)
	s := r.layout().tablets[id]
	for _, x := range s.Tablet.Replicas {
		if x.NodeId != s.NodeId {
			to = x.NodeId
		}
	}
	r.until(ctx, "the ordered leader leads", func() bool {
		_, err := operator.MoveTablet(ctx,
			&pb.MoveTabletRequest{TabletId: id, ToNode: to, Leader: true})
		return err == nil && r.layout().tablets[id].GetNodeId() == to
	})
	r.add()
	r.ordersMove(ctx, operator, id)
}

// ordersMove requests a move of a replica of a tablet from one of its nodes to one without a
// replica, and waits for its end. Balancing may move another replica first: then the request is
// refused and another is sent.
func (r *rig) ordersMove(ctx context.Context, operator pb.AdminClient, id uint64) {
	r.t.Helper()
	order := &pb.MoveTabletRequest{TabletId: id}
	r.until(ctx, "the ordered move is made", func() bool {
		have := r.layout().tablets[id].GetTablet()
		if order.ToNode != 0 {
			if wire.ReplicaOn(have, order.ToNode) != nil &&
				wire.ReplicaOn(have, order.FromNode) == nil {
				return true
			}
			if _, err := operator.MoveTablet(ctx, order); err == nil {
				return false
			}
		}
		if len(have.GetReplicas()) != 3 { // a move is in progress
			return false
		}
		order = &pb.MoveTabletRequest{TabletId: id, FromNode: have.Replicas[0].NodeId}
		for i, n := range r.nodes {
			if n != nil && wire.ReplicaOn(have, r.id(i)) == nil {
				order.ToNode = r.id(i)
			}
		}
		return false
	})
}

// until waits for a condition.
func (r *rig) until(ctx context.Context, what string, ok func() bool) {
	r.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			r.t.Fatalf("not yet: %s", what)
		}
	}
}
