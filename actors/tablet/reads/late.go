package reads

import (
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/wire"
)

// AnswerLate answers a call whose deadline has passed and reports whether it did. Under overload,
// work on abandoned calls would keep the queue from ever shortening. It is called when a call is
// dequeued, before its evaluation, and again when it has waited and is about to be evaluated again.
// Nothing of the call has been proposed then, so the answer can report that it is certainly not
// done. Any goroutine that holds the call may call it. If now is zero, the first call that has a
// deadline sets it.
func AnswerLate(call *Call, now *time.Time) bool {
	if call.Deadline.IsZero() {
		return false
	}
	if now.IsZero() {
		*now = time.Now()
	}
	if !now.After(call.Deadline) {
		return false
	}
	call.Reply(wire.Failure(pb.Error_CODE_NOT_PROPOSED,
		"the deadline passed before the tablet began the operation, so it was not executed"))
	return true
}
