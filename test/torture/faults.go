package main

import (
	"context"
	"errors"
	"time"

	"github.com/percolator-go/percolator/test/cluster"
)

// fault is one way to harm a cluster.
type fault struct {
	name  string
	disks bool // it needs nodes whose power can fail
	spare int  // nodes that it adds
	// strike does the harm once, and takes it back before it returns: afterwards all nodes run, or are being started.
	strike func(ctx context.Context, a *arena) error
}

var faults = []fault{
	{name: "none", strike: func(context.Context, *arena) error { return nil }},
	{name: "kill-one", strike: func(ctx context.Context, a *arena) error { return a.killed(ctx, a.any()) }},
	{name: "kill-leader", strike: func(ctx context.Context, a *arena) error { return a.killed(ctx, a.leader(ctx)) }},
	{name: "kill-oracle", strike: func(ctx context.Context, a *arena) error { return a.killed(ctx, a.oracle(ctx)) }},
	{name: "kill-all", strike: func(ctx context.Context, a *arena) error { return a.killed(ctx, a.c.Nodes()[:a.o.nodes]...) }},
	{name: "pause", strike: pause},
	{name: "partition-one", strike: func(ctx context.Context, a *arena) error { return a.split(ctx, a.any().Index) }},
	{name: "partition-oracle", strike: func(ctx context.Context, a *arena) error { return a.split(ctx, a.oracle(ctx).Index) }},
	{name: "partition-halves", strike: func(ctx context.Context, a *arena) error {
		return a.split(ctx, a.rng.Perm(a.o.nodes)[:(a.o.nodes+1)/2]...)
	}},
	{name: "partition-one-way", strike: oneWay},
	{name: "slow-node", strike: func(ctx context.Context, a *arena) error {
		p := a.any()
		return errors.Join(p.Quota(0.05), a.hold(ctx), p.EndQuota())
	}},
	{name: "slow-sync", strike: func(ctx context.Context, a *arena) error {
		p := a.any()
		return errors.Join(p.InjectSync(cluster.Sync{Delay: 50 * time.Millisecond}), a.hold(ctx), p.EndSync())
	}},
	{name: "failed-sync", strike: failedSync},
	{name: "power-loss", disks: true, strike: func(ctx context.Context, a *arena) error { return a.powerless(ctx, a.any()) }},
	{name: "power-loss-all", disks: true, strike: func(ctx context.Context, a *arena) error {
		return a.powerless(ctx, a.c.Nodes()[:a.o.nodes]...)
	}},
	{name: "split-and-move", strike: splitAndMove},
	{name: "add-and-drain", spare: 1, strike: addAndDrain},
	{name: "kill-client", strike: killClient},
	{name: "rolling-restart", strike: rollingRestart},
}

// killed ends the nodes as kill -9 does, leaves them down for a while, and starts them again.
func (a *arena) killed(ctx context.Context, nodes ...*cluster.Process) error {
	var errs []error
	for _, p := range nodes {
		errs = append(errs, p.Kill())
	}
	a.log("killed %v", indices(nodes))
	return errors.Join(append(errs, a.hold(ctx), a.start(ctx, nodes...))...)
}

// powerless takes the power from the nodes and gives it back.
func (a *arena) powerless(ctx context.Context, nodes ...*cluster.Process) error {
	var errs []error
	for _, p := range nodes {
		errs = append(errs, p.CutPower())
	}
	a.log("cut the power of %v", indices(nodes))
	return errors.Join(append(errs, a.start(ctx, nodes...))...)
}

// pause stops a node for one to twenty seconds.
func pause(ctx context.Context, a *arena) error {
	p := a.any()
	d := time.Second + time.Duration(a.rng.Int64N(int64(19*time.Second)))
	a.log("paused %d for %v", p.Index, d)
	return errors.Join(p.Pause(), a.wait(ctx, min(d, a.left()/2)), p.Resume())
}

// split cuts nodes off from the others.
func (a *arena) split(ctx context.Context, nodes ...int) error {
	a.log("cut off %v", nodes)
	return errors.Join(a.c.Hosts().Split(nodes...), a.hold(ctx), a.c.Hosts().Heal())
}

// oneWay drops what one node says, or what it is told.
func oneWay(ctx context.Context, a *arena) error {
	victim, mute := a.any().Index, a.rng.IntN(2) == 0
	a.log("one way, node %d, mute %t", victim, mute)
	var errs []error
	for i := range a.o.nodes {
		from, to := i, victim
		if mute {
			from, to = victim, i
		}
		if i != victim {
			errs = append(errs, a.c.Hosts().Cut(from, to))
		}
	}
	return errors.Join(append(errs, a.hold(ctx), a.c.Hosts().Heal())...)
}

// failedSync has a node's syncs fail: it stops serving, and is started again by whoever looks after it.
func failedSync(ctx context.Context, a *arena) error {
	p := a.any()
	a.log("failing the syncs of %d", p.Index)
	err := errors.Join(p.InjectSync(cluster.Sync{Fail: true}), a.hold(ctx), p.EndSync())
	if p.Running() {
		err = errors.Join(err, p.Kill())
	}
	return errors.Join(err, a.start(ctx, p))
}

// splitAndMove splits the workloads' table somewhere, and moves a tablet's leadership or replica.
func splitAndMove(ctx context.Context, a *arena) error {
	return errors.Join(a.splitSomewhere(ctx), a.moveSomething(ctx))
}

// addAndDrain adds a node, lets it take its share, and drains it until it holds nothing.
func addAndDrain(ctx context.Context, a *arena) error {
	p := a.c.Node(a.o.nodes)
	if err := a.start(ctx, p); err != nil {
		return err
	}
	a.log("added node %d", p.Index)
	return errors.Join(a.hold(ctx), a.drain(ctx, p), p.Terminate(30*time.Second))
}

// rollingRestart ends each node with SIGTERM and starts it again, one after the other.
func rollingRestart(ctx context.Context, a *arena) error {
	for _, p := range a.c.Nodes()[:a.o.nodes] {
		if err := errors.Join(p.Terminate(30*time.Second), a.start(ctx, p)); err != nil || ctx.Err() != nil {
			return err
		}
		a.log("restarted %d", p.Index)
	}
	return nil
}

func indices(nodes []*cluster.Process) (out []int) {
	for _, p := range nodes {
		out = append(out, p.Index)
	}
	return out
}
