package simtest

import (
	"context"
	"fmt"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/test/workload"
)

// adminPatience limits an event's requests to the cluster, which may be unable to answer.
const adminPatience = 3 * time.Second

// play executes a schedule and returns when all its events have begun. Each ends after its time;
// heal waits for that, or ends what still lasts in the network.
func (c *Cluster) play(ctx context.Context, s Schedule) {
	began := time.Now()
	for _, e := range s {
		if !sleep(ctx, time.Until(began.Add(e.At))) {
			return
		}
		c.logf("event: %v", e)
		c.events.Go(func() { c.happen(ctx, e) })
	}
}

// sleep waits for d. It returns false if ctx has ended.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(max(d, 0))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (c *Cluster) happen(ctx context.Context, e Event) {
	machines := c.list()
	m := machines[e.A%len(machines)]
	switch e.Kind {
	case Crash:
		c.crash(ctx, e, m)
	case CrashAll:
		c.crash(ctx, e, machines...)
	case CrashLead:
		if m, _ := c.leader(ctx, e.A); m != nil {
			c.crash(ctx, e, m)
		}
	case Restart:
		c.fail(m.stop())
		sleep(ctx, e.For)
		c.fail(m.start())
	case Isolate, Depose, Halves, OneWay, Deaf:
		c.cut(ctx, e, machines)
	case Storm:
		c.network.set(func(n *network) { n.weather = e.Weather })
		sleep(ctx, e.For)
		c.network.set(func(n *network) { n.weather = n.fair })
	case Stall:
		c.network.set(func(n *network) { n.stalled[m.index] = time.Now().Add(e.For) })
	case Freeze:
		c.freeze(ctx, e)
	case Rumour:
		c.gossip.rumour(m.index, time.Now().Add(e.For))
	case KillUser:
		c.killUser(ctx, e)
	case Hesitate:
		c.network.set(func(n *network) { n.wavers = time.Now().Add(e.For) })
	case Swing:
		c.swing(ctx, e)
	case March:
		c.march(ctx, e)
	case Add:
		m, err := c.add()
		if err == nil {
			err = m.start()
		}
		c.fail(err)
	default:
		c.order(ctx, e, machines)
	}
}

// crash kills nodes and restarts them.
func (c *Cluster) crash(ctx context.Context, e Event, machines ...*machine) {
	for _, m := range machines {
		c.events.Go(func() {
			c.fail(m.crash(e.Unplug))
			sleep(ctx, e.For)
			c.fail(m.start())
		})
	}
}

// cut partitions nodes for the time of the event.
func (c *Cluster) cut(ctx context.Context, e Event, machines []*machine) {
	var ways [][2]int
	both := func(a, b int) { ways = append(ways, [2]int{a, b}, [2]int{b, a}) }
	m := machines[e.A%len(machines)]
	if e.Kind == Depose || e.Kind == Deaf {
		if m, _ = c.leader(ctx, e.A); m == nil {
			return
		}
	}
	for _, other := range machines {
		switch a, b := m.index, other.index; {
		case a == b:
		case e.Kind == Isolate, e.Kind == Depose:
			both(a, b)
		case e.Kind == Deaf:
			ways = append(ways, [2]int{b, a})
		case e.Kind == OneWay && b == e.B%len(machines):
			ways = append(ways, [2]int{a, b})
		}
		for _, third := range machines {
			if e.Kind == Halves && other.index < e.A && third.index >= e.A {
				both(other.index, third.index)
			}
		}
	}
	set := func(cut bool) {
		c.network.set(func(n *network) {
			for _, w := range ways {
				if cut {
					n.cut[w] = true
				} else {
					delete(n.cut, w)
				}
			}
		})
	}
	set(true)
	sleep(ctx, e.For)
	set(false)
}

// freeze suspends Raft, and nothing else, on the node that leads the tablet, for the time of the
// event.
func (c *Cluster) freeze(ctx context.Context, e Event) {
	m, _ := c.leader(ctx, e.A)
	if m == nil {
		return
	}
	c.network.set(func(n *network) {
		n.mute[m.index], n.frozen[m.index] = true, time.Now().Add(e.For)
	})
	sleep(ctx, e.For)
	c.network.set(func(n *network) { delete(n.mute, m.index) })
}

