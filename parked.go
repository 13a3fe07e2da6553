package percolator

import "context"

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
// example to alert somebody or to write a row of a dead-letter table with DBFrom(ctx). It runs
// outside the failed run's transaction, which has been rolled back.
//
// Each parking calls fn at least once. It calls fn again if fn returns an error, or the process
// ends before the parking is recorded: the notification is then not parked, runs again after the
// longest backoff (one minute), and is parked by its next failed run for which fn returns nil. fn
// should therefore be idempotent, for example by writing to a row named after the observer, the
// row and CommitTS. A change of the row during the call may prevent the parking.
//
// fn must return when ctx ends, after 20 s at most. Up to four calls of one observer run
// concurrently in a process.
func OnParked(fn func(ctx context.Context, p Parked) error) ObserverOption {
	return func(o *ObserverSpec) { o.OnParked = fn }
}
