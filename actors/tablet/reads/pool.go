package reads

import (
	"math"
	"slices"
	"sync"
)

// Pool is a node's read workers. They answer reads off the tablets' goroutines, and do other
// reading for tablets: surveys, measurements, confirmations, counts. All tablets share one pool,
// and each has lanes of its own in it, which are served in turn: no tablet's reads wait for all of
// another's.
// Submitting a job never blocks. A Pool is safe for concurrent use.
type Pool struct {
	reads, background *workers
}

// Waiting returns the number of jobs not yet begun, in the lanes for reads and in those for
// background work.
func (p *Pool) Waiting() (reads, background int) { return p.reads.waiting(), p.background.waiting() }

// Lanes returns a tablet's new lanes, for reads and for background work.
func (p *Pool) Lanes() (reads, background *Lane) {
	return &Lane{workers: p.reads}, &Lane{workers: p.background}
}

// workers are goroutines that serve the lanes round-robin, one job of each.
type workers struct {
	done sync.WaitGroup

	mu     sync.Mutex
	some   *sync.Cond // a lane has jobs, or the workers are closed
	lanes  []*Lane    // lanes with jobs, in the order of service
	closed bool
}

// Lane is one tablet's queue for a set of workers.
type Lane struct {
	workers *workers
	jobs    []func() // guarded by the workers' mu
}

// maxLaneJobs is the number of jobs in a lane from which TrySubmit refuses another.
const maxLaneJobs = 256

// NewPool starts n workers for reads and n/4, at least one, for background work. Close joins
// them.
func NewPool(n int) *Pool {
	return &Pool{reads: newWorkers(n), background: newWorkers(max(n/4, 1))}
}

// Close stops the workers once the queued jobs are done. No tablet may submit any more.
func (p *Pool) Close() {
	p.reads.close()
	p.background.close()
}

func newWorkers(n int) *workers {
	w := &workers{}
	w.some = sync.NewCond(&w.mu)
	for range n {
		w.done.Go(func() {
			for run := w.next(); run != nil; run = w.next() {
				run()
			}
		})
	}
	return w
}

// Submit queues a job, a function that a worker calls once and that must not wait for a tablet. The
// caller limits the number of its jobs.
func (l *Lane) Submit(job func()) { l.add(job, math.MaxInt) }

// TrySubmit is like Submit, for jobs whose number the caller does not limit. It returns false if
// the lane holds maxLaneJobs jobs or more.
func (l *Lane) TrySubmit(job func()) bool { return l.add(job, maxLaneJobs) }

func (l *Lane) add(job func(), most int) bool {
	w := l.workers
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(l.jobs) >= most {
		return false
	}
	// A lane with jobs is in the ring once.
	if l.jobs = append(l.jobs, job); len(l.jobs) == 1 {
		w.lanes = append(w.lanes, l)
	}
	w.some.Signal()
	return true
}

// next waits for a job. After close it returns nil once no lane has one.
func (w *workers) next() func() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.lanes) == 0 {
		if w.closed {
			return nil
		}
		w.some.Wait()
	}
	l := w.lanes[0]
	w.lanes = slices.Delete(w.lanes, 0, 1)
	job := l.jobs[0]
	if l.jobs = slices.Delete(l.jobs, 0, 1); len(l.jobs) > 0 {
		w.lanes = append(w.lanes, l)
	}
	return job
}

func (w *workers) waiting() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range w.lanes {
		n += len(l.jobs)
	}
	return n
}

func (w *workers) close() {
	w.mu.Lock()
	w.closed = true
	w.some.Broadcast()
	w.mu.Unlock()
	w.done.Wait()
}
