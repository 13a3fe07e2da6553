package tablet

import (
	"slices"
	"time"

	"github.com/percolator-go/percolator/actors/tablet/memory"
	"github.com/percolator-go/percolator/actors/tablet/reads"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
)

// Reads, from their batch to the queue of the read workers. The reads of a batch share one
// ReadIndex: the group confirms that this replica still leads, and returns the index that
// the reads must see; they continue when it is visible. Any number of batches may wait so,
// within the port's QueueLimit, and a sweep ends waits that are never confirmed. All of it
// runs in the tablet's turns.

// readStages are a tablet's reads before they reach the read workers, in the order of the
// stages. A read is in one stage at a time; one that encounters a reservation returns and
// waits (waiting.go).
type readStages struct {
	*reads.Shared
	proposer   *proposer     // checks the reads; workers must not use it
	first      firstReads    // waiting for a timestamp
	indexes    reads.Indexes // waiting for their ReadIndex, and for it to be visible
	queue      reads.Queue   // waiting for a worker
	background *reads.Lane   // surveys, measurements, confirmations and counts
}

func newReadStages(t *Tablet, pool *reads.Pool) readStages {
	shared := reads.NewShared(reads.Config{
		Tablet: t.id, Store: t.store, Limits: t.cfg.Limits, Logger: t.cfg.Logger, Send: t.self.send,
		Took: &t.cfg.Metrics.Reads, Feed: &t.cfg.Metrics.Feed, Traces: t.cfg.Traces,
	})
	lane, background := pool.Lanes()
	return readStages{
		proposer: &t.proposer, Shared: shared, queue: reads.NewQueue(shared, lane), background: background,
	}
}

// clear removes and returns the reads in all stages. Those that a worker has, or that the oracle
// was asked a timestamp for, are in none.
func (r *readStages) clear() [][]*Call {
	calls := append(r.indexes.Clear(), r.first.calls, r.queue.Clear())
	r.first.calls = nil
	return calls
}

// ask requests the index that the calls must see from Raft. The calls must have been checked
// in this turn.
func (r *readStages) ask(calls []*Call) {
	if len(calls) == 0 {
		return
	}
	p := r.proposer
	p.counters.reads += uint64(len(calls))
	b := &reads.Batch{Epoch: p.descriptor.Epoch, Calls: calls}
	switch leased := p.group.ReadIndex(r.indexes.Add(b)); {
	case leased:
		p.cfg.Metrics.LeaseReads.Add(1)
	case !p.group.Single(): // the others are asked, again with every heartbeat
		p.cfg.Metrics.QuorumReads.Add(1)
		b.Until = time.Now().Add(p.cfg.MaxWait)
		p.waiting.arm()
	}
}

// dispatch passes the batches whose index is visible to the read workers, and answers the
// oracle's requests for the mark, which need no worker.
func (r *readStages) dispatch() {
	p := r.proposer
	for b := r.indexes.Next(p.group); b != nil; b = r.indexes.Next(p.group) {
		// The range or the replicas have changed since the index was requested.
		if b.Epoch != p.descriptor.Epoch {
			b.Calls = p.filterServable(b.Calls)
		}
		rest := b.Calls[:0] // the tablet owns the batch
		for _, call := range b.Calls {
			if _, ok := call.Req.Op.(*pb.TabletRequest_Mark); ok {
				call.Reply(markResponse(p.group.Term(), p.mark))
				continue
			}
			call.Span.Event("read index")
			rest = append(rest, call)
		}
		r.queue.Add(rest, p.descriptor.Epoch)
		r.submit()
	}
}

// submit passes as many queued reads to the workers as they have room for. If some are left, it
// requests a message for when there is more room.
func (r *readStages) submit() {
	q, p := &r.queue, r.proposer
	q.Recheck(p.descriptor.Epoch, p.filterServable)
	for len(q.Calls()) > 0 {
		if q.Room() {
			view, err := r.capture(q.Calls())
			if err != nil {
				p.fail(err)
				return
			}
			q.Submit(view, p.group.Term())
		}
		if len(q.Calls()) > 0 && q.AwaitRoom() {
			return
		}
	}
	q.Clear() // the empty slice would retain a large array
}

// capture captures the state that the calls read from.
func (r *readStages) capture(calls []*Call) (memory.ReadView, error) {
	r.prepareShown(calls)
	p := r.proposer
	view := p.memory.Capture(p.descriptor)
	for _, call := range calls {
		if err := p.memory.Add(&view, call.Req); err != nil {
			return view, err
		}
	}
	return view, nil
}

// prepareShown informs the memory of the commits under way that notify, if a call requests
// what a snapshot shows. It requests a timestamp from the oracle if this leadership has none
// yet: the memory knows all runs that end above it. If the timestamp arrives too late for this
// response, the next one uses it.
func (r *readStages) prepareShown(calls []*Call) {
	p := r.proposer
	asked := slices.ContainsFunc(calls, func(c *Call) bool {
		return c.Req.GetPending().GetEffects().GetShown()
	})
	if !asked {
		return
	}
	p.memory.Notifying = p.memory.Notifying[:0]
	for _, o := range p.reservations.held {
		if len(o.request.Notifies) > 0 {
			p.memory.Notifying = append(p.memory.Notifying, o.commitTS)
		}
	}
	if p.memory.KnowsRuns() {
		return
	}
	term := p.group.Term()
	p.withTimestamp(func(now mvcc.Timestamp) {
		if p.leading && p.group.Term() == term {
			p.memory.Took(now)
		}
	})
}
