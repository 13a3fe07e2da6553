package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/test/cluster"
)

// arena is a cluster under faults. Only the goroutine that injects the faults calls its
// methods, except log.
type arena struct {
	o       options
	nodes   int // number of founding nodes
	dir     string
	c       *cluster.Cluster
	db      *percolator.DB // for orders
	rng     *rand.Rand
	until   time.Time // no faults after that: the workloads' final checks need a healthy cluster
	strikes int
	steps   *os.File // what was done when
}

// open starts a cluster for the fault, creates the workloads' tables, and waits until every
// tablet has its replicas.
func open(ctx context.Context, o options, f fault, dir string) (_ *arena, err error) {
	if err := os.RemoveAll(dir); err != nil { // of an earlier run
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	steps, err := os.Create(filepath.Join(dir, "steps.log"))
	if err != nil {
		return nil, err
	}
	a := &arena{o: o, nodes: o.nodes, dir: dir, steps: steps, rng: rand.New(rand.NewPCG(o.seed, 0))}
	if f.nodes > 0 {
		a.nodes = f.nodes
	}
	cfg := cluster.Config{
		Nodes: a.nodes, Spare: f.spare, Dir: dir, Hosts: true, TLS: !o.plain, Env: f.env,
	}
	if f.disks {
		cfg.Disks = 4 << 30
	}
	if f.tune != nil {
		f.tune(a, &cfg)
	}
	if a.c, err = cluster.New(cfg); err != nil {
		return nil, errors.Join(err, steps.Close())
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, a.close())
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
	if err := prepare(starting, a.db); err != nil {
		return nil, err
	}
	if err := a.setLeases(starting, !f.noLeases); err != nil {
		return nil, err
	}
	return a, a.replicated(starting)
}

// setLeases turns leases on or off, and tries again while some node that counts as alive does not answer.
func (a *arena) setLeases(ctx context.Context, on bool) error {
	for {
		p, err := a.db.Admin().SetPolicy(ctx, func(p *percolator.Policy) { p.Leases = on })
		a.log("leases %t: %v", on, err)
		switch {
		case err == nil && p.Leases != on:
			return fmt.Errorf("leases are %t after they were set to %t", p.Leases, on)
		case !errors.Is(err, percolator.ErrUnavailable) || ctx.Err() != nil:
			return err
		}
		_ = a.wait(ctx, time.Second)
	}
}

// close kills the nodes and removes everything but the files.
func (a *arena) close() error {
	var err error
	if a.db != nil {
		err = a.db.Close()
	}
	return errors.Join(err, a.c.Close(), a.steps.Close())
}

// log writes a line atomically, with a time in the format of the nodes' logs. Any goroutine may call it.
func (a *arena) log(format string, args ...any) {
	at := time.Now().UTC().Format("15:04:05.000Z ")
	_, _ = a.steps.WriteString(at + fmt.Sprintf(format, args...) + "\n")
}

func (a *arena) left() time.Duration { return max(time.Until(a.until), 0) }

// dial connects with a long timeout, since clients connect while nodes are down, too.
func (a *arena) dial(ctx context.Context) (*percolator.DB, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		db, err := a.c.Dial(ctx)
		if err == nil || ctx.Err() != nil || !errors.Is(err, percolator.ErrUnavailable) {
			return db, err
		}
	}
}

// random returns a random duration below d.
func (a *arena) random(d time.Duration) time.Duration {
	return time.Duration(a.rng.Int64N(int64(d)))
}

// wait sleeps for d, or until ctx ends, which is no error.
func (a *arena) wait(ctx context.Context, d time.Duration) error {
	_ = txn.Sleep(ctx, d)
	return nil
}

// hold waits for the duration of a fault: two to eight seconds, the reaction time of a person or a
// watchdog, but not beyond a.until.
func (a *arena) hold(ctx context.Context) error {
	return a.wait(ctx, min(2*time.Second+a.random(6*time.Second), a.left()))
}

// injectAll injects the fault repeatedly until the time is up, with a few healthy seconds in between.
func (a *arena) injectAll(ctx context.Context, f fault) error {
	for a.left() > 0 && ctx.Err() == nil {
		err := f.strike(ctx, a)
		if err == nil {
			err = a.died()
		}
		if err != nil {
			a.log("strike %d: %v", a.strikes, err)
			return fmt.Errorf("strike %d: %w", a.strikes, err)
		}
		a.strikes++
		_ = a.wait(ctx, min(2*time.Second+a.random(4*time.Second), a.left()))
	}
	a.log("no more faults")
	return nil
}

// died reports nodes that have ended unexpectedly.
func (a *arena) died() error {
	var errs []error
	for _, p := range a.c.Nodes() {
		errs = append(errs, p.Died())
	}
	return errors.Join(errs...)
}

// any returns a random founding node.
func (a *arena) any() *cluster.Process { return a.c.Node(a.rng.IntN(a.nodes)) }

// start starts nodes and waits until they are ready.
func (a *arena) start(ctx context.Context, nodes ...*cluster.Process) error {
	var errs []error
	for _, p := range nodes {
		errs = append(errs, p.Start())
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	errs = append(errs, a.c.Ready(ctx))
	a.log("started %v, ready after %v", indices(nodes), time.Since(began))
	return errors.Join(errs...)
}

// replicated waits until every tablet has its intended number of voters, without those that are
// joining or leaving.
func (a *arena) replicated(ctx context.Context) error {
	want := min(a.nodes, 3)
	for {
		found, err := walk(ctx, a.db)
		missing := false
		for _, d := range found {
			voters := 0
			for _, r := range d.Replicas {
				if !r.Learner && !r.Incoming && !r.Outgoing {
					voters++
				}
			}
			missing = missing || voters < want
		}
		if err == nil && !missing {
			return nil
		}
		if txn.Sleep(ctx, 200*time.Millisecond) != nil {
			return fmt.Errorf("the tablets do not get their replicas: %v, %v", found, err) //nolint:errorlint // only told
		}
	}
}

// members returns the nodes as the cluster knows them.
func (a *arena) members(ctx context.Context) ([]*pb.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	r, err := handle.Client(a.db).Admin().Nodes(ctx, &pb.NodesRequest{})
	return r.GetNodes(), err
}

// best returns the process whose node is rated highest, or any if the cluster reports none.
func (a *arena) best(ctx context.Context, rate func(*pb.Node) uint32) *cluster.Process {
	nodes, err := a.members(ctx)
	best, rating := a.any(), uint32(0)
	for _, n := range nodes {
		if p := a.process(n); p != nil && n.Alive && rate(n) > rating {
			best, rating = p, rate(n)
		}
	}
	if rating == 0 {
		a.log("no node is rated, using node %d: %v", best.Index, err)
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

// leader returns the node that leads most tablets, oracle the one that leads meta.
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
