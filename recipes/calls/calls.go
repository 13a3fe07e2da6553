// Package calls lets an observer call what is outside of the repository, a payment service or
// a slow API, so that nothing is done twice although its runs may be repeated.
//
// A run of an observer is repeated after a conflict, a failure or the death of its process.
// What it has written is undone then, what it has called is not. So a Run gives each of its
// steps an idempotency key, the same in every repetition for the same change, which the
// service takes to recognise a call that it has done already; and it writes down, in a
// transaction of its own, what a step has returned, so that a repeated run goes on after
// the last step that has ended and does not call again.
//
// Between the end of a call and the writing down of its result the process may die, or the
// writing fail; and two runs for one change may overlap. Then the call is made again, with
// the same key. A service that knows no keys is called at least once.
//
// The key is of the change: a newer change of the row, another weak notification, and the
// replay of what was parked are changes of their own, whose steps are done anew. Where
// that must not be, put the operation's own id into the row and give that to the service.
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

// ErrNoDatabase is the error of a Step outside of an observer's run.
var ErrNoDatabase = errors.New("calls: not in an observer's run")

// Log is where the results of steps are kept: a table of its own, which the application
// makes, as by Registry.Table. It holds no state, and its methods may be called concurrently.
type Log struct {
	result percolator.Column
}

// NewLog returns the log in the table.
func NewLog(table string) Log { return Log{percolator.Column{Table: table, Name: "result"}} }

// Run is one run of an observer for one change. It belongs to that run's goroutine.
type Run struct {
	log    Log
	tx     *percolator.Tx
	change percolator.Notification
}

// Run returns what makes the steps of the run. The results of steps for earlier changes of
// the row are deleted when the run commits.
func (l Log) Run(ctx context.Context, tx *percolator.Tx, n percolator.Notification) (*Run, error) {
	r := &Run{log: l, tx: tx, change: n}
	old := percolator.Rows(l.result.Table).Prefix(r.prefix()).Before(tuple.Pack(r.row(n.TS)...))
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

// row has the elements of the rows that steps for the change at ts have.
func (r *Run) row(ts percolator.Timestamp, step ...any) []any {
	return append([]any{r.change.Column.Table, r.change.Column.Name, r.change.Row, ts}, step...)
}

// Key is the idempotency key of a step of the run: 32 hexadecimal digits, the same each time
// that the change is run for.
func (r *Run) Key(step string) string {
	sum := sha256.Sum256([]byte(tuple.Pack(r.row(r.change.TS, step)...)))
	return hex.EncodeToString(sum[:16])
}

// Step returns what the step has returned in an earlier run for the change, or else calls
// call with the step's key, writes down what it returns, and returns it. An error of call is
// returned and not kept: the step is tried again when the observer is run again. Steps of a
// run have different names.
func Step[T any](ctx context.Context, r *Run, name string, codec percolator.Codec[T],
	call func(ctx context.Context, key string) (T, error)) (T, error) {
	result := percolator.Typed(r.log.result, codec)
	row := tuple.Pack(r.row(r.change.TS, name)...)
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
	// The run's own transaction may be lost to a conflict; what was called was called.
	err = db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
		result.Set(tx, row, value)
		return nil
	})
	if err != nil {
		return value, fmt.Errorf("calls: the result of step %q could not be kept: %w", name, err)
	}
	return value, nil
}
