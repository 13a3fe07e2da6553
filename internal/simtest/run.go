package simtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/node"
	"github.com/percolator-go/percolator/test/workload"
)

// Options configure one simulation.
type Options struct {
	Seed  uint64
	Nodes int
	// Faults is the duration of the faults, in virtual time. Defaults to 15 s.
	Faults time.Duration
	// Gap is the maximum time between the beginnings of two successive faults. Defaults to 4 s.
	Gap time.Duration
	// Shares are the relative frequencies of the kinds of events; nil means the default for all
	// kinds.
	Shares map[Kind]int
	// Schedule replaces the seed's schedule, if it is not nil.
	Schedule Schedule
	// Workloads are the names of the workloads to run; nil means registers and list appends, and
	// others chosen by the seed.
	Workloads []string
	// Workers is the number of workers per workload. Defaults to 4.
	Workers int
	// Replicas is the number of replicas that every tablet must have before the faults begin.
	// Defaults to 3, or 1 on fewer nodes.
	Replicas int
	// NoLeases turns leases off, as by `cluster set leases=off`.
	NoLeases bool
	// NoObservers omits the observer that counts changes.
	NoObservers bool
	// Delay is Config.Delay.
	Delay time.Duration
	// History is the time for which old versions stay readable; 0 means the nodes' default, which
	// is longer than the simulation.
	History time.Duration
}

// Report is the result of a simulation.
type Report struct {
	Schedule Schedule
	Err      error // nil: no violation
	Log      string
	Figures  map[string]workload.Figures // by workload
	Took     time.Duration               // virtual
	Batches  int                         // sent by nodes
	Lost     int                         // of them
	Compared int                         // tablets whose replicas were compared at the end
	Feed     FeedFigures                 // of the workload "changes"
}

// String returns the schedule and the figures, without the log.
func (r Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v of virtual time, %d batches, %d lost; %d tablets compared\nschedule:\n%v",
		r.Took, r.Batches, r.Lost, r.Compared, r.Schedule)
	for _, w := range (&simulation{}).workloads() {
		if f, ran := r.Figures[w.Name]; ran {
			fmt.Fprintf(&b, "%-18s %6d done, %5d unknown, %5d failed, longest pause %v\n", w.Name,
				f.Done, f.Unknown, f.Failed, f.Gap)
		}
	}
	if r.Feed != (FeedFigures{}) {
		fmt.Fprintf(&b, "feed of changes: %v\n", r.Feed)
	}
	return b.String()
}

// The phases of a simulation.
const (
	tablets       = 4
	startPatience = 2 * time.Minute
	// limits the end of the workloads, and each check after that
	endPatience = 2 * time.Minute
	// limits the whole simulation, in addition to the duration of the faults
	wholePatience  = startPatience + afterFaults + eventsPatience + servePatience + 6*endPatience
	afterFaults    = 3 * time.Second // duration of the load after the faults
	workloadPause  = 60 * time.Millisecond
	defaultFaults  = 15 * time.Second
	defaultGap     = 4 * time.Second
	defaultWorkers = 4
)

// Run simulates one cluster under load and faults, and checks its guarantees. It must be called in a
// bubble of testing/synctest.
func Run(o Options) (r Report) {
	o = o.withDefaults()
	s := &simulation{o: o, counting: workload.Counting{Rows: 60, Shards: 4, Twin: true}}
	s.counting.Inside = linger(o.Seed, 3*time.Second)
	if s.chosen("effects") { // this workload waits for all observers
		s.counting.Inside = linger(o.Seed, 20*time.Millisecond)
	}
	if o.Seed%2 == 1 {
		s.counting.Batch = 5
	}
	began := time.Now()
	r.Schedule = o.Schedule
	cfg := Config{Seed: o.Seed, Nodes: o.Nodes, Delay: o.Delay}
	if !o.NoObservers {
		cfg.Observers = s.register
	}
	if o.History != 0 {
		cfg.Tune = func(c *node.Config) { c.History, c.Collection.MaxHold = o.History, time.Hour }
	}
	c, err := New(cfg)
	if err != nil {
		r.Err = err
		return r
	}
	s.c, s.feed.c = c, c
	err = s.run(&r)
	r.Feed = s.feed.figures
	r.Err = errors.Join(err, c.Close())
	r.Took, r.Log = time.Since(began), c.log.String()
	r.Batches, r.Lost = c.network.counts.sent, c.network.counts.lost
	return r
}

