package tablet

import (
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// tooLate drops a call that nobody waits for any more: under overload work would go into
// answers that come too late, and the queue would never shorten. It is asked where a call
// is taken up, before it is evaluated, and again where it has waited and is to be
// evaluated anew: nothing of it is proposed then, nor will be, so it is surely not done.
// Any goroutine that has the call may ask.
func tooLate(call *Call, now time.Time) bool {
	if call.Deadline.IsZero() || !now.After(call.Deadline) {
		return false
	}
	call.Reply(failure(pb.Error_CODE_NOT_PROPOSED,
		"the deadline has passed before the tablet got to the operation; it is surely not done"))
	return true
}
