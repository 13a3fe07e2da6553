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
			// All that the user chose, but the function.
			chosen := func(o *percolator.ObserverSpec) {
				one, many := o.Func, o.BatchFunc
				*o = spec
				o.Func, o.BatchFunc = one, many
			}
			if spec.BatchFunc != nil {
				into.StrongBatch(spec.Name, spec.Column, wrapped(n, spec.Name, spec.BatchFunc), chosen)
			} else {
				into.Strong(spec.Name, spec.Column, wrapped(n, spec.Name, spec.Func), chosen)
			}
		}
	}, users.Err()
}

// wrapped is the user's function, for one change or several, with what may go wrong with it.
func wrapped[C any](n *Node, observer string,
	fn func(context.Context, *percolator.Tx, C) error) func(context.Context, *percolator.Tx, C) error {
	return func(ctx context.Context, tx *percolator.Tx, m C) error {
		start := uint64(tx.StartTS())
		n.faults.runs.began(start, observer)
		n.mu.Lock()
		life := n.life
		n.mu.Unlock()
		ctx, cancel := life.bound(ctx)
		defer cancel()
		err := fn(ctx, tx, m)
		_, partial := err.(*percolator.PartialError) //nolint:errorlint // only so it is one
		if err != nil && !partial {
			return err
		}
		if f := n.faults.take(observer, start, RunFails, RunPanics); f != nil {
			if f.Kind == RunPanics {
				panic(fmt.Sprintf("percolatortest: injected panic of %s", observer))
			}
			return f.err()
		}
		return err
	}
}