func (o Options) withDefaults() Options {
	o.Faults = cmp.Or(o.Faults, defaultFaults)
	o.Gap = cmp.Or(o.Gap, defaultGap)
	o.Workers = cmp.Or(o.Workers, defaultWorkers)
	if o.Shares == nil {
		o.Shares = everything
	}
	if o.Replicas == 0 {
		o.Replicas = 1
		if o.Nodes >= 3 {
			o.Replicas = 3
		}
	}
	if o.Schedule == nil {
		o.Schedule = plan(o.Seed, max(o.Nodes, 2), o.Faults, o.Gap, o.Shares)
	}
	if o.Workloads == nil {
		rng := rand.New(rand.NewPCG(o.Seed, 3))
		all := workload.All()
		if !o.NoObservers {
			all = (&simulation{}).workloads()
		}
		for _, w := range all {
			if w.Name == "register" || w.Name == "list append" || rng.IntN(3) == 0 {
				o.Workloads = append(o.Workloads, w.Name)
			}
		}
	}
	return o
}

// linger delays the observer's runs by up to most, so that crashes interrupt some.
func linger(seed uint64, most time.Duration) func(ctx context.Context, row string, tx *percolator.Tx) error {
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(seed, 4))
	return func(ctx context.Context, _ string, _ *percolator.Tx) error {
		mu.Lock()
		d := time.Duration(rng.Int64N(int64(most)))
		mu.Unlock()
		sleep(ctx, d)
		return ctx.Err()
	}
}

// simulation is one running simulation.
type simulation struct {
	o        Options
	c        *Cluster
	counting workload.Counting
	effects  workload.Effects
	timers   workload.Timers
	feed     feed
}

// workloads returns all workloads to choose from, with those that have their own observers.
func (s *simulation) workloads() []workload.Workload {
	return append(workload.All(), workload.Workload{Name: "effects", Run: s.effects.Run},
		workload.Workload{Name: "timers", Run: s.timers.Run},
		workload.Workload{Name: "changes", Run: s.feed.Run})
}

// chosen reports whether the workload is one of those that run.
func (s *simulation) chosen(name string) bool { return slices.Contains(s.o.Workloads, name) }

// register registers the observers of every node.
func (s *simulation) register(r *percolator.Registry) {
	s.counting.Register(r)
	if s.chosen("effects") {
		s.effects.Register(r)
	}
	if s.chosen("timers") {
		s.timers.Register(r)
	}
}

func (s *simulation) run(r *Report) error {
	ctx, cancel := context.WithTimeout(context.Background(), s.o.Faults+wholePatience)
	defer cancel()
	_, db := s.c.Client(0)
	if err := s.prepare(ctx, db); err != nil {
		return fmt.Errorf("simtest: before the faults: %w", err)
	}
	s.c.logf("the load begins")
	var errs []error
	loads := s.load(ctx, r)
	s.c.play(ctx, s.o.Schedule)
	if err := s.c.heal(); err != nil {
		return errors.Join(err, loads())
	}
	s.c.logf("the faults are over")
	errs = append(errs, loads())
	// Each check has its own timeout, so that one that fails does not shorten the next.
	check := func(name string, holds func(context.Context) error) {
		ctx, cancel := context.WithTimeout(ctx, endPatience)
		defer cancel()
		errs = append(errs, named(name, holds(ctx)))
	}
	check("bank", func(ctx context.Context) error {
		return patient(ctx, func() error { return workload.CheckBank(ctx, db) })
	})
	if !s.o.NoObservers {
		check("counting", func(ctx context.Context) error {
			return patient(ctx, func() error { return s.counting.Check(ctx, db) })
		})
	}
	if s.chosen("timers") {
		check("timers", func(ctx context.Context) error { return s.timers.Check(ctx, db) })
	}
	check("locks", s.c.released)
	check("replicas", func(ctx context.Context) (err error) {
		r.Compared, err = s.c.compare(ctx)
		return err
	})
	return errors.Join(errs...)
}

func named(name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("simtest: at the end: %s: %w", name, err)
}

