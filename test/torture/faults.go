package main

import (
	"context"

	"github.com/percolator-go/percolator/test/cluster"
)

// fault is one kind of fault, and the load on the cluster during it.
type fault struct {
	name    string
	nodes   int  // founding nodes; 0: the number of the command line
	spare   int  // additional hosts, for nodes that it adds
	disks   bool // needs nodes whose power can fail
	patient bool // planned work: no caller with a timeout of ten seconds may see an error
	env     []string
	// noLeases turns leases off before the run.
	noLeases bool
	// tune changes the cluster's configuration, unless nil.
	tune func(a *arena, cfg *cluster.Config)
	// load runs the load on the cluster; nil means all workloads.
	load func(ctx context.Context, a *arena) (Counts, error)
	// strike injects the fault once, and repairs it before it returns: afterwards all nodes run,
	// or are being started. Nil means load injects the faults itself.
	strike func(ctx context.Context, a *arena) error
}

// faults lists all faults, in the order of their runs.
var faults = []fault{
	{name: "none", patient: true, strike: func(context.Context, *arena) error { return nil }},
	{name: "kill-one", strike: func(ctx context.Context, a *arena) error {
		return a.killed(ctx, a.any())
	}},
	{name: "kill-leader", strike: func(ctx context.Context, a *arena) error {
		return a.killed(ctx, a.leader(ctx))
	}},
	{name: "kill-oracle", strike: func(ctx context.Context, a *arena) error {
		return a.killed(ctx, a.oracle(ctx))
	}},
	{name: "kill-all", strike: func(ctx context.Context, a *arena) error {
		return a.killed(ctx, a.founders()...)
	}},
	{name: "pause", strike: func(ctx context.Context, a *arena) error {
		return a.paused(ctx, a.any())
	}},
	{name: "pause-leader", strike: func(ctx context.Context, a *arena) error {
		return a.paused(ctx, a.leader(ctx))
	}},
	{name: "pause-oracle", strike: func(ctx context.Context, a *arena) error {
		return a.paused(ctx, a.oracle(ctx))
	}},
	{name: "partition-one", strike: func(ctx context.Context, a *arena) error {
		return a.split(ctx, a.any())
	}},
	{name: "partition-oracle", strike: func(ctx context.Context, a *arena) error {
		return a.split(ctx, a.oracle(ctx))
	}},
	{name: "partition-halves", nodes: 5, strike: halves},
	{name: "partition-one-way", strike: oneWay},
	{name: "slow-node", strike: slowNode},
	{name: "slow-sync", strike: slowSync},
	{name: "failed-sync", strike: failedSync},
	{name: "power-loss", disks: true, strike: func(ctx context.Context, a *arena) error {
		return a.powerless(ctx, a.any())
	}},
	{name: "power-loss-all", disks: true, strike: func(ctx context.Context, a *arena) error {
		return a.powerless(ctx, a.founders()...)
	}},
	{name: "split-and-move", nodes: 5, patient: true, strike: splitAndMove},
	{name: "add-and-drain", spare: 1, patient: true, strike: addAndDrain},
	{name: "kill-client", strike: killClient},
	{name: "rolling-restart", patient: true, strike: rollingRestart},
	{name: "webindex", spare: 2, env: []string{observersEnv + "=webindex"}, load: webindex,
		strike: killOrAdd},
	{name: "soak", nodes: 1, env: []string{observersEnv + "=soak"}, load: soaked,
		tune: func(a *arena, cfg *cluster.Config) { a.soak().Tune(cfg) }},
}

// founders returns the nodes that founded the cluster.
func (a *arena) founders() []*cluster.Process { return a.c.Nodes()[:a.nodes] }