// order requests a change of the cluster. A refusal or timeout is not a failure.
func (c *Cluster) order(ctx context.Context, e Event, machines []*machine) {
	ctx, cancel := context.WithTimeout(ctx, adminPatience)
	defer cancel()
	m, tablet := c.leader(ctx, e.A)
	to := machines[e.B%len(machines)].up()
	if m == nil || m.up() == nil || to == nil {
		return
	}
	var err error
	through := m.up()
	switch e.Kind {
	case Lead:
		_, err = through.admin().MoveTablet(ctx,
			&pb.MoveTabletRequest{
				TabletId: tablet.TabletId, ToNode: to.transport.Worker().Node, Leader: true,
			})
	case Move:
		_, err = through.admin().MoveTablet(ctx, &pb.MoveTabletRequest{
			TabletId: tablet.TabletId, FromNode: through.transport.Worker().Node,
			ToNode: to.transport.Worker().Node,
		})
	case Split:
		err = through.transport.SplitTablet(ctx, workload.Table,
			fmt.Sprintf("%02x/s%d", (e.A*31+e.B*7+int(e.At))%256, e.At))
	case Merge:
		err = c.merge(ctx, through, e)
	case Drain:
		err = c.drain(ctx, through.admin(), to.transport.Worker().Node, e.For)
	}
	if err != nil {
		c.logf("event: %s refused: %v", e.Kind, err)
	}
}

// merge removes a boundary of the workloads' table, and creates one first if it finds none.
func (c *Cluster) merge(ctx context.Context, through *life, e Event) error {
	row := []byte(fmt.Sprintf("%02x/m%d", (e.A*13+e.B)%256, e.At))
	const looks = 8 // tablets to try, until one does not begin where its table begins
	for i := range looks {
		if _, d := c.leader(ctx, e.A+i); len(d.GetStartRow()) > 0 {
			row = d.StartRow
			break
		}
	}
	if err := through.transport.SplitTablet(ctx, workload.Table, string(row)); err != nil {
		return err
	}
	_, err := through.admin().MergeTablets(ctx, &pb.MergeTabletsRequest{Table: workload.Table, Row: row})
	return err
}

// drain drains a node, and cancels the drain later through any node that serves then.
func (c *Cluster) drain(ctx context.Context, through pb.AdminClient, node uint64,
	after time.Duration) error {
	if _, err := through.DrainNode(ctx, &pb.DrainNodeRequest{NodeId: node}); err != nil {
		return err
	}
	again := context.WithoutCancel(ctx)
	sleep(again, after)
	for range takeBackTries {
		for _, m := range c.list() {
			if l := m.up(); l != nil && takeBack(again, l.admin(), node) == nil {
				return nil
			}
		}
		sleep(again, adminPatience)
	}
	c.fail(fmt.Errorf("simtest: cannot cancel the drain of node %d", node))
	return nil
}

// takeBackTries is the number of attempts, on all nodes, to cancel a drain.
const takeBackTries = 20

func takeBack(ctx context.Context, through pb.AdminClient, node uint64) error {
	ctx, cancel := context.WithTimeout(ctx, adminPatience)
	defer cancel()
	_, err := through.DrainNode(ctx, &pb.DrainNodeRequest{NodeId: node, Undo: true})
	return err
}

// killUser runs a client that moves money, and kills it at the end of the event.
func (c *Cluster) killUser(ctx context.Context, e Event) {
	t, db := c.Client(1000 + e.A + int(e.At/time.Millisecond))
	ctx, cancel := context.WithCancel(ctx)
	c.running.Go(func() {
		sleep(ctx, e.For)
		t.Die()
		cancel()
	})
	load := workload.Load{
		Workers: 3, Duration: e.For + time.Second, Seed: uint64(e.At), Pause: 5 * time.Millisecond,
	}
	if err := workload.Transfers(ctx, db, load); err != nil {
		c.fail(err)
	}
}
