package observer

import (
	"context"
	"fmt"

	"github.com/percolator-go/percolator/internal/notify"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// control: this is what the catalogue says of observers now. From Control.
type control struct {
	infos []*pb.ObserverInfo
	done  chan struct{} // closed when it is honoured
}

// Control makes the dispatcher honour what the catalogue says of its observers: paused,
// limit, retired. It returns when no further run of a paused or retired one starts; runs
// that go on end by themselves. Observers that are not registered here are passed over;
// of one that infos leaves out nothing changes. Calls must not overlap: the last one to
// come counts. Errors: ctx's, or that the dispatcher has stopped.
//
// In a cluster every node calls it for itself, when it learns of a newer version of the catalogue.
func (d *Dispatcher) Control(ctx context.Context, infos []*pb.ObserverInfo) error {
	m := &control{infos: infos, done: make(chan struct{})}
	d.system.Root.Send(d.port.PID(), m)
	return d.await(ctx, m.done)
}

// await waits until the dispatcher has closed done.
func (d *Dispatcher) await(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-d.stopped:
		return fmt.Errorf("observer: the dispatcher has stopped")
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Paused reports whether the column's observer may not run: what is found of it need not
// be submitted. Any goroutine may ask.
func (d *Dispatcher) Paused(t notify.Target) bool {
	l := (*d.byTarget.Load())[t.Key()]
	return l != nil && l.held.Load()
}

func (a *dispatcherActor) control(m *control) {
	defer close(m.done)
	for _, info := range m.infos {
		for _, l := range a.order {
			if l.spec.Name == info.GetName() {
				a.adjust(l, info)
			}
		}
	}
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
