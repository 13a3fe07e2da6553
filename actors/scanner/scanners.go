package scanner

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"golang.org/x/sync/errgroup"

	"github.com/percolator-go/percolator/internal/actorkit"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/notify"
)

// Scanners is a hinter, scanners and a sweeper. A node has one Scanners for its own observers and
// one for each worker that is connected to it, and passes each hint to one of them. Its methods are
// safe for concurrent use.
type Scanners struct {
	cfg     Config
	system  *actor.ActorSystem
	targets map[notify.Target]bool
	hinter  *actor.PID
	hinted  chan struct{} // closed when the hinter has ended
	cancel  context.CancelFunc
	backlog backlogs
	sweeper *actorkit.Turns // nil if there is nothing to sweep
	// scanners is set before the first hint can arrive.
	scanners []*actorkit.Turns
	waiting  atomic.Int64 // cells sent to the hinter and not yet passed on
	stats    Stats
}

// Stats are counters since the scanners started.
type Stats struct {
	Hints        atomic.Uint64 // cells hinted
	HintsPassed  atomic.Uint64 // hinted cells passed to the dispatcher, which was not full
	HintsDropped atomic.Uint64 // hinted cells left to the scans
	Turns        atomic.Uint64 // turns of scanners
	Requests     atomic.Uint64 // walk requests, including the sweeper's
	Parked       atomic.Uint64 // parked entries found and skipped by scanners
	Teleports    atomic.Uint64 // jumps away from a row that another worker has locked
	Resolved     atomic.Uint64 // locks and intents resolved for the sweeper
	Errors       atomic.Uint64 // requests that failed
	Clean        atomic.Uint64 // tablets that scanners skipped because the survey reports them clean
}

// Spawn starts the actors, with their first turns at once. It fails with ErrInvalid, or if a name
// is taken.
func Spawn(system *actor.ActorSystem, cfg Config) (*Scanners, error) {
	cfg = cfg.withDefaults()
	if err := cfg.check(); err != nil {
		return nil, err
	}
	s := &Scanners{
		cfg: cfg, system: system, targets: make(map[notify.Target]bool),
		backlog: newBacklogs(cfg.Targets),
	}
	for _, t := range cfg.Targets {
		s.targets[t.Key()] = true
	}
	if err := s.spawn(); err != nil {
		return nil, errors.Join(err, s.Stop(context.Background()))
	}
	return s, nil
}

// spawn starts the actors until one fails.
func (s *Scanners) spawn() error {
	ctx, cancel := context.WithCancel(context.Background())
	h := &hinter{
		cfg: s.cfg, ctx: ctx, targets: s.targets,
		locks: newHolder(s.cfg.Locker, s.cfg.Owner),
		batch: actorkit.NewBatcher[*hint](actorkit.BatchConfig{}), waiting: &s.waiting,
		stats:       &s.stats,
		hintDropped: s.hintDropped, backlog: s.backlog, done: make(chan struct{}),
	}
	// Always the same instance: a restart after a panic keeps its state.
	props := actor.PropsFromProducer(func() actor.Actor { return h })
	pid, err := s.system.Root.SpawnNamed(props, s.cfg.Name+"-hinter")
	if err != nil {
		cancel()
		return fmt.Errorf("scanner: spawn the hinter: %w", err)
	}
	s.hinter, s.hinted, s.cancel = pid, h.done, cancel
	// Without observers there is nothing to sweep, and no timer should wake the node.
	if s.cfg.Resolver != nil && (len(s.cfg.Targets) > 0 || s.cfg.Observed != nil) {
		if s.sweeper, err = s.turns("sweeper", newSweeper(s.cfg, &s.stats).turn); err != nil {
			return err
		}
	}
	if len(s.cfg.Targets) == 0 {
		return nil
	}
	// Each node starts elsewhere, so that they recheck a tablet at different times.
	first := rand.New(rand.NewPCG(s.cfg.Seed, 0)).IntN(1 << 30)
	choice := &choice{again: &rechecks{every: recheck, next: first}}
	for i := range max(s.cfg.Scanners, 0) {
		rng := rand.New(rand.NewPCG(s.cfg.Seed, uint64(i)+2))
		locks := newHolder(s.cfg.Locker, s.cfg.Owner+1+uint64(i))
		scan := newScan(s.cfg, rng, locks, choice, s.backlog, &s.stats)
		t, err := s.turns(fmt.Sprint(i), scan.turn)
		if err != nil {
			return err
		}
		s.scanners = append(s.scanners, t)
	}
	return nil
}

