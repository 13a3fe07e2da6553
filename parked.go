package percolator

import (
	"context"
	"errors"
	"iter"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// Parked is a notification that has failed MaxAttempts times. It runs again after a retry
// (Admin.RetryParked) or a newer change of its cell.
type Parked struct {
	Observer string
	Row      string
	Column   Column
	// CommitTS is the commit timestamp of the change.
	CommitTS Timestamp
	// ParkedTS is the start timestamp of the last failed run; 0 in a call of OnParked.
	ParkedTS Timestamp
	// Attempts is the number of failed runs.
	Attempts int
	// Err is the error of the last failed run. In a listing it has only that error's text,
	// truncated to 1 KiB.
	Err error
}

// OnParked sets a function that is called before a notification of the observer is parked, for
// example to send an alert or to write a row of a dead-letter table with DBFrom(ctx). It runs
// outside the failed run's transaction, which has been rolled back.
//
// Each parking calls fn at least once. It calls fn again if fn returns an error, or the process
// ends before the parking is recorded: the notification is then not parked, runs again after a
// backoff of at most one minute, and is parked by its next failed run for which fn returns nil. fn
// should therefore be idempotent, for example by writing to a row named after the observer, the row
// and CommitTS. A change of the row during the call may prevent the parking.
//
// fn must return when ctx ends, after 20 s at most. Up to four calls of one observer run
// concurrently in a process.
func OnParked(fn func(ctx context.Context, p Parked) error) ObserverOption {
	return func(o *ObserverSpec) { o.OnParked = fn }
}

// Parked yields the parked notifications of an observer, in row order. An error is the last element
// of the sequence. It reads all pending notifications of the observer. Role: reader.
func (a *Admin) Parked(ctx context.Context, observer string) iter.Seq2[Parked, error] {
	return func(yield func(Parked, error) bool) {
		if err := a.db.check(); err != nil {
			yield(Parked{}, err)
			return
		}
		of, entries, err := a.db.c.Parked(ctx, observer)
		if err != nil {
			yield(Parked{}, err)
			return
		}
		for e, err := range entries {
			if err != nil {
				yield(Parked{}, err)
				return
			}
			n := e.GetNotify()
			if !yield(Parked{
				Observer: observer, Row: string(e.GetCell().GetRow()),
				Column: observerInfo(of).Column, CommitTS: Timestamp(n.GetTs()),
				ParkedTS: Timestamp(n.GetParkedTs()), Attempts: int(n.GetAttempts()),
				Err: errors.New(n.GetError()),
			}, nil) {
				return
			}
		}
	}
}

// RetryParked runs the observer again for its parked notifications of the rows, or for all that are
// parked now if no row is given, and resets their failure counts. It returns the number n of
// retried notifications, also with an error: to continue, call it with rows[n:], or again without
// rows. It returns ErrInvalid if the notification of one of the rows is not parked. Role: writer.
func (a *Admin) RetryParked(ctx context.Context, observer string, rows ...string) (n int, err error) {
	if err := a.db.check(); err != nil {
		return 0, err
	}
	if len(rows) == 0 {
		all, err := a.db.c.ReplayParked(ctx, observer, func(uint64) {})
		return int(all), err
	}
	for _, row := range rows {
		if _, err := call(ctx, a, pb.AdminClient.ReplayRow,
			&pb.ReplayRowRequest{Name: observer, Row: []byte(row)}); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}
