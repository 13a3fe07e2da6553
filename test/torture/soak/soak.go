package soak

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/test/cluster"
	"github.com/percolator-go/percolator/test/workload"
)

// Options configure a soak.
type Options struct {
	// Duration is the time after which no new cycle starts.
	Duration time.Duration
	// Warm is the part of Duration before the limits hold. Defaults to a fifth of it, at most
	// 10 minutes.
	Warm time.Duration
	// History is the node's retention of history. Defaults to 30 s.
	History time.Duration
	// Docs is the approximate number of documents. Defaults to 1500.
	Docs int
	// Tablets is the number of tablets at which the soak stops splitting tables. Defaults to 30.
	Tablets int
	// Rest is the number of cycles between two rests, or more while snapshots are held.
	// Defaults to 20.
	Rest int
	// Patience is the time that locks may outlive the last transaction: those of killed clients
	// expire, and the next reader of the cell resolves them. Defaults to 30 s.
	Patience time.Duration
}

func (o Options) withDefaults() Options {
	o.Warm = cmp.Or(o.Warm, min(10*time.Minute, o.Duration/5))
	o.History, o.Patience = cmp.Or(o.History, 30*time.Second), cmp.Or(o.Patience, 10*lockTTL)
	o.Docs, o.Tablets, o.Rest = cmp.Or(o.Docs, 1500), cmp.Or(o.Tablets, 30), cmp.Or(o.Rest, 20)
	return o
}

// Tune configures cfg for a soak: one node on loopback with small tablets and a small memtable,
// so that it splits and flushes often. The node's process must register the observers
// (Register).
func (o Options) Tune(cfg *cluster.Config) {
	o = o.withDefaults()
	cfg.Nodes, cfg.Spare, cfg.Hosts, cfg.TLS = 1, 0, false, false
	cfg.Client.LockTTL = lockTTL
	cfg.Env = append(cfg.Env, historyEnv+"="+o.History.String())
	cfg.Args = append(cfg.Args, "--pprof", "--log-level", "warn", "--history", o.History.String(),
		"--lock-ttl", lockTTL.String(), "--memtable-size", "8388608", "--min-free-bytes", "67108864",
		"--split-size", "1MiB", "--split-max-tablets", "40")
}

// Target is the cluster under test.
type Target struct {
	Cluster *cluster.Cluster // Options.Tune has made its Config
	DB      *percolator.DB   // over it; the workloads' bank is open
	Rand    *rand.Rand       // of all choices
	// KillClient starts a client that transfers money between the bank's accounts, and kills it.
	KillClient func(ctx context.Context) error
	// Log writes a line of the step log. Any goroutine may call it.
	Log func(format string, args ...any)
}

// soak is one run. Its methods belong to one goroutine.
type soak struct {
	Target
	o     Options
	node  *cluster.Process
	took  time.Duration // of the node's last start, until it was ready
	began time.Time
	model *model

	cycle  int
	rested int // the last cycle with a rest
	life   int // cycles until the node is killed
	held   []moment
	past   []moment
	gone   []string // rows of deleted documents
	limits limits
	now    figures
	most   figures // the greatest values since the warm-up
	did    [numActivities]int
}

// errViolation reports a violated invariant.
var errViolation = errors.New("violation")

func violation(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errViolation, fmt.Sprintf(format, args...))
}

// Run soaks the target and returns a report of its actions. The error is the first violation.
func Run(ctx context.Context, t Target, o Options) (Report, error) {
	s, err := begin(ctx, t, o)
	if err == nil {
		err = s.run(ctx)
	}
	if err == nil {
		err = s.restart(ctx)
	}
	return s.report(), errors.Join(err, s.end())
}

// begin creates the tables.
func begin(ctx context.Context, t Target, o Options) (*soak, error) {
	s := &soak{
		Target: t, o: o.withDefaults(), node: t.Cluster.Node(0), began: time.Now(),
		model: newModel(),
	}
	s.live()
	for _, name := range tables {
		if err := s.DB.CreateTable(ctx, percolator.TableSpec{Name: name}); err != nil {
			return s, err
		}
	}
	return s, nil
}

// live chooses the length of the node's life: leaks show only in long ones.
func (s *soak) live() {
	if s.life = 1 + s.Rand.IntN(6); s.Rand.IntN(4) == 0 {
		s.life = 20 + s.Rand.IntN(60)
	}
}

// start starts the node and waits until it is ready.
func (s *soak) start(ctx context.Context) error {
	s.live()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	began := time.Now()
	err := s.node.Start()
	if err == nil {
		err = s.Cluster.Ready(ctx)
	}
	s.took = time.Since(began)
	return err
}

// restart ends the node cleanly and starts it again.
func (s *soak) restart(ctx context.Context) error {
	if err := s.node.Terminate(time.Minute); err != nil {
		return violation("the node does not end cleanly: %v", err)
	}
	return errors.Join(s.start(ctx), s.reach(ctx))
}

// end releases the snapshots that are still held.
func (s *soak) end() error {
	var errs []error
	for _, h := range s.held {
		errs = append(errs, h.snapshot.Close())
	}
	s.held = nil
	return errors.Join(errs...)
}

// step writes a line of the step log.
func (s *soak) step(format string, args ...any) {
	s.Log("cycle %d: %s", s.cycle, fmt.Sprintf(format, args...))
}

