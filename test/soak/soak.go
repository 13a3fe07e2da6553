package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/test/ports"
)

// options say how a run goes.
type options struct {
	dir      string        // of the run: the node's directory, its log and the step log
	duration time.Duration // no cycle begins after it
	seed     uint64
	history  time.Duration // that the node keeps
	docs     int           // about how many documents there are
	warm     time.Duration // of the duration, before the limits hold
	every    time.Duration // between progress lines
	tablets  int           // no split by command beyond so many
	memTable int64
	// cycles between two rests, or more while snapshots are held; 0: only one, at the end
	rest int
	// patience is how long locks may outlive the last transaction: those of clients that
	// were killed expire, and somebody must come by.
	patience time.Duration
	out      io.Writer
}

func (o *options) nodeDir() string { return filepath.Join(o.dir, "node") }

// soak is one run. Its methods belong to one goroutine.
type soak struct {
	o      options
	rng    *rand.Rand
	began  time.Time
	listen string
	log    *os.File // the node's
	steps  *os.File
	node   *process
	db     *percolator.DB
	model  *model

	cycle  int
	rested int // the last cycle with a rest
	life   int // cycles until the node is killed
	held   []moment
	past   []moment
	gone   []string // rows of deleted documents
	limits limits
	now    figures
	totals totals
}

// totals count what was done.
type totals struct {
	writes, unknown, kills, clientKills, splits, pauses, parked, replayed int
	heldReads, pastReads, tooOld, rests, verified                         int
	// since the warm-up
	most figures
}

// errViolation: something that must hold does not.
var errViolation = errors.New("violation")

func violation(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errViolation, fmt.Sprintf(format, args...))
}

// begin starts the node and the client.
func begin(ctx context.Context, o options) (*soak, error) {
	s := &soak{o: o, rng: rand.New(rand.NewPCG(o.seed, 0)), began: time.Now(), model: newModel()}
	if err := os.MkdirAll(o.dir, 0o755); err != nil {
		return nil, err
	}
	var err error
	if s.log, err = os.OpenFile(filepath.Join(o.dir, "node.log"),
		os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644); err != nil {
		return nil, err
	}
	if s.steps, err = os.Create(filepath.Join(o.dir, "steps.log")); err != nil {
		return nil, err
	}
	// One address for all lives of the node: clients find it again.
	if s.listen, err = ports.Addr(); err != nil {
		return nil, err
	}
	if err := s.start(); err != nil {
		return nil, err
	}
	if s.db, err = percolator.Dial(ctx, []string{s.listen},
		percolator.ClientConfig{Insecure: true, LockTTL: lockTTL}); err != nil {
		return s, err
	}
	for _, t := range tables {
		if err := s.db.CreateTable(ctx, percolator.TableSpec{Name: t}); err != nil {
			return s, err
		}
	}
	return s, nil
}

// start begins a life of the node.
func (s *soak) start() error {
	var err error
	s.node, err = spawn(order{
		Dir: s.o.nodeDir(), Listen: s.listen, History: s.o.history, MemTable: s.o.memTable,
	}, s.log)
	// Short lives and long ones: what leaks shows in the long ones only.
	if s.life = 1 + s.rng.IntN(6); s.rng.IntN(4) == 0 {
		s.life = 20 + s.rng.IntN(60)
	}
	return err
}

// end stops everything; the node is asked to end by itself.
func (s *soak) end() error {
	var errs []error
	for _, h := range s.held {
		errs = append(errs, h.snapshot.Close())
	}
	if s.db != nil {
		errs = append(errs, s.db.Close())
	}
	if s.node != nil {
		errs = append(errs, s.node.stop())
	}
	return errors.Join(append(errs, s.log.Close(), s.steps.Close())...)
}

// step writes a line into the step log.
func (s *soak) step(format string, args ...any) {
	_, _ = fmt.Fprintf(s.steps, "%s cycle %d: %s\n", time.Now().Format("15:04:05.000"), s.cycle,
		fmt.Sprintf(format, args...))
}

// run fills the tables and goes through cycles until the time is over.
func (s *soak) run(ctx context.Context) error {
	reported := time.Now()
	if err := s.load(ctx, s.o.docs*9/10); err != nil {
		return err
	}
	for time.Since(s.began) < s.o.duration {
		s.cycle++
		if err := s.one(ctx); err != nil {
			return fmt.Errorf("cycle %d: %w", s.cycle, err)
		}
		s.limits.warm = time.Since(s.began) >= s.o.warm
		if time.Since(reported) >= s.o.every {
			reported = time.Now()
			s.progress()
		}
	}
	s.cycle++
	return errors.Join(s.rest(ctx), s.settle(ctx))
}

// one is a cycle: some actions, then everything is looked at.
func (s *soak) one(ctx context.Context) error {
	for range 1 + s.rng.IntN(4) {
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

// restDue: no snapshot is opened to be held any more, so that there can be a rest.
func (s *soak) restDue() bool { return s.o.rest > 0 && s.cycle-s.rested >= s.o.rest }

// quiesceTimeout bounds how long it may take until nothing is left to run.
const quiesceTimeout = 2 * time.Minute

// settle waits until nothing is left to run, and checks everything.
func (s *soak) settle(ctx context.Context) error {
	waiting, cancel := context.WithTimeout(ctx, quiesceTimeout)
	defer cancel()
	began := time.Now()
	if err := s.db.WaitIdle(waiting); err != nil {
		left, _ := leftovers(ctx, s.db, false)
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

// withinLimits measures, and again for as long as something is over its limit: a burst
// passes, a leak stays.
func (s *soak) withinLimits(ctx context.Context) error {
	var over []string
	err := until(ctx, s.o.patience, func() (done bool, err error) {
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
			s.totals.most[i] = max(s.totals.most[i], s.now[i])
		}
	}
	if len(over) > 0 {
		return violation("%s", strings.Join(over, "; "))
	}
	return err
}

// verify compares one snapshot with what the documents say and with what was acknowledged.
func (s *soak) verify(ctx context.Context) error {
	snapshot, err := s.db.Snapshot(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = snapshot.Close() }()
	c, err := read(ctx, snapshot)
	if err != nil {
		return err
	}
	if err := s.model.check(c.column(text)); err != nil {
		return violation("%v", err)
	}
	if d := c.differences(); len(d) > 0 {
		return violation("not what the documents say, at %d:\n%s", c.at, strings.Join(d, "\n"))
	}
	s.totals.verified++
	s.now[live], s.now[cells] = int64(c.bytes), int64(c.cells)
	s.remember(moment{at: c.at, digest: c.digest, since: time.Now()})
	return nil
}

// nothingLeft looks for locks, intents and notifications.
func (s *soak) nothingLeft(ctx context.Context) error {
	handle.Client(s.db).Flush()
	var left []string
	err := until(ctx, s.o.patience, func() (done bool, err error) {
		left, err = leftovers(ctx, s.db, false)
		return len(left) == 0, err
	})
	if errors.Is(err, errNotInTime) {
		return violation("left behind when nothing runs:\n%s", few(left))
	}
	if err != nil {
		return err
	}
	if left, err = leftovers(ctx, s.db, true); err == nil && len(left) > 0 {
		err = violation("parked, though not on purpose:\n%s", few(left))
	}
	return err
}

var errNotInTime = errors.New("soak: not in time")

// until repeats a question until the answer is yes.
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
