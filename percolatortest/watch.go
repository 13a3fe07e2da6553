package percolatortest

import (
	"context"
	"fmt"

	percolator "github.com/percolator-go/percolator"
)

// wrap returns a function that registers the user's tables and observers, with the functions
// of observers wrapped to record their transactions and inject faults. It returns the errors
// of the registration.
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
			// options copies the user's options, but not the function.
			options := func(o *percolator.ObserverSpec) {
				one, many := o.Func, o.BatchFunc
				*o = spec
				o.Func, o.BatchFunc = one, many
			}
			if spec.BatchFunc != nil {
				into.StrongBatch(spec.Name, spec.Column, wrapped(n, spec.Name, spec.BatchFunc), options)
			} else {
				into.Strong(spec.Name, spec.Column, wrapped(n, spec.Name, spec.Func), options)
			}
		}
	}, users.Err()
}

// wrapped returns the user's function for one change or a batch, with fault injection.
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
		_, partial := err.(*percolator.PartialError) //nolint:errorlint // a wrapped one does not count
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
