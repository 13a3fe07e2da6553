package observer

import (
	"context"

	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/notify"
)

// Registered lists the observers with the tables that they are linked to, without those
// that are retired.
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
// re-created. When it returns, cells of the new tables are admitted and those of the old
// ones are not, and Targets has changed. Runs under way end by themselves. The caller
// must not change the map afterwards. Errors: as Control's.
func (d *Dispatcher) Relink(ctx context.Context, tables map[string]mvcc.TableID) error {
	return d.inTurn(ctx, func(a *dispatcherActor) {
		for _, l := range a.order {
			if id, ok := tables[l.spec.Name]; ok && id != l.tableID() {
				a.cfg.Logger.Info("observer: linked to a table that was made", "observer",
					l.spec.Name, "table", l.spec.Column.Table, "was", l.tableID(), "is", id)
				l.table.Store(uint32(id))
				// What waits is of the dropped table: there is nothing to run for any
				// more.
				a.letGo(l)
			}
		}
		a.retarget()
	})
}

// retarget rebuilds the map of observed columns. The map is replaced, never changed, since
// Paused reads it without a lock. An observer that is linked to no table is not in it, so
// nothing is admitted for it.
func (a *dispatcherActor) retarget() {
	m := make(map[notify.Target]*registeredObserver, len(a.order))
	for _, l := range a.order {
		if id := l.tableID(); id != 0 {
			m[notify.Target{Table: id, Column: l.spec.Column.Name}] = l
		}
	}
	a.byTarget.Store(&m)
}
