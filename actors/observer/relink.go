package observer

import (
	"context"

	"github.com/percolator-go/percolator/internal/notify"
)

// Registered returns the registered observers with their links: those that are retired, with their
// last links, or the others.
func (d *Dispatcher) Registered(retired bool) []Registered {
	var out []Registered
	for _, l := range d.observers {
		if l.retired.Load() == retired {
			out = append(out, Registered{Spec: l.spec, Link: *l.link.Load()})
		}
	}
	return out
}

// Relink links observers, by name, to other notify entries, because their tables were dropped and
// recreated, or because the catalogue has them with entries elsewhere. When it returns, cells of
// the new ones are admitted and those of the old ones are not, and Targets has changed. Current
// runs continue to their end. The caller must not change the map afterwards. It fails with ctx's
// error, or if the dispatcher has stopped.
func (d *Dispatcher) Relink(ctx context.Context, links map[string]Link) error {
	return d.onDispatcher(ctx, func(a *dispatcherActor) {
		for _, l := range a.order {
			if is, ok := links[l.spec.Name]; ok && is != *l.link.Load() {
				was := l.link.Swap(&is)
				a.cfg.Logger.Info("observer: linked to other notify entries", "observer",
					l.spec.Name, "table", l.spec.Column.Table, "was", was.Table, "is", is.Table,
					"own_entries", is.Own)
				// The waiting cells are of the dropped table, or of another observer.
				a.dropQueued(l)
			}
		}
		a.retarget()
	})
}

// retarget rebuilds the map of notify columns. The map is replaced, never changed, because
// Paused and Targets read it without a lock. Observers without a table are not in it, so none of
// their cells is admitted.
func (a *dispatcherActor) retarget() {
	m := make(map[notify.Target]*registeredObserver, len(a.order))
	for _, l := range a.order {
		t, ok := l.target()
		// The entries of a retired observer may be those of another one by now.
		if have := m[t]; ok && (have == nil || have.retired.Load()) {
			m[t] = l
		}
	}
	a.byTarget.Store(&m)
}
