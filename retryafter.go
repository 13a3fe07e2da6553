package percolator

import (
	"fmt"
	"time"
)

// RetryAfterError is the error of RetryAfter. Find it in another error with errors.As.
type RetryAfterError struct {
	Err  error         // the refusal of the service; never nil
	Wait time.Duration // as given to RetryAfter
}

// Error returns the text of Err and the wait.
func (e *RetryAfterError) Error() string {
	if e.Wait <= 0 {
		return fmt.Sprintf("%v (retry later)", e.Err)
	}
	return fmt.Sprintf("%v (retry after %v)", e.Err, e.Wait)
}

// Unwrap returns Err.
func (e *RetryAfterError) Unwrap() error { return e.Err }

// RetryAfter returns the error by which an observer's function reports that an external service
// refuses it for d: the service limits the rate of calls, or is down. err is the refusal; a nil
// err stands for ErrUnavailable, so the result is never nil.
//
// The whole observer then waits, on all nodes, or for d below 10 ms in this process only: no run
// starts for d. Nothing counts towards MaxAttempts or MaxConflicts however long the wait lasts, and
// the changes of a batch stay together.
// After d one run tries again; if it is not refused two run, then four, and so on up to the
// observer's limit. After waits of at most 2 s, the observer also spaces its runs at the rate that
// the service has admitted before, and tests from time to time whether it admits more.
//
// A d between 0 and 1 ms is 1 ms, and a d above 1 h is 1 h, after which one run tries. If d is 0
// or negative, because the service does not say how long, the observer waits for 100 ms, doubled
// by each consecutive refusal up to 800 ms.
//
// The function may wrap the result, and return it for some changes of a batch in a
// PartialError: the others commit. It holds even after the function's Deadline, if the
// function returns before it is abandoned. d may be longer than Deadline. Pausing and resuming
// the observer ends the wait.
//
// Calls in flight when the first one is refused are not recalled. A node that does not learn of
// the refusal, because it has just started, makes at most four calls at once before it is
// refused itself.
func RetryAfter(err error, d time.Duration) error {
	if err == nil {
		err = ErrUnavailable
	}
	return &RetryAfterError{Err: err, Wait: d}
}
