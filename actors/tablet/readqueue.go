package tablet

import (
	"slices"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// A readQueue holds the reads whose index is visible until a read worker can take them.
// Only the tablet's turns touch it.
//
// At most maxReadJobs of the tablet's jobs are in the pool. The calls beyond that stay
// here, without a capture, within the QueueLimit of the tablet's port, where they count
// until they are answered. When the workers have done half of the jobs, the tablet gets a
// readersFree message and submits more: what has gathered meanwhile shares one capture.
type readQueue struct {
	*readLane
	calls []*Call
	epoch uint64 // the calls were checked under it
}

const (
	maxReadJobs  = 64
	maxReadCalls = 32 // calls in one job
)

// readersFree tells a tablet that the pool has done half of its jobs.
type readersFree struct{}

// add appends reads that were checked under the epoch. The queue keeps the epoch of its
// oldest calls: if it is an older one, submit checks all of them again.
func (q *readQueue) add(reads []*Call, epoch uint64) {
	if len(q.calls) == 0 {
		q.calls, q.epoch = reads, epoch
		return
	}
	q.calls = append(q.calls, reads...)
}

// room reports whether another job may be submitted.
func (s *served) room() bool { return s.unfinished.Load() < maxReadJobs }

// finished counts a job that a worker has done, on the worker's goroutine. Of the workers
// that see room, one sends the message.
func (s *served) finished() {
	if s.unfinished.Add(-1) <= maxReadJobs/2 && s.wanted.CompareAndSwap(true, false) {
		s.self.send(&readersFree{})
	}
}

// wait asks to be told of room and reports true, or reports false if there is room by
// now: then perhaps no further job ends that could tell.
func (s *served) wait() bool {
	s.wanted.Store(true)
	return s.unfinished.Load() > maxReadJobs/2 || !s.wanted.CompareAndSwap(true, false)
}

// submit gives the workers as many of the queued reads as they have room for, and asks to
// be told when there is more.
func (r *reads) submit() {
	q, p := &r.queue, r.proposer
	if epoch := p.descriptor.Epoch; q.epoch != epoch {
		q.calls, q.epoch = p.stillOurs(q.calls), epoch
	}
	for len(q.calls) > 0 {
		if r.room() {
			if err := r.submitJobs(); err != nil {
				p.fail(err)
				return
			}
		}
		if len(q.calls) > 0 && r.wait() {
			return
		}
	}
	// The empty slice would keep the array of a long one.
	q.calls = nil
}

// submitJobs captures what the reads are answered from and makes jobs of them. The order
// matters (design section 5): the term, the epoch and the lock view first, in this turn,
// then the Badger Txn, on the worker.
func (r *reads) submitJobs() error {
	q, p := &r.queue, r.proposer
	r.prepareShown(q.calls)
	view := p.memory.Capture(p.descriptor)
	for _, call := range q.calls {
		if err := p.memory.Add(&view, call.Req); err != nil {
			return err
		}
	}
	for jobs := (len(q.calls) + maxReadCalls - 1) / maxReadCalls; jobs > 0 && r.room(); jobs-- {
		n := (len(q.calls) + jobs - 1) / jobs // of equal size: the workers end together
		job := &readJob{
			tablet: r.served, term: p.group.Term(), epoch: p.descriptor.Epoch, view: view,
			calls: q.calls[:n:n],
		}
		q.calls = q.calls[n:]
		r.unfinished.Add(1)
		q.submit(job)
	}
	return nil
}

// prepareShown tells the memory of the commits under way that notify, if somebody asks what a
// snapshot shows. It gets a timestamp of the oracle's if this leadership has been given none
// yet: it knows the runs that end later. Who asks is told so by then, or next time.
func (r *reads) prepareShown(calls []*Call) {
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
	if now, ok := p.host.TimestampsNow(1); ok {
		p.memory.Took(now)
		return
	}
	m := &tookTime{term: p.group.Term()}
	p.host.Timestamps(1, func(first mvcc.Timestamp, err error) {
		if err == nil {
			m.now = first
			r.self.send(m)
		}
	})
}

// tookTime is a timestamp that a leader has asked for in a term.
type tookTime struct {
	term uint64
	now  mvcc.Timestamp
}