// turns starts an actor that works in turns, with the first turn at once.
func (s *Scanners) turns(name string, turn func(context.Context) time.Duration) (*actorkit.Turns,
	error) {
	return actorkit.SpawnTurns(s.system,
		actorkit.TurnsConfig{Name: s.cfg.Name + "-" + name, Turn: turn})
}

// Hint passes on cells that have just become dirty. It never blocks, and drops hints beyond
// HintQueue, of other or paused observers, and of columns with a backlog. Leaders should not hint
// entries that are parked or have failed, because those are in backoff. Hint copies the slice.
func (s *Scanners) Hint(cells []mvcc.Cell) {
	if s.cfg.Hints == HintsOff || len(s.targets) == 0 {
		return
	}
	var mine []mvcc.Cell
	for _, c := range cells {
		t := notify.TargetOf(c)
		switch {
		case !s.targets[t] || s.cfg.Paused(t):
		case s.backlog[t].on.Load(): // the scanners submit it in order
			s.stats.Hints.Add(1)
			s.stats.HintsDropped.Add(1)
		default:
			mine = append(mine, c)
		}
	}
	if len(mine) == 0 {
		return
	}
	n := int64(len(mine))
	s.stats.Hints.Add(uint64(n))
	if s.waiting.Add(n) > int64(s.cfg.HintQueue) {
		s.waiting.Add(-n)
		s.stats.HintsDropped.Add(uint64(n))
		for _, c := range mine {
			s.hintDropped(notify.TargetOf(c))
		}
		return
	}
	s.system.Root.Send(s.hinter, &hint{cells: mine})
}

// hintDropped records that a hint of the target was dropped for lack of room. If a backlog starts, it
// wakes the scanners, which must now find the cells. It does not block and is safe for concurrent
// use.
func (s *Scanners) hintDropped(t notify.Target) {
	if b := s.backlog[t]; b == nil || s.cfg.Scanners <= 0 || !b.noteSkipped(s.cfg.Now().UnixMilli()) {
		return
	}
	s.Wake()
}

// Takes reports whether a hint of the cell would be passed on: its column is one of the targets,
// not paused, and has no backlog.
func (s *Scanners) Takes(cell mvcc.Cell) bool {
	t := notify.TargetOf(cell)
	return s.targets[t] && !s.cfg.Paused(t) && !s.backlog[t].on.Load()
}

// Wake makes the scanners look for dirty cells at once.
func (s *Scanners) Wake() {
	for _, t := range s.scanners {
		t.Wake()
	}
}

// Stats returns the counters, which continue to be updated.
func (s *Scanners) Stats() *Stats { return &s.stats }

// Stop cancels the current turns and stops the actors. It returns ctx's error if some have not
// stopped when ctx ends. Call it before the dispatcher is stopped.
func (s *Scanners) Stop(ctx context.Context) error {
	var g errgroup.Group
	for _, t := range append(slices.Clone(s.scanners), s.sweeper) {
		if t != nil {
			g.Go(func() error { return t.Stop(ctx) })
		}
	}
	if s.hinter != nil {
		g.Go(func() error { return s.stopHinter(ctx) })
	}
	return g.Wait()
}

func (s *Scanners) stopHinter(ctx context.Context) error {
	s.cancel()
	s.system.Root.Stop(s.hinter)
	select {
	case <-s.hinted:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
