// Package calls supports calls of external services, such as a payment service or a slow API,
// from an observer, without duplicate effects although runs may be repeated.
//
// A run of an observer is repeated after a conflict, a failure or the death of its process.
// This undoes its writes but not its calls. A Run therefore gives each of its steps an
// idempotency key, which is the same in all runs for one change, so that the service can
// detect a repeated call. It also records the result of each step in a separate transaction,
// so that a repeated run continues after the last completed step without calling again.
//
// The call is repeated, with the same key, if the process dies or the transaction fails
// between the call and the record of its result, or if two runs for one change overlap. A
// service without support for keys is called at least once.
//
// The key belongs to the change: a newer change of the row, another weak notification, and
// the replay of a parked notification are new changes, whose steps are executed again. If they
// must not be, store an ID of the operation in the row and pass that to the service.
package calls

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/tuple"
)

// ErrNoDatabase is returned by Step and Steps outside an observer's run, if they have to call.
var ErrNoDatabase = errors.New("calls: the context is not of an observer's run: " +
	"pass the one that the observer's function received")

// Log records the results of steps in a table of its own. It is stateless, and its methods are
// safe for concurrent use.
type Log struct {
	result percolator.Column
}

// NewLog returns a Log that uses the table.
func NewLog(table string) Log { return Log{percolator.Column{Table: table, Name: "result"}} }

// Register registers the table.
func (l Log) Register(r *percolator.Registry) {
	r.Table(percolator.TableSpec{Name: l.result.Table})
}

// Run is one run of an observer for one change. It is not safe for concurrent use.
type Run struct {
	log    Log
	tx     *percolator.Tx
	change percolator.Notification
}

// Run returns the Run for a change. When tx commits, the results for earlier changes of the
// row are deleted.
func (l Log) Run(ctx context.Context, tx *percolator.Tx, n percolator.Notification) (*Run, error) {
	r := &Run{log: l, tx: tx, change: n}
	old := percolator.Rows(l.result.Table).Prefix(r.prefix()).Before(tuple.Pack(r.row(n.CommitTS)...))
	for cell, err := range tx.Scan(ctx, old, l.result) {
		if err != nil {
			return nil, err
		}
		tx.Delete(cell.Row, l.result)
	}
	return r, nil
}

func (r *Run) prefix() string {
	return tuple.Prefix(r.change.Column.Table, r.change.Column.Name, r.change.Row)
}

// row returns the elements of the row of a step for the change at ts.
func (r *Run) row(ts percolator.Timestamp, step ...any) []any {
	return append([]any{r.change.Column.Table, r.change.Column.Name, r.change.Row, ts}, step...)
}

// Key returns the idempotency key of a step: 32 hexadecimal digits, the same in all runs for
// the change.
func (r *Run) Key(step string) string {
	sum := sha256.Sum256([]byte(tuple.Pack(r.row(r.change.CommitTS, step)...)))
	return hex.EncodeToString(sum[:16])
}

// Step returns the recorded result of the step from an earlier run for the change. Without one,
// it calls call with the step's key, and records and returns its result. It returns an error of
// call without recording it, so that the next run retries the step. The names of the steps of
// a run must be distinct.
func Step[T any](ctx context.Context, r *Run, name string, codec percolator.Codec[T],
	call func(ctx context.Context, key string) (T, error)) (T, error) {
	result := percolator.Typed(r.log.result, codec)
	row := tuple.Pack(r.row(r.change.CommitTS, name)...)
	value, done, err := result.Get(ctx, r.tx, row)
	if err != nil || done {
		return value, err
	}
	db := percolator.DBFrom(ctx)
	if db == nil {
		return value, ErrNoDatabase
	}
	if value, err = call(ctx, r.Key(name)); err != nil {
		return value, err
	}
	// A separate transaction, since the run's own may be rolled back after the call.
	err = db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
		result.Set(tx, row, value)
		return nil
	})
	if err != nil {
		return value, fmt.Errorf("calls: record the result of step %q: %w", name, err)
	}
	return value, nil
}
