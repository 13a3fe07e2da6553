package observer

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/asynkron/protoactor-go/actor"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/actorkit"
	"github.com/percolator-go/percolator/internal/notify"
)

type spec = percolator.ObserverSpec

// Dispatcher runs the observers of a node or worker. Its methods are safe for concurrent use.
type Dispatcher struct {
	system    *actor.ActorSystem
	port      *actorkit.Port[[]notify.Dirty, []notify.Admission]
	observers []*registeredObserver
	// byTarget points to an immutable map; Relink replaces it.
	byTarget *atomic.Pointer[map[notify.Target]*registeredObserver]
	effects  *effectsBook
	cancel   context.CancelFunc // ends all runs' contexts
	stopped  chan struct{}      // closed when the actor has stopped
}

// Spawn starts a dispatcher. It fails with ErrInvalid, or if the actor's name is taken.
func Spawn(system *actor.ActorSystem, cfg Config) (*Dispatcher, error) {
	cfg = cfg.withDefaults()
	if err := check(cfg); err != nil {
		return nil, err
	}
	d := &Dispatcher{system: system, stopped: make(chan struct{})}
	// The runs' parent context lives as long as the dispatcher.
	ctx, cancel := context.WithCancel(context.Background())
	d.cancel = cancel
	a := newDispatcherActor(ctx, cfg, d.stopped)
	d.observers, d.byTarget, d.effects = a.order, &a.byTarget, a.effects
	// Always the same instance: a restart after a panic must keep the state of current runs.
	pid, err := system.Root.SpawnNamed(actor.PropsFromProducer(func() actor.Actor {
		return a
	}), "observer")
	if err != nil {
		cancel()
		return nil, fmt.Errorf("observer: spawn the dispatcher: %w", err)
	}
	d.port = actorkit.NewPort[[]notify.Dirty, []notify.Admission](system, pid, 0)
	return d, nil
}

func check(cfg Config) error {
	if cfg.Client == nil {
		return fmt.Errorf("%w: no client", ErrInvalid)
	}
	seen := map[notify.Target]string{}
	for _, o := range cfg.Observers {
		if (o.Spec.Func == nil && o.Spec.BatchFunc == nil) || o.Spec.Name == "" || o.Spec.Concurrency < 1 ||
			o.Spec.Deadline <= 0 || o.Spec.MaxAttempts < 1 {
			return fmt.Errorf("%w: observer %q needs a name, a function, and a positive Concurrency, "+
				"Deadline and MaxAttempts", ErrInvalid, o.Spec.Name)
		}
		l := &registeredObserver{spec: o.Spec}
		l.link.Store(&o.Link)
		at, linked := l.target()
		if other, taken := seen[at]; taken && linked {
			return fmt.Errorf("%w: %q and %q have the same notify entries", ErrInvalid, other,
				o.Spec.Name)
		}
		seen[at] = o.Spec.Name
	}
	return nil
}

// Targets returns the observers registered here, for scanners, without those whose table does not
// exist, and without retired ones whose column another observer has.
func (d *Dispatcher) Targets() []notify.Target {
	out := make([]notify.Target, 0, len(d.observers))
	byTarget := *d.byTarget.Load()
	for _, l := range d.observers {
		if t, ok := l.target(); ok && byTarget[t] == l {
			t.Weak, t.Debounce, t.Enough = l.spec.Weak, l.spec.Debounce, l.enough()
			out = append(out, t)
		}
	}
	return out
}

// Submit submits dirty cells and returns one admission for each; notify.Full for those beyond the
// first Queue cells. It waits only for the dispatcher's goroutine, never for a run. It fails with
// an error of actorkit if the dispatcher has stopped or is overloaded by callers, or with ctx's
// error; then some of the cells may have been accepted, and their Done will be called.
func (d *Dispatcher) Submit(ctx context.Context, items []notify.Dirty) ([]notify.Admission, error) {
	return d.port.Ask(ctx, items, false)
}

// Stats returns each observer's counters in the order of registration.
func (d *Dispatcher) Stats() []Stats {
	out := make([]Stats, len(d.observers))
	for i, l := range d.observers {
		out[i] = l.read()
	}
	return out
}

// Stop starts no further runs, waits for the current ones, and stops the dispatcher. Queued cells
// stay dirty. If ctx ends first, Stop cancels the runs' contexts without waiting for them and
// returns an error that wraps ErrStillRunning. A second call waits for the same end; once the
// dispatcher has stopped it returns nil, even if a run is still in progress.
func (d *Dispatcher) Stop(ctx context.Context) error {
	idle := make(chan struct{})
	d.system.Root.Send(d.port.PID(), &drain{idle: idle})
	defer d.cancel()
	select {
	case <-idle:
	case <-d.stopped:
		return nil
	case <-ctx.Done():
		d.cancel()
		d.system.Root.Poison(d.port.PID())
		return fmt.Errorf("%w: %s: %w", ErrStillRunning, d.going(), context.Cause(ctx))
	}
	d.system.Root.Poison(d.port.PID())
	<-d.stopped // the actor never blocks, so this is short
	return nil
}

// going returns the observers with current runs and their numbers, for an error.
func (d *Dispatcher) going() string {
	text := ""
	for _, s := range d.Stats() {
		if s.Running > 0 {
			text += fmt.Sprintf("%s %d ", s.Name, s.Running)
		}
	}
	return text
}
