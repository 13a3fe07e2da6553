package tablet

import (
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/percolator-go/percolator/actors/tablet/group"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/metrics"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/tracing"
	"github.com/percolator-go/percolator/store"
)

// This file takes reads from their batch to the queue of the read workers. The reads of a
// batch share one ReadIndex: the group confirms that this replica still leads, and
// returns the index that the reads must see; they go on when it is visible. Any number of
// batches may wait so, within the QueueLimit of the port, and a sweep ends waits that
// nobody confirms. All of it runs in the tablet's turns.

// reads are a tablet's reads on their way to the read workers, in the order of the stages
// that they pass, and what the workers share with the tablet. A read is in one stage at a
// time; one that meets a reservation comes back and waits (waiting.go).
type reads struct {
	*served
	proposer   *proposer   // which judges them; not for the workers
	first      firstReads  // that wait for a timestamp
	indexes    readIndexes // that wait for their ReadIndex, and for it to be visible
	queue      readQueue   // that wait for a worker
	background *readLane   // surveys, measurements, confirmations and counts
}

// served is what read workers know of a tablet: what never changes, and what its turns let
// them know. No other part of a Tablet may be touched on their goroutines.
type served struct {
	id     uint64
	store  *store.Store
	limits mvcc.Limits
	logger *slog.Logger
	self   *mailbox
	took   *metrics.Durations // Metrics.Reads
	traces *tracing.Book

	term atomic.Uint64 // while the tablet leads, else 0
	// safepoint is the tablet's as soon as it is proposed: a worker whose Txn may be
	// without what was below it finds it here.
	safepoint atomic.Uint64

	unfinished atomic.Int32 // readJobs in the pool, those under way included
	wanted     atomic.Bool  // the tablet is to be told when half of them are done
}

// raiseSafepoint raises the safepoint that the workers go by; it never falls.
func (s *served) raiseSafepoint(safepoint mvcc.Timestamp) {
	// Only the tablet's turns store it.
	s.safepoint.Store(max(s.safepoint.Load(), uint64(safepoint)))
}

func newReads(t *Tablet, readers *ReadPool) reads {
	return reads{
		proposer: &t.proposer,
		served: &served{
			id: t.id, store: t.store, limits: t.cfg.Limits, logger: t.cfg.Logger, self: t.self,
			took: &t.cfg.Metrics.Reads, traces: t.cfg.Traces,
		},
		queue:      readQueue{readLane: readers.reads.lane()},
		background: readers.background.lane(),
	}
}

// clear gives up all reads that no worker has, and returns them.
func (r *reads) clear() [][]*Call {
	calls := [][]*Call{r.first.calls, r.queue.calls}
	for _, b := range r.indexes.batches {
		calls = append(calls, b.calls)
	}
	r.first.calls, r.queue.calls, r.indexes.batches = nil, nil, nil
	return calls
}

// readBatch is the reads of one flush: they share one ReadIndex.
type readBatch struct {
	id    uint64 // the ReadIndex context, never used again
	index uint64 // 0: not known yet
	epoch uint64 // the calls were checked under it
	until time.Time
	calls []*Call
}

// ask asks Raft for the index that the calls must see. They must have been checked in
// this turn.
func (r *reads) ask(calls []*Call) {
	if len(calls) == 0 {
		return
	}
	p := r.proposer
	p.counters.reads += uint64(len(calls))
	b := &readBatch{epoch: p.descriptor.Epoch, calls: calls}
	r.indexes.add(b)
	p.group.ReadIndex(b.id)
	if !p.group.Single() { // the others are asked, and asked again with every heartbeat
		b.until = time.Now().Add(p.cfg.MaxWait)
		p.waiting.arm()
	}
}

// dispatch gives the read workers the batches whose index is known and visible, and
// answers the oracle's questions for the mark, which need no worker.
func (r *reads) dispatch() {
	p := r.proposer
	for b := r.indexes.next(p.group); b != nil; b = r.indexes.next(p.group) {
		// The range or the replicas have changed while the index was awaited.
		if b.epoch != p.descriptor.Epoch {
			b.calls = p.stillOurs(b.calls)
		}
		reads := b.calls[:0] // the batch is the tablet's own
		for _, call := range b.calls {
			if _, ok := call.Req.Op.(*pb.TabletRequest_Mark); ok {
				call.Reply(markResponse(p.group.Term(), p.mark))
				continue
			}
			reads = append(reads, call)
		}
		r.queue.add(reads, p.descriptor.Epoch)
		r.submit()
	}
}

// readIndexes are the batches that wait for their ReadIndex, in the order of their ids.
// Only the tablet's turns touch them.
type readIndexes struct {
	batches []*readBatch
	last    uint64 // id that was given to one
}

// add gives the batch its id and keeps it.
func (q *readIndexes) add(b *readBatch) {
	q.last++
	b.id = q.last
	q.batches = append(q.batches, b)
}

// answered records the index of a ReadIndex that has returned. A batch that has gone
// meanwhile is not found. 0 means unknown, so the index is 1 at least.
func (q *readIndexes) answered(r group.Read) {
	for _, b := range q.batches {
		if b.id == r.ID {
			b.index = max(r.Index, 1)
		}
	}
}

// next removes and returns the first batch whose index is known and visible, or nil.
func (q *readIndexes) next(g *group.Group) *readBatch {
	for i, b := range q.batches {
		if b.index != 0 && g.CaughtUp(b.index) {
			q.batches = slices.Delete(q.batches, i, i+1)
			return b
		}
	}
	return nil
}

// expired removes and returns the batches whose wait has run out, and reports whether
// others that may run out still wait. Those of a single voter have no limit: nobody else
// is asked.
func (q *readIndexes) expired(now time.Time) (expired []*readBatch, waiting bool) {
	q.batches = slices.DeleteFunc(q.batches, func(b *readBatch) bool {
		if b.until.IsZero() || now.Before(b.until) {
			waiting = waiting || !b.until.IsZero()
			return false
		}
		expired = append(expired, b)
		return true
	})
	return expired, waiting
}