// prepare creates the workloads' tables and waits until every tablet has its replicas.
func (s *simulation) prepare(ctx context.Context, db *percolator.DB) error {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	if err := workload.Prepare(ctx, db, tablets); err != nil {
		return err
	}
	if err := workload.OpenBank(ctx, db); err != nil {
		return err
	}
	if s.o.NoLeases {
		if _, err := db.Admin().SetPolicy(ctx, func(p *percolator.Policy) { p.Leases = false }); err != nil {
			return err
		}
	}
	if !s.o.NoObservers {
		if err := s.counting.Load(ctx, db); err != nil {
			return err
		}
	}
	for _, table := range []percolator.TableSpec{s.effects.Table(), s.timers.Table()} {
		if !s.chosen(table.Name) {
			continue
		}
		if err := db.CreateTable(ctx, table); err != nil {
			return err
		}
	}
	for !s.c.replicated(ctx, s.o.Replicas) {
		if !sleep(ctx, 100*time.Millisecond) {
			return fmt.Errorf("not every tablet has %d replicas: %w", s.o.Replicas, ctx.Err())
		}
	}
	return nil
}

// load starts the workloads and returns a function that waits for their ends and checks.
func (s *simulation) load(ctx context.Context, r *Report) (wait func() error) {
	ctx, cancel := context.WithTimeout(ctx, s.o.Faults+afterFaults+endPatience)
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		errs []error
	)
	r.Figures = map[string]workload.Figures{}
	for i, w := range s.workloads() {
		if !s.chosen(w.Name) {
			continue
		}
		_, own := s.c.Client(10 + 3*i)
		_, second := s.c.Client(11 + 3*i)
		_, third := s.c.Client(12 + 3*i)
		l := workload.Load{
			Workers: s.o.Workers, Duration: s.o.Faults + afterFaults,
			Seed: s.o.Seed*100 + uint64(i), Pause: workloadPause,
			Others: []*percolator.DB{second, third}, Tally: &workload.Tally{}, Fresh: s.c.fresh,
		}
		wg.Go(func() {
			err := w.Run(ctx, own, l)
			mu.Lock()
			defer mu.Unlock()
			r.Figures[w.Name] = l.Tally.Figures()
			errs = append(errs, err)
		})
	}
	return func() error {
		defer cancel()
		wg.Wait()
		return errors.Join(errs...)
	}
}

// patient repeats a check that fails because of remaining effects of the faults.
func patient(ctx context.Context, check func() error) error {
	for {
		err := check()
		if err == nil || !errors.Is(err, percolator.ErrUnavailable) &&
			!errors.Is(err, percolator.ErrLocked) || !sleep(ctx, 200*time.Millisecond) {
			return err
		}
	}
}

// descriptors returns the first 1,024 descriptors of the tablet map of meta.
func (c *Cluster) descriptors(ctx context.Context) (out []*pb.TabletDescriptor) {
	for _, m := range c.list() {
		l := m.up()
		if l == nil {
			continue
		}
		found, err := l.transport.Locate(ctx, 0, "", 1024)
		if err == nil && len(found) > len(out) {
			out = found
		}
	}
	return out
}

// replicated reports whether every tablet has at least want voters.
func (c *Cluster) replicated(ctx context.Context, want int) bool {
	all := c.descriptors(ctx)
	for _, d := range all {
		voters := 0
		for _, r := range d.Replicas {
			if !r.Learner && !r.Incoming && !r.Outgoing {
				voters++
			}
		}
		if voters < want {
			return false
		}
	}
	return len(all) > 0
}

// compare compares the replicas of every tablet. n is the number of tablets with more than one.
func (c *Cluster) compare(ctx context.Context) (n int, err error) {
	var errs []error
	for _, d := range c.descriptors(ctx) {
		if len(d.Replicas) < 2 {
			continue
		}
		if err := c.compareOne(ctx, d); err != nil {
			errs = append(errs, fmt.Errorf("tablet %d: %w", d.TabletId, err))
		}
		n++
	}
	return n, errors.Join(errs...)
}

// compareOne repeats the comparison until it covers all replicas: one may be unavailable.
func (c *Cluster) compareOne(ctx context.Context, d *pb.TabletDescriptor) error {
	var last error
	for {
		for _, m := range c.list() {
			l := m.up()
			if l == nil {
				continue
			}
			r, err := l.admin().VerifyTablet(ctx, &pb.VerifyTabletRequest{TabletId: d.TabletId})
			whole := err == nil
			for _, replica := range r.GetReplicas() {
				whole = whole && replica.Error == ""
			}
			switch {
			case whole && r.Equal:
				return nil
			case whole:
				return fmt.Errorf("its replicas differ: %v%s", r.Replicas, c.differences(ctx, d))
			}
			if last = err; err == nil {
				last = fmt.Errorf("not all replicas could be compared: %v", r.Replicas)
			}
		}
		if !sleep(ctx, time.Second) {
			return last
		}
	}
}
