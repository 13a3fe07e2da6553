package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/test/cluster"
)

// result is one row of the table.
type result struct {
	fault    string
	counts   Counts
	strikes  int
	gap      time.Duration // longest time without a successful write of the prober
	failed   int           // writes of the prober that ten seconds were not enough for
	replicas int           // compared
	err      error
}

const header = "| fault | strikes | transactions | conflicts | unknown outcomes | anomalies | longest unavailability | failed with 10 s of patience | replicas compared |\n" +
	"|---|---|---|---|---|---|---|---|---|"

func (r *result) row() string {
	anomalies := "0"
	if r.err != nil {
		anomalies = "**failed**"
	}
	return fmt.Sprintf("| %s | %d | %d | %d | %d | %s | %.1f s | %d | %d |",
		r.fault, r.strikes, r.counts.Done, r.counts.Conflicts, r.counts.Unknown, anomalies, r.gap.Seconds(), r.failed, r.replicas)
}

// soundEnd is the part of a run at its end in which nothing is harmed.
const soundEnd = 10 * time.Second

func run(ctx context.Context, o options, f fault, dir string) (r *result) {
	r = &result{fault: f.name}
	a, err := open(ctx, o, f, dir)
	if err != nil {
		r.err = err
		return r
	}
	defer func() { r.err = errors.Join(r.err, a.db.Close(), a.c.Close()) }()
	a.until = time.Now().Add(max(o.duration-soundEnd, o.duration/2))
	probing, stopProbe := context.WithCancel(ctx)
	probed := make(chan struct{})
	prober, err := a.c.Dial(ctx)
	if err != nil {
		stopProbe()
		r.err = err
		return r
	}
	go func() {
		defer close(probed)
		r.gap, r.failed = probe(probing, prober)
	}()
	struck := make(chan error, 1)
	go func() { struck <- a.strikeAll(ctx, f) }()
	counts, err := loadAll(ctx, a)
	r.counts = counts
	r.err = errors.Join(err, <-struck)
	r.strikes = a.strikes
	stopProbe()
	<-probed
	_ = prober.Close()
	if r.err == nil {
		r.replicas, r.err = rest(ctx, a)
	}
	return r
}

// open makes the cluster and what the workloads need.
func open(ctx context.Context, o options, f fault, dir string) (_ *arena, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	steps, err := os.Create(filepath.Join(dir, "steps.log"))
	if err != nil {
		return nil, err
	}
	cfg := cluster.Config{Nodes: o.nodes, Spare: f.spare, Dir: dir, Hosts: true, TLS: !o.plain}
	if f.disks {
		cfg.Disks = 4 << 30
	}
	a := &arena{o: o, rng: rand.New(rand.NewPCG(o.seed, 0)), steps: log.New(steps, "", log.Lmicroseconds)}
	if a.c, err = cluster.New(cfg); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, a.c.Close())
		}
	}()
	starting, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if err := a.c.Start(starting); err != nil {
		return nil, err
	}
	if a.db, err = a.c.Dial(starting); err != nil {
		return nil, err
	}
	return a, prepare(starting, a.db)
}

// rest waits until nothing is left to run and compares the replicas of every tablet.
func rest(ctx context.Context, a *arena) (replicas int, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if err := a.db.WaitIdle(ctx); err != nil {
		return 0, fmt.Errorf("the cluster does not come to rest: %w", err)
	}
	return compare(ctx, a.db)
}

// compare compares the replicas of every tablet.
func compare(ctx context.Context, db *percolator.DB) (replicas int, err error) {
	t := db.Client().Transport()
	found, err := t.Locate(ctx, mvcc.MetaTable, "", 1<<10)
	if err != nil {
		return 0, err
	}
	for _, d := range found {
		v, err := t.VerifyTablet(ctx, &pb.VerifyTabletRequest{TabletId: d.TabletId})
		if err != nil {
			return replicas, fmt.Errorf("verify tablet %d: %w", d.TabletId, err)
		}
		if !v.Equal {
			return replicas, fmt.Errorf("the replicas of tablet %d differ: %v", d.TabletId, v.Replicas)
		}
		replicas += len(v.Replicas)
	}
	return replicas, nil
}
