package observer

import (
	"context"
	"errors"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/notify"
)

// inTurn has the dispatcher call do in its turn. It is how other goroutines change or read
// the dispatcher's state.
type inTurn struct {
	do   func(a *dispatcherActor)
	done chan struct{} // closed when do has returned
}

func (m *inTurn) run(a *dispatcherActor) {
	defer close(m.done)
	m.do(a)
}

// inTurn calls do in the dispatcher's turn and waits for it. Its errors are ctx's, after
// which do may still be called, and that the dispatcher has stopped.
func (d *Dispatcher) inTurn(ctx context.Context, do func(a *dispatcherActor)) error {
	m := &inTurn{do: do, done: make(chan struct{})}
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

// Control applies what the catalogue says of observers: whether they are paused or retired, and
// their limits. When it returns no further run of a paused or retired observer starts; runs
// under way end by themselves. It ignores observers that are not registered here, and does
// not change those that infos leaves out. Calls must not overlap, because the last one to
// arrive counts. It fails with ctx's error, or if the dispatcher has stopped.
//
// Every node calls it when it learns of a newer version of the catalogue.
func (d *Dispatcher) Control(ctx context.Context, infos []*pb.ObserverInfo) error {
	return d.inTurn(ctx, func(a *dispatcherActor) {
		for _, info := range infos {
			for _, l := range a.order {
				if l.spec.Name == info.GetName() {
					a.adjust(l, info)
				}
			}
		}
	})
}

// Paused reports whether the column's observer may not run, so that its cells need not be
// submitted. It may be called on any goroutine.
func (d *Dispatcher) Paused(t notify.Target) bool {
	l := (*d.byTarget.Load())[t.Key()]
	return l != nil && l.held.Load()
}

// adjust applies one observer's entry of the catalogue.
func (a *dispatcherActor) adjust(l *registeredObserver, info *pb.ObserverInfo) {
	l.limit = l.spec.Concurrency
	if n := int(info.GetLimit()); n > 0 {
		l.limit = n
	}
	l.inForce.Store(int64(min(l.limit, a.cfg.Workers)))
	held := info.GetPaused() || info.GetRetired()
	l.retired.Store(info.GetRetired())
	if l.held.Swap(held) == held {
		return
	}
	a.cfg.Logger.Info("observer: controlled", "observer", l.spec.Name, "paused", info.GetPaused(),
		"retired", info.GetRetired(), "limit", l.limit)
	if held {
		a.letGo(l)
	}
}

// letGo forgets the observer's cells that are not running, with their memory and advisory
// locks. They stay dirty, and scans find them when the observer is resumed.
func (a *dispatcherActor) letGo(l *registeredObserver) {
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
	a.resting -= l.resting
	l.emptied()
}
