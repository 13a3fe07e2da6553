package tablet

import (
	"github.com/percolator-go/percolator/actors/tablet/memory"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/actorkit"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// First reads have no timestamp: the tablet requests one from the oracle on their behalf,
// and it becomes the start timestamp of the reader's transaction. The request precedes all
// else (design section 4, "Order"): only with the oracle's answer does the read
// request its ReadIndex, and only then are locks and store captured. One request is under
// way at a time; first reads that arrive during it share the next one. All of it runs in the
// tablet's turns, except the oracle's answer, which any goroutine sends as a message. Call.Note
// carries the timestamp, so that it stays with its call.

// needsTimestamp reports whether the call is a first read, or a request for changes, without a
// timestamp.
func needsTimestamp(call *Call) bool {
	switch op := call.Req.Op.(type) {
	case *pb.TabletRequest_Get:
		return op.Get.GetAt() == 0 && call.Note == 0
	case *pb.TabletRequest_Changes:
		return call.Note == 0
	}
	return false
}

// firstReads are the first reads that need a timestamp.
type firstReads struct {
	calls []*Call
	asked bool // a request for other calls' timestamps is under way
}

// timestampsGranted is the oracle's answer for the first reads that asked together.
type timestampsGranted struct {
	calls []*Call
	first mvcc.Timestamp
	err   error
}

// Dead implements actorkit.Leftover.
func (m *timestampsGranted) Dead() {
	for _, call := range m.calls {
		call.Dead()
	}
}

// stamp gets timestamps for the waiting first reads, unless a request is under way. It
// returns the calls if the oracle is on this node and answers without a message; otherwise
// they return in a timestampsGranted message.
func (f *firstReads) stamp(host Host, m *memory.Memory, self *mailbox) []*Call {
	if f.asked || len(f.calls) == 0 {
		return nil
	}
	calls := f.calls
	f.calls = make([]*Call, 0, len(calls)) // the next batch will be about as large
	// Each call gets a timestamp of its own: a start timestamp identifies a transaction in its
	// locks.
	if first, ok := host.TimestampsNow(len(calls)); ok {
		noteTimestamps(calls, first, m)
		return calls
	}
	granted := &timestampsGranted{calls: calls}
	f.asked = true
	host.Timestamps(len(calls), mark(calls, "oracle"), func(first mvcc.Timestamp, err error) {
		granted.first, granted.err = first, err
		self.send(granted)
	})
	return nil
}

// gather yields to other senders before a first read or a one-phase commit opens a batch, so that
// the call is not alone in it. Without an oracle round trip it would be: the first read of a burst,
// or the first commit, whose entry all the others then wait for.
func gather(batch *actorkit.Batcher[*Call], call *Call) {
	_, commits := call.Req.Op.(*pb.TabletRequest_OnePhase)
	if commits || call.Req.GetPrewrite().GetAsync() || needsTimestamp(call) {
		batch.Gather()
	}
}

// noteTimestamps assigns the timestamps first, first+1, … to the calls.
func noteTimestamps(calls []*Call, first mvcc.Timestamp, m *memory.Memory) {
	m.Knows(first + mvcc.Timestamp(len(calls)) - 1)
	for i, call := range calls {
		call.Note = uint64(first) + uint64(i)
		call.Span.Event("timestamp")
	}
}

// onTimestampsGranted continues the first reads as if they had arrived with their
// timestamps, and requests timestamps for those that have arrived since.
func (t *Tablet) onTimestampsGranted(m *timestampsGranted) {
	t.reads.first.asked = false
	t.counters.batches++
	t.inHand = append(t.inHand, m.calls...)
	if m.err != nil {
		replyAll(m.calls, wire.Failure(pb.Error_CODE_NOT_PROPOSED, "no timestamp to read at: %v; try again",
			m.err))
	} else {
		noteTimestamps(m.calls, m.first, t.memory)
		// The leadership or the range may have changed during the request.
		t.reads.ask(t.filterServable(m.calls))
	}
	next := t.reads.first.stamp(t.host, t.memory, t.self)
	t.inHand = append(t.inHand, next...)
	t.reads.ask(t.filterServable(next))
	t.ready()
}
