package tablet

import (
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/actorkit"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// A first read has no timestamp: the tablet asks the oracle for one on its behalf, and it
// becomes the start timestamp of the reader's transaction. The oracle is asked before
// anything of the read is under way (invariant 10 of design section 4): only with its
// answer does the read ask for its ReadIndex, and then locks and store are captured. One
// request is under way at a time; the first reads that come meanwhile share the next one.
// All but readAt, which read workers call, runs in the tablet's turns. Call.Note carries
// the timestamp, so that a call owns it wherever it waits.

// needsTimestamp reports whether the call is a first read without a timestamp.
func needsTimestamp(call *Call) bool {
	op, ok := call.Req.Op.(*pb.TabletRequest_Get)
	return ok && op.Get.GetAt() == 0 && call.Note == 0
}

// firstReads are the first reads that need a timestamp.
type firstReads struct {
	calls []*Call
	asked bool // one request for timestamps, of others, is under way
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

// stamp gets timestamps for the first reads that wait, unless a request is under way. It
// returns the calls if they have theirs at once, because the oracle is on this node and
// need not ask anybody; otherwise they come back as a timestampsGranted message.
func (f *firstReads) stamp(host Host, self *mailbox) []*Call {
	if f.asked || len(f.calls) == 0 {
		return nil
	}
	calls := f.calls
	f.calls = make([]*Call, 0, len(calls)) // the next batch will be about as large
	// Each gets one of its own: a start timestamp is a transaction's name in its locks.
	if first, ok := host.TimestampsNow(len(calls)); ok {
		noteTimestamps(calls, first)
		return calls
	}
	m := &timestampsGranted{calls: calls}
	f.asked = true
	host.Timestamps(len(m.calls), func(first mvcc.Timestamp, err error) {
		m.first, m.err = first, err
		self.send(m)
	})
	return nil
}

// gather lets other senders run before the call opens a batch, so that the call is not
// alone in it. What no longer waits for the oracle would be: the first read of a crowd,
// or its first commit, whose entry all the others then wait for.
func gather(batch *actorkit.Batcher[*Call], call *Call) {
	if _, ok := call.Req.Op.(*pb.TabletRequest_OnePhase); ok || needsTimestamp(call) {
		batch.Gather()
	}
}

// noteTimestamps gives the calls the timestamps first, first+1, …
func noteTimestamps(calls []*Call, first mvcc.Timestamp) {
	for i, call := range calls {
		call.Note = uint64(first) + uint64(i)
	}
}

// onTimestampsGranted lets the first reads go on as if they had brought their timestamps, and asks
// for those that have come meanwhile.
func (t *Tablet) onTimestampsGranted(m *timestampsGranted) {
	t.reads.first.asked = false
	t.counters.batches++
	t.inHand = append(t.inHand, m.calls...)
	if m.err != nil {
		for _, call := range m.calls {
			call.Reply(wire.Failure(pb.Error_CODE_NOT_PROPOSED, "no timestamp to read at: %v; try again",
				m.err))
		}
	} else {
		noteTimestamps(m.calls, m.first)
		// The leadership or the range may have changed while the oracle was asked.
		t.reads.ask(t.filterServable(m.calls))
	}
	next := t.reads.first.stamp(t.host, t.self)
	t.inHand = append(t.inHand, next...)
	t.reads.ask(t.filterServable(next))
	t.ready()
}
