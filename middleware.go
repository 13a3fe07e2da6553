package percolator

import (
	"context"
	"slices"

	"github.com/percolator-go/percolator/internal/txn"
)

// Middleware wraps the functions of observers: it is called once for each observer of a registry,
// with the function to wrap, and returns the function to run instead. A run of an ObserverFunc is a
// batch of one change. o has the observer's options; its functions are not set.
//
// A middleware that does not call next acknowledges the changes without having processed them,
// unless it returns an error. It must return a *PartialError of next unwrapped: see PartialError.
type Middleware func(o ObserverSpec, next BatchFunc) BatchFunc

// Use wraps m around the functions of all observers of the registry, those registered later
// included, so that one place measures, logs or limits their runs. The Middleware of the first Use
// is the outermost. Err reports a nil m.
func (r *Registry) Use(m Middleware) {
	if m == nil {
		r.errs = append(r.errs, txn.Errorf("%w: middleware is nil", ErrInvalid))
		return
	}
	r.middleware, r.wrapped = append(r.middleware, m), nil
}

// wrap returns the observer with the registry's middleware around its function.
func (r *Registry) wrap(o ObserverSpec) ObserverSpec {
	if len(r.middleware) == 0 {
		return o
	}
	named, single, run := o, o.Func, o.BatchFunc
	named.Func, named.BatchFunc = nil, nil
	if single != nil {
		run = func(ctx context.Context, tx *Tx, changes []Notification) error {
			return single(ctx, tx, changes[0])
		}
	}
	for _, m := range slices.Backward(r.middleware) {
		run = m(named, run)
	}
	if single != nil {
		o.Func = func(ctx context.Context, tx *Tx, n Notification) error {
			return run(ctx, tx, []Notification{n})
		}
	} else {
		o.BatchFunc = run
	}
	return o
}
