package main

import (
	"context"
	"errors"
	"time"

	"github.com/percolator-go/percolator/test/cluster"
)

// killed kills the nodes with SIGKILL, leaves them down for a while, and restarts them.
func (a *arena) killed(ctx context.Context, nodes ...*cluster.Process) error {
	var errs []error
	for _, p := range nodes {
		errs = append(errs, p.Kill())
	}
	a.log("killed %v", indices(nodes))
	return errors.Join(append(errs, a.hold(ctx), a.start(ctx, nodes...))...)
}

// powerless cuts the power of the nodes, as simultaneously as possible, and restarts them.
func (a *arena) powerless(ctx context.Context, nodes ...*cluster.Process) error {
	var errs []error
	for _, p := range nodes {
		errs = append(errs, p.Pause()) // no node continues while the power of the others is cut
	}
	for _, p := range nodes {
		errs = append(errs, p.CutPower())
	}
	a.log("cut the power of %v", indices(nodes))
	return errors.Join(append(errs, a.start(ctx, nodes...))...)
}

// paused stops a node for one to twenty seconds.
func (a *arena) paused(ctx context.Context, p *cluster.Process) error {
	d := min(time.Second+a.random(19*time.Second), a.left())
	a.log("paused %d for %v", p.Index, d)
	err := errors.Join(p.Pause(), a.wait(ctx, d), p.Resume())
	a.log("resumed %d", p.Index)
	return err
}

// split cuts nodes off from the others.
func (a *arena) split(ctx context.Context, nodes ...*cluster.Process) error {
	a.log("cut off %v", indices(nodes))
	err := errors.Join(a.c.Hosts().Split(indices(nodes)...), a.hold(ctx), a.c.Hosts().Heal())
	a.log("healed")
	return err
}

// halves cuts a minority off from the rest, which is one node more.
func halves(ctx context.Context, a *arena) error {
	var nodes []*cluster.Process
	for _, i := range a.rng.Perm(a.nodes)[:a.nodes/2] {
		nodes = append(nodes, a.c.Node(i))
	}
	return a.split(ctx, nodes...)
}

// oneWay drops all packets from one node, or all packets to it.
func oneWay(ctx context.Context, a *arena) error {
	victim, mute := a.any().Index, a.rng.IntN(2) == 0
	a.log("one way, node %d, mute %t", victim, mute)
	var errs []error
	for i := range a.nodes {
		from, to := i, victim
		if mute {
			from, to = victim, i
		}
		if i != victim {
			errs = append(errs, a.c.Hosts().Cut(from, to))
		}
	}
	err := errors.Join(append(errs, a.hold(ctx), a.c.Hosts().Heal())...)
	a.log("healed")
	return err
}

// slowNode limits a node to a twentieth of a CPU.
func slowNode(ctx context.Context, a *arena) error {
	p := a.any()
	a.log("slowed %d", p.Index)
	err := errors.Join(p.Quota(0.05), a.hold(ctx), p.EndQuota())
	a.log("ended the CPU quota of %d", p.Index)
	return err
}

// slowSync delays every sync of a node by 5 to 50 ms.
func slowSync(ctx context.Context, a *arena) error {
	p, delay := a.any(), 5*time.Millisecond+a.random(45*time.Millisecond)
	a.log("slowed the syncs of %d by %v", p.Index, delay)
	err := errors.Join(p.InjectSync(cluster.Sync{Delay: delay}), a.hold(ctx), p.EndSync())
	a.log("ended the delays of %d", p.Index)
	return err
}

// failedSync makes a node's syncs fail, so that it stops serving, and restarts the node, as its
// supervisor would.
func failedSync(ctx context.Context, a *arena) error {
	p := a.any()
	a.log("failing the syncs of %d", p.Index)
	err := errors.Join(p.InjectSync(cluster.Sync{Fail: true}), a.hold(ctx))
	if p.Running() {
		a.log("%d still runs; ready: %v", p.Index, p.Ready(ctx))
		err = errors.Join(err, p.Kill())
	} else {
		a.log("%d has ended: %v", p.Index, p.Died())
		err = errors.Join(err, p.EndSync())
	}
	return errors.Join(err, a.start(ctx, p))
}

// splitAndMove splits a table at a random row, merges two other tablets, and moves a tablet's
// leadership or one of its replicas.
func splitAndMove(ctx context.Context, a *arena) error {
	return errors.Join(a.splitSomewhere(ctx), a.mergeSomewhere(ctx), a.moveSomething(ctx), a.moveSomething(ctx))
}

// addAndDrain adds a node, waits until it has its share of replicas, then drains and removes a
// random node, which the next strike adds as a new one.
func addAndDrain(ctx context.Context, a *arena) error {
	var nodes []*cluster.Process
	for _, p := range a.c.Nodes() {
		if p.Running() {
			nodes = append(nodes, p)
			continue
		}
		if err := a.start(ctx, p); err != nil {
			return err
		}
		a.log("added node %d", p.Index)
		nodes = append(nodes, p)
	}
	a.share(ctx)
	p := nodes[a.rng.IntN(len(nodes))]
	return errors.Join(a.drain(ctx, p), p.Terminate(30*time.Second), p.Wipe())
}

// rollingRestart ends each node with SIGTERM and starts it again, one after the other.
func rollingRestart(ctx context.Context, a *arena) error {
	for _, p := range a.founders() {
		a.log("SIGTERM to %d", p.Index)
		if err := p.Terminate(30 * time.Second); err != nil {
			return err
		}
		a.log("%d has ended", p.Index)
		if err := a.start(ctx, p); err != nil || ctx.Err() != nil {
			return err
		}
		a.log("%d is ready", p.Index)
		if err := a.wait(ctx, 2*time.Second); err != nil {
			return err
		}
	}
	return nil
}

// killOrAdd adds the spare nodes, with kills before, between and after.
func killOrAdd(ctx context.Context, a *arena) error {
	var running []*cluster.Process
	for _, p := range a.c.Nodes() {
		if p.Running() {
			running = append(running, p)
		}
	}
	if n := len(running); a.strikes%2 == 1 && n < len(a.c.Nodes()) {
		a.log("add node %d", n)
		return a.start(ctx, a.c.Node(n))
	}
	return a.killed(ctx, running[a.rng.IntN(len(running))])
}

func indices(nodes []*cluster.Process) (out []int) {
	for _, p := range nodes {
		out = append(out, p.Index)
	}
	return out
}
