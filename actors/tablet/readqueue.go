package tablet

import (
	"iter"
	"sync/atomic"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// A readQueue holds the reads whose index is visible until a read worker can take them.
// It belongs to its tablet and is used in the tablet's turns, except for the two
// counters, which the workers share.
//
// At most maxReadJobs of the tablet's jobs are in the pool. The calls beyond that stay
// here, without a capture, within the QueueLimit of the tablet's port, where they count
// until they are answered. When the workers have done half of the jobs, the tablet gets a
// readersFree message and submits more: what has gathered meanwhile shares one capture.
type readQueue struct {
	*readLane
	calls []*Call
	epoch uint64 // the calls were checked under it

	unfinished atomic.Int32 // jobs of this queue in the pool, those under way included
	wanted     atomic.Bool  // the tablet is to be told when half of them are done
}

const (
	maxReadJobs  = 64
	maxReadCalls = 32 // calls in one job
)

// readersFree tells a tablet that the pool has done half of its jobs.
type readersFree struct{}

// add appends reads that were checked under the epoch. The queue keeps the epoch of its
// oldest calls: if it is an older one, submitJobs checks all of them again.
func (q *readQueue) add(reads []*Call, epoch uint64) {
	if len(q.calls) == 0 {
		q.calls, q.epoch = reads, epoch
		return
	}
	q.calls = append(q.calls, reads...)
}

// room reports whether another job may be submitted.
func (q *readQueue) room() bool { return q.unfinished.Load() < maxReadJobs }

// finished counts a job that a worker has done, on the worker's goroutine. Of the workers
// that see room, one sends the message.
func (q *readQueue) finished(t *Tablet) {
	if q.unfinished.Add(-1) <= maxReadJobs/2 && q.wanted.CompareAndSwap(true, false) {
		t.root.Send(t.self, &readersFree{})
	}
}

// wait asks to be told of room and reports true, or reports false if there is room by
// now: then perhaps no further job ends that could tell.
func (q *readQueue) wait() bool {
	q.wanted.Store(true)
	return q.unfinished.Load() > maxReadJobs/2 || !q.wanted.CompareAndSwap(true, false)
}

// submitReads gives the workers as many of the due reads as they have room for, and asks
// to be told when there is more.
func (t *Tablet) submitReads() {
	q := &t.reads
	for len(q.calls) > 0 {
		if q.room() {
			t.submitJobs()
		}
		if len(q.calls) > 0 && q.wait() {
			return
		}
	}
	// The empty slice would keep the array of a long one.
	q.calls = nil
}

// submitJobs captures what the reads are answered from and makes jobs of them. The order
// matters (design section 5): the term, the epoch and the lock view first, in this turn,
// then the Badger Txn, on the worker.
func (t *Tablet) submitJobs() {
	q := &t.reads
	if q.epoch != t.descriptor.Epoch {
		q.calls, q.epoch = t.stillOurs(q.calls), t.descriptor.Epoch
	}
	if len(q.calls) == 0 {
		return
	}
	c, err := t.memory.Capture(t.descriptor, requestsOf(q.calls))
	if err != nil {
		t.fail(err)
		return
	}
	for jobs := (len(q.calls) + maxReadCalls - 1) / maxReadCalls; jobs > 0 && q.room(); jobs-- {
		n := (len(q.calls) + jobs - 1) / jobs // of equal size: the workers end together
		job := &readJob{
			tablet: t, term: t.group.Term(), epoch: t.descriptor.Epoch, capture: c,
			calls: q.calls[:n:n],
		}
		q.calls = q.calls[n:]
		q.unfinished.Add(1)
		q.submit(job)
	}
}

func requestsOf(calls []*Call) iter.Seq[*pb.TabletRequest] {
	return func(yield func(*pb.TabletRequest) bool) {
		for _, call := range calls {
			if !yield(call.Req) {
				return
			}
		}
	}
}
