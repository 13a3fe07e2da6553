package observer

import (
	"context"
	"errors"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/notify"
)

// onDispatcher is a message that makes the dispatcher call do on its goroutine. Other goroutines
// change or read the dispatcher's state through it.
type onDispatcher struct {
	do   func(a *dispatcherActor)
	done chan struct{} // closed when do has returned
}

func (m *onDispatcher) run(a *dispatcherActor) {
	defer close(m.done)
	m.do(a)
}

// onDispatcher calls do on the dispatcher's goroutine and waits for it. It fails with ctx's error,
// after which do may still be called, or if the dispatcher has stopped.
func (d *Dispatcher) onDispatcher(ctx context.Context, do func(a *dispatcherActor)) error {
	m := &onDispatcher{do: do, done: make(chan struct{})}
	d.system.Root.Send(d.port.PID(), m)
	select {
	case <-m.done:
		return nil
	case <-d.stopped:
		return errors.New("observer: the dispatcher has stopped")
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Control applies the catalogue's settings of observers: paused, retired, and their limits. After
// it returns no run of a paused or retired observer starts; current runs continue to their end.
// It ignores observers that are not registered here and leaves those missing from infos
// unchanged. Calls must not overlap, because the last to arrive wins. It fails with ctx's error,
// after which the settings may still be applied, or if the dispatcher has stopped.
//
// Every node, and every worker, calls it for each newer version of the catalogue.
func (d *Dispatcher) Control(ctx context.Context, infos []*pb.ObserverInfo) error {
	return d.onDispatcher(ctx, func(a *dispatcherActor) {
		for _, info := range infos {
			for _, l := range a.order {
				if l.spec.Name == info.GetName() {
					a.adjust(l, info)
				}
			}
		}
	})
}

// Paused reports whether the column's observer is paused or retired, so that its cells need not
// be submitted. It is safe for concurrent use.
func (d *Dispatcher) Paused(t notify.Target) bool {
	l := (*d.byTarget.Load())[t.Key()]
	return l != nil && l.disabled.Load()
}

// adjust applies one observer's catalogue entry.
func (a *dispatcherActor) adjust(l *registeredObserver, info *pb.ObserverInfo) {
	l.limit = l.spec.Concurrency
	if n := int(info.GetLimit()); n > 0 {
		l.limit = n
	}
	l.inForce.Store(int64(min(l.limit, a.cfg.Workers)))
	disabled := info.GetPaused() || info.GetRetired()
	if l.retired.Swap(info.GetRetired()) != info.GetRetired() {
		a.retarget()
	}
	if l.disabled.Swap(disabled) == disabled {
		return
	}
	l.outside.reset()
	a.cfg.Logger.Info("observer: settings applied", "observer", l.spec.Name, "paused", info.GetPaused(),
		"retired", info.GetRetired(), "limit", l.limit)
	if disabled {
		a.dropQueued(l)
	}
}

// dropQueued drops the observer's cells that are not running, with their memory and advisory locks.
// They stay dirty, and scans find them when the observer is resumed.
func (a *dispatcherActor) dropQueued(l *registeredObserver) {
	for _, e := range a.entries {
		if e.obs != l || e.state == running {
			continue
		}
		a.forget(e)
	}
	kept := a.waiting[:0]
	for _, e := range a.waiting {
		if e.obs != l {
			kept = append(kept, e)
		}
	}
	clear(a.waiting[len(kept):])
	a.waiting = kept
	a.waiting.restore()
	a.debouncing -= l.debouncing
	l.emptied()
}
