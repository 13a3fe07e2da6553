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

// Control makes the dispatcher honour what the catalogue says of its observers: paused,
// limit, retired. It returns when no further run of a paused or retired one starts; runs
// that go on end by themselves. Observers that are not registered here are passed over;
// of one that infos leaves out nothing changes. Calls must not overlap: the last one to
// come counts. Errors: ctx's, or that the dispatcher has stopped.
//
// In a cluster every node calls it for itself, when it learns of a newer version of the catalogue.
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

// Paused reports whether the column's observer may not run: what is found of it need not
// be submitted. Any goroutine may ask.
func (d *Dispatcher) Paused(t notify.Target) bool {
	l := (*d.byTarget.Load())[t.Key()]
	return l != nil && l.held.Load()
}

// adjust takes in one observer's entry of the catalogue.
func (a *dispatcherActor) adjust(l *linked, info *pb.ObserverInfo) {
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

// letGo forgets the observer's cells that do not run: they stay dirty, nobody holds
// memory or advisory locks for them, and scans find them when the observer is resumed.
func (a *dispatcherActor) letGo(l *linked) {
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
	l.emptied()
}