// run fills the tables and goes through cycles until the time is over.
func (s *soak) run(ctx context.Context) error {
	if err := s.load(ctx, s.o.Docs*9/10); err != nil {
		return err
	}
	for time.Since(s.began) < s.o.Duration {
		s.cycle++
		if err := s.one(ctx); err != nil {
			return fmt.Errorf("cycle %d: %w", s.cycle, err)
		}
		s.limits.warm = time.Since(s.began) >= s.o.Warm
	}
	s.cycle++
	return errors.Join(s.rest(ctx), s.settle(ctx))
}

// one runs a cycle: some actions, then all checks.
func (s *soak) one(ctx context.Context) error {
	for range 1 + s.Rand.IntN(4) {
		a := s.choose()
		if err := a.do(s, ctx); err != nil {
			return fmt.Errorf("%s: %w", a.name, err)
		}
	}
	if s.life--; s.life <= 0 {
		if err := s.killWhileWriting(ctx); err != nil {
			return fmt.Errorf("kill: %w", err)
		}
	}
	if err := s.settle(ctx); err != nil {
		return err
	}
	if !s.restDue() || len(s.held) > 0 {
		return nil
	}
	s.rested = s.cycle
	if err := s.rest(ctx); err != nil {
		return fmt.Errorf("rest: %w", err)
	}
	return s.settle(ctx)
}

// restDue reports whether a rest is due. If it is, no further snapshot is opened to be held, so that
// the rest can begin once all of them are closed.
func (s *soak) restDue() bool { return s.cycle-s.rested >= s.o.Rest }

// quiesceTimeout bounds the time until no notification is pending.
const quiesceTimeout = 2 * time.Minute

// settle waits until no notification is pending, and runs all checks.
func (s *soak) settle(ctx context.Context) error {
	waiting, cancel := context.WithTimeout(ctx, quiesceTimeout)
	defer cancel()
	began := time.Now()
	if err := s.DB.WaitIdle(waiting); err != nil {
		left, _ := leftovers(ctx, s.DB, false)
		return violation("not idle after %v: %v\n%s", quiesceTimeout, err, few(left))
	}
	s.step("idle after %v", time.Since(began).Round(time.Millisecond))
	if err := s.verify(ctx); err != nil {
		return err
	}
	if err := s.nothingLeft(ctx); err != nil {
		return err
	}
	if err := s.timeTravel(ctx); err != nil {
		return err
	}
	return s.withinLimits(ctx)
}

// withinLimits measures the figures, and repeats while one is over its limit: a burst passes, a leak
// remains.
func (s *soak) withinLimits(ctx context.Context) error {
	var over []string
	err := until(ctx, s.o.Patience, func() (done bool, err error) {
		f, err := s.measure(ctx)
		if err != nil {
			return false, err
		}
		f[live], f[cells] = s.now[live], s.now[cells]
		s.now = f
		over = s.limits.check(f)
		return len(over) == 0, nil
	})
	if s.limits.warm {
		for i := range s.now {
			s.most[i] = max(s.most[i], s.now[i])
		}
	}
	if len(over) > 0 {
		return violation("%s", strings.Join(over, "; "))
	}
	return err
}

// verify compares one snapshot with the results recomputed from the documents, and with the
// acknowledged writes.
func (s *soak) verify(ctx context.Context) error {
	snapshot, err := s.DB.Snapshot(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = snapshot.Close() }()
	if err := workload.CheckBank(ctx, s.DB); err != nil {
		return violation("%v", err)
	}
	c, err := read(ctx, snapshot)
	if err != nil {
		return err
	}
	if err := s.model.check(c.column(text)); err != nil {
		return violation("%v", err)
	}
	if d := c.differences(); len(d) > 0 {
		return violation("the results do not follow from the documents, at %d:\n%s", c.at, few(d))
	}
	s.did[verified]++
	s.now[live], s.now[cells] = int64(c.bytes), int64(c.cells)
	s.remember(moment{at: c.at, digest: c.digest, since: time.Now()})
	return nil
}

// nothingLeft fails if locks, intents or notifications remain.
func (s *soak) nothingLeft(ctx context.Context) error {
	handle.Client(s.DB).Flush()
	var left []string
	err := until(ctx, s.o.Patience, func() (done bool, err error) {
		left, err = leftovers(ctx, s.DB, false)
		return len(left) == 0, err
	})
	if errors.Is(err, errNotInTime) {
		return violation("left behind when nothing runs:\n%s", few(left))
	}
	if err != nil {
		return err
	}
	if left, err = leftovers(ctx, s.DB, true); err == nil && len(left) > 0 {
		err = violation("parked, though not on purpose:\n%s", few(left))
	}
	return err
}

var errNotInTime = errors.New("soak: an awaited condition did not hold in time")

// until polls a condition until it holds, at most for within; then it returns errNotInTime.
func until(ctx context.Context, within time.Duration, ask func() (bool, error)) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(within); ; {
		if done, err := ask(); done || err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return errNotInTime
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// few joins the first lines.
func few(lines []string) string {
	if len(lines) > maxDifferences {
		lines = append(lines[:maxDifferences:maxDifferences],
			fmt.Sprintf("and %d more", len(lines)-maxDifferences))
	}
	return strings.Join(lines, "\n")
}
