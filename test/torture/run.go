package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/handle"
)

// result is one row of the table.
type result struct {
	fault     string
	counts    Counts
	strikes   int
	probed    probed
	replicas  int     // number compared
	anomalies []error // violated guarantees
	err       error   // why the run could not be carried out
}

func (r *result) found(what string, err error) {
	if err != nil {
		r.anomalies = append(r.anomalies, fmt.Errorf("%s: %w", what, err))
	}
}

const header = "| fault | strikes | operations | conflicts | unknown outcomes | anomalies | longest unavailability | failed with 10 s of patience | replicas compared |\n" +
	"|---|---|---|---|---|---|---|---|---|"

func (r *result) row() string {
	anomalies := fmt.Sprint(len(r.anomalies))
	switch {
	case r.err != nil:
		anomalies += ", **not carried out**"
	case len(r.anomalies) > 0:
		anomalies = "**" + anomalies + "**"
	}
	return fmt.Sprintf("| %s | %d | %d | %d | %d | %s | %.1f s | %d | %d |",
		r.fault, r.strikes, r.counts.Done, r.counts.Conflicts, r.counts.Unknown, anomalies,
		r.probed.gap.Seconds(), r.probed.failed, r.replicas)
}

// all returns the anomalies and the error.
func (r *result) all() error { return errors.Join(append(r.anomalies, r.err)...) }

// soundEnd is the last part of a run, without faults.
const soundEnd = 10 * time.Second

// run starts a cluster, injects faults for a while, and checks the cluster's state at the end.
func run(ctx context.Context, o options, f fault, dir string) *result {
	r := &result{fault: f.name}
	a, err := open(ctx, o, f, dir)
	if err != nil {
		r.err = err
		return r
	}
	a.round(ctx, f, r)
	a.rest(ctx, r)
	if err := a.close(); err != nil {
		r.err = errors.Join(r.err, err)
	}
	return r
}

// round runs the workloads under the fault.
func (a *arena) round(ctx context.Context, f fault, r *result) {
	if f.strike == nil {
		var err error
		r.counts, err = f.load(ctx, a)
		r.found("soak", err)
		r.strikes = a.strikes
		return
	}
	a.until, a.strikes = time.Now().Add(max(a.o.duration-soundEnd, a.o.duration/2)), 0
	caller, err := a.c.Dial(ctx)
	if err != nil {
		r.err = err
		return
	}
	probing, stopProbe := context.WithCancel(ctx)
	defer stopProbe()
	probes, struck := make(chan probed, 1), make(chan error, 1)
	go func() { probes <- probe(probing, a, caller) }()
	go func() { struck <- a.injectAll(ctx, f) }()
	load := f.load
	if load == nil {
		load = loadAll
	}
	r.counts, err = load(ctx, a)
	r.found("workloads", err)
	r.err, r.strikes = <-struck, a.strikes
	stopProbe()
	r.probed = <-probes
	if f.patient && r.probed.failed > 0 {
		r.found("callers with ten seconds of patience", errors.Join(r.probed.examples...))
	}
	r.err = errors.Join(r.err, caller.Close())
}

// rest waits until no work is pending, reports nodes that have ended unexpectedly and compares
// all replicas.
func (a *arena) rest(ctx context.Context, r *result) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	r.found("a node", a.died())
	if err := a.db.WaitIdle(ctx); err != nil {
		r.found("the cluster does not become idle", err)
		return
	}
	var err error
	r.replicas, err = compare(ctx, a.db)
	r.found("replicas", err)
	a.log("the end: %v", r.all())
}

// compare compares the replicas of every tablet.
func compare(ctx context.Context, db *percolator.DB) (replicas int, err error) {
	t := handle.Client(db).Admin()
	found, err := walk(ctx, db)
	if err != nil {
		return 0, err
	}
	for _, d := range found {
		v, err := t.VerifyTablet(ctx, &pb.VerifyTabletRequest{TabletId: d.TabletId})
		if err != nil {
			return replicas, fmt.Errorf("verify tablet %d: %w", d.TabletId, err)
		}
		if !v.Equal {
			return replicas, fmt.Errorf("the replicas of tablet %d differ: %v", d.TabletId,
				v.Replicas)
		}
		replicas += len(v.Replicas)
	}
	return replicas, nil
}
