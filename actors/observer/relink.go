package observer

import (
	"context"
	"maps"

	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/notify"
)

// relink: these observers' tables were made anew. From Relink.
type relink struct {
	tables map[string]mvcc.TableID
	done   chan struct{} // closed when it is done
}

// Registered lists the observers with the tables that they are linked to, without those
// that are retired.
func (d *Dispatcher) Registered() []Registered {
	var out []Registered
	for _, l := range d.linked {
		if !l.retired.Load() {
			out = append(out, Registered{Spec: l.spec, Table: l.tableID()})
		}
	}
	return out
}

// Relink links observers, by name, to other tables than so far: theirs were dropped and
// made anew. When it returns, cells of the new tables are admitted and those of the old
// ones are not; Targets has changed. Runs that go on end by themselves. Errors: as
// Control's.
func (d *Dispatcher) Relink(ctx context.Context, tables map[string]mvcc.TableID) error {
	m := &relink{tables: maps.Clone(tables), done: make(chan struct{})}
	d.system.Root.Send(d.port.PID(), m)
	return d.await(ctx, m.done)
}

func (a *dispatcherActor) relink(m *relink) {
	defer close(m.done)
	for _, l := range a.order {
		if id, ok := m.tables[l.spec.Name]; ok && id != l.tableID() {
			a.cfg.Logger.Info("observer: linked to a table that was made", "observer", l.spec.Name,
				"table", l.spec.Column.Table, "was", l.tableID(), "is", id)
			l.table.Store(uint32(id))
			a.letGo(l)
		}
	}
	a.retarget()
}

// retarget makes the map of observed columns anew.
func (a *dispatcherActor) retarget() {
	m := make(map[notify.Target]*linked, len(a.order))
	for _, l := range a.order {
		if id := l.tableID(); id != 0 {
			m[notify.Target{Table: id, Column: l.spec.Column.Name}] = l
		}
	}
	a.byTarget.Store(&m)
}
