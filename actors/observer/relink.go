package observer

import (
	"context"

	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/notify"
)

// Registered returns the registered observers with their current tables, except retired ones.
func (d *Dispatcher) Registered() []Registered {
	var out []Registered
	for _, l := range d.observers {
		if !l.retired.Load() {
			out = append(out, Registered{Spec: l.spec, Table: l.tableID()})
		}
	}
	return out
}

// Relink links observers, by name, to the given tables, because theirs were dropped and
// recreated. When it returns, cells of the new tables are admitted and those of the old ones are
// not, and Targets has changed. Current runs continue to their end. The caller must not change
// the map afterwards. It fails with ctx's error, or if the dispatcher has stopped.
func (d *Dispatcher) Relink(ctx context.Context, tables map[string]mvcc.TableID) error {
	return d.onDispatcher(ctx, func(a *dispatcherActor) {
		for _, l := range a.order {
			if id, ok := tables[l.spec.Name]; ok && id != l.tableID() {
				a.cfg.Logger.Info("observer: linked to a created table", "observer",
					l.spec.Name, "table", l.spec.Column.Table, "was", l.tableID(), "is", id)
				l.table.Store(uint32(id))
				// The waiting cells belong to the dropped table; their runs have no purpose.
				a.dropQueued(l)
			}
		}
		a.retarget()
	})
}

// retarget rebuilds the map of observed columns. The map is replaced, never changed, because
// Paused reads it without a lock. Observers without a table are not in it, so none of their cells
// is admitted.
func (a *dispatcherActor) retarget() {
	m := make(map[notify.Target]*registeredObserver, len(a.order))
	for _, l := range a.order {
		if id := l.tableID(); id != 0 {
			m[notify.Target{Table: id, Column: l.spec.Column.Name}] = l
		}
	}
	a.byTarget.Store(&m)
}
