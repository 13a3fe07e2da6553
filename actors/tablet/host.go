package tablet

import (
	"github.com/asynkron/protoactor-go/actor"

	"github.com/percolator-go/percolator/actors/tablet/snapshot"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/tracing"
	"github.com/percolator-go/percolator/internal/wire"
)

// Host is a tablet's interface to its node. Its methods are called on the tablet's goroutine
// and must not block.
type Host interface {
	// Timestamps requests n timestamps, first to first+n-1, from the oracle. It calls then once, on
	// any goroutine. traced is the span that asks, or nil.
	Timestamps(n int, traced *tracing.Span, then func(first mvcc.Timestamp, err error))
	// TimestampsNow is like Timestamps but never waits. ok is false if the oracle cannot
	// answer without a message.
	TimestampsNow(n int) (first mvcc.Timestamp, ok bool)
	// SplitApplied reports that a split is applied and durable. The host starts the right
	// tablet; the left one continues.
	SplitApplied(left, right *pb.TabletDescriptor)
	// Merging reports that the replica has reached the entry that merges another tablet's rows
	// into it, and has stopped. The host merges the stored replicas and starts the result.
	Merging(m *snapshot.Merge)
	// Hint reports that the cells have become dirty. The host may drop it.
	Hint(cells []mvcc.Cell)
	// Failed reports that the replica has stopped serving. After ErrPanic it may be stopped
	// and spawned again, once the writers have written everything that the replica sent
	// them.
	Failed(tablet uint64, err error)
	// Leading reports that this replica leads and serves the tablet with this descriptor.
	Leading(d *pb.TabletDescriptor)
	// Following reports the node that leads the tablet, as far as this replica knows; 0 if
	// it knows no leader.
	Following(tablet, node uint64)
	// Changed reports the tablet's descriptor after a change of its replicas, or a freeze or
	// release of a merge, was applied here. Every replica calls it, not only the leader.
	Changed(d *pb.TabletDescriptor)
	// Removed reports that the replica no longer belongs to its tablet's group and has
	// stopped. The host destroys it.
	Removed(tablet uint64)
	// Stale reports that the replica's log lacks entries that it has acknowledged, and that
	// the replica no longer takes part in its group. The host records that durably, and opens
	// the replica with Config.Stale from then on.
	Stale(tablet uint64)
	// SendRaft sends a message to a replica on another node. It may be lost.
	SendRaft(m *wire.RaftMessage)
}

// mailbox sends messages to the tablet itself, on any goroutine.
type mailbox struct {
	root *actor.RootContext
	pid  *actor.PID // set in the first turn, before anything that sends
}

func (m *mailbox) send(message any) { m.root.Send(m.pid, message) }

// timestampGranted is a timestamp that a turn has requested from the oracle, and its use in a later
// turn.
type timestampGranted struct {
	at   mvcc.Timestamp
	then func(mvcc.Timestamp)
}

// withTimestamp calls then with a timestamp from the oracle: at once if the oracle answers without a
// message, otherwise in a later turn, or never if the request fails.
func (o *proposer) withTimestamp(then func(mvcc.Timestamp)) {
	if now, ok := o.host.TimestampsNow(1); ok {
		then(now)
		return
	}
	o.host.Timestamps(1, nil, func(first mvcc.Timestamp, err error) {
		if err == nil {
			o.waiting.self.send(&timestampGranted{first, then})
		}
	})
}
