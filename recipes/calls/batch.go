package calls

import (
	"context"
	"fmt"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/tuple"
)

// Steps runs a step for a batch of changes with one call of call. It returns one value per change, in
// their order. call receives the indices in changes of those without a recorded result, and their keys,
// and returns one value for each; without any, it is not called. The results are recorded together,
// per change, so that a repeated run calls only for changes that are new to it, whatever batches
// they are in. An error of call is returned as it is, such as one of percolator.RetryAfter.
//
// When tx commits, the results for earlier changes of the rows are deleted.
func Steps[T any](ctx context.Context, l Log, tx *percolator.Tx, changes []percolator.Notification,
	name string, codec percolator.Codec[T],
	call func(ctx context.Context, missing []int, keys []string) ([]T, error)) ([]T, error) {
	result := percolator.Typed(l.result, codec)
	rows, of := make([]string, len(changes)), make(map[string]int, len(changes))
	var missing []int
	var keys []string
	values, done := make([]T, len(changes)), make([]bool, len(changes))
	runs := make([]*Run, len(changes))
	for i, n := range changes {
		var err error
		if runs[i], err = l.Run(ctx, tx, n); err != nil {
			return nil, err
		}
		rows[i] = tuple.Pack(runs[i].row(n.CommitTS, name)...)
		of[rows[i]] = i
	}
	recorded, err := result.GetMulti(ctx, tx, rows...)
	if err != nil {
		return nil, err
	}
	for _, r := range recorded {
		values[of[r.Row]], done[of[r.Row]] = r.Value, true
	}
	for i := range changes {
		if !done[i] {
			missing, keys = append(missing, i), append(keys, runs[i].Key(name))
		}
	}
	if len(missing) == 0 {
		return values, nil
	}
	db := percolator.DBFrom(ctx)
	if db == nil {
		return nil, ErrNoDatabase
	}
	fresh, err := call(ctx, missing, keys)
	switch {
	case err != nil:
		return nil, err
	case len(fresh) != len(missing):
		return nil, fmt.Errorf("%w: calls: step %q returned %d results for %d changes",
			percolator.ErrInvalid, name, len(fresh), len(missing))
	}
	for k, i := range missing {
		values[i] = fresh[k]
	}
	// A separate transaction, since the run's own may be rolled back after the call.
	err = db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
		for k, i := range missing {
			result.Set(tx, rows[i], fresh[k])
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("calls: record the results of step %q: %w", name, err)
	}
	return values, nil
}
