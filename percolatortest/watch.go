package percolatortest

import (
	"context"
	"fmt"

	percolator "github.com/percolator-go/percolator"
)

// wrap returns what registers the user's observers, each wrapped, so that its
// transactions are known and faults can happen to it. Errors: the registration's.
func (n *Node) wrap(register func(*percolator.Registry)) (func(*percolator.Registry), error) {
	users := percolator.NewRegistry()
	if register != nil {
		register(users)
	}
	return func(into *percolator.Registry) {
		for _, spec := range users.Tables() {
			into.Table(spec)
		}
		for _, spec := range users.Observers() {
			add := into.Strong
			if spec.Weak {
				add = into.Weak
			}
			// All that the user chose, but the function.
			add(spec.Name, spec.Column, n.wrapped(spec), func(o *percolator.ObserverSpec) {
				wrapped := o.Func
				*o = spec
				o.Func = wrapped
			})
		}
	}, users.Err()
}

// wrapped is the user's function, with what may go wrong with it.
func (n *Node) wrapped(spec percolator.ObserverSpec) percolator.ObserverFunc {
	return func(ctx context.Context, tx *percolator.Tx, m percolator.Notification) error {
		start := uint64(tx.StartTS())
		n.faults.runs.began(start, spec.Name)
		n.mu.Lock()
		life := n.life
		n.mu.Unlock()
		ctx, cancel := life.bound(ctx)
		defer cancel()
		if err := spec.Func(ctx, tx, m); err != nil {
			return err
		}
		if f := n.faults.take(spec.Name, start, RunFails, RunPanics); f != nil {
			if f.Kind == RunPanics {
				panic(fmt.Sprintf("percolatortest: injected panic of %s", spec.Name))
			}
			return f.err()
		}
		return nil
	}
}
