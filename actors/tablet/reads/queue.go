package reads

import "github.com/percolator-go/percolator/actors/tablet/memory"

// Queue holds the reads whose index is visible until a read worker has room for them. Only the
// tablet's turns use it.
//
// At most MaxJobs of the tablet's jobs are in the pool. Further calls stay here, without a
// capture, within the QueueLimit of the tablet's port, which counts them until they are answered.
// When at most MaxJobs/2 are left, the tablet receives a WorkersFree message and submits more: the
// calls that have arrived in between share one capture.
type Queue struct {
	shared *Shared
	lane   *Lane
	calls  []*Call
	epoch  uint64 // the calls were checked under it
}

// NewQueue returns an empty queue that submits to the lane.
func NewQueue(shared *Shared, lane *Lane) Queue { return Queue{shared: shared, lane: lane} }

const (
	// MaxJobs is the maximum number of a tablet's jobs in the pool.
	MaxJobs = 64
	// MaxCalls is the maximum number of calls in one job.
	MaxCalls = 32
)

// WorkersFree reports to a tablet that at most MaxJobs/2 of its jobs are left in the pool.
type WorkersFree struct{}

// Calls returns the calls, in order.
func (q *Queue) Calls() []*Call { return q.calls }

// Clear removes all calls and returns them.
func (q *Queue) Clear() []*Call {
	calls := q.calls
	q.calls = nil
	return calls
}

// Add appends reads that were checked under the epoch. The queue keeps the epoch of its oldest
// calls.
func (q *Queue) Add(reads []*Call, epoch uint64) {
	if len(q.calls) == 0 {
		q.calls, q.epoch = reads, epoch
		return
	}
	q.calls = append(q.calls, reads...)
}

// Recheck applies filter, which removes calls that may no longer be evaluated, if the calls were
// checked under another epoch.
func (q *Queue) Recheck(epoch uint64, filter func([]*Call) []*Call) {
	if q.epoch != epoch {
		q.calls, q.epoch = filter(q.calls), epoch
	}
}

// Submit converts the calls into jobs, as many as the workers can queue. view was captured in this
// turn and contains the state that the calls need. The order matters (design section 5): the term,
// the epoch and the view first, in this turn, then the Badger Txn, on the worker.
func (q *Queue) Submit(view memory.ReadView, term uint64) {
	for jobs := (len(q.calls) + MaxCalls - 1) / MaxCalls; jobs > 0 && q.Room(); jobs-- {
		n := (len(q.calls) + jobs - 1) / jobs // of equal size, so that the workers finish together
		j := &job{shared: q.shared, term: term, epoch: q.epoch, view: view, calls: q.calls[:n:n]}
		q.calls = q.calls[n:]
		q.shared.unfinished.Add(1)
		q.lane.Submit(j.Run)
	}
}

// Room reports whether another job may be submitted.
func (q *Queue) Room() bool { return q.shared.unfinished.Load() < MaxJobs }

// AwaitRoom requests a WorkersFree message and returns true. If at most MaxJobs/2 jobs are left in
// the pool it returns false instead, because the message is sent at the end of a job, and there may
// be none.
func (q *Queue) AwaitRoom() bool {
	s := q.shared
	s.wanted.Store(true)
	return s.unfinished.Load() > MaxJobs/2 || !s.wanted.CompareAndSwap(true, false)
}
