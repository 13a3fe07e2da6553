package reads

import (
	"math"
	"slices"
	"sync"
)

// Pool is a node's read workers. They answer reads off the tablets' goroutines, and do other
// reading for tablets: surveys, measurements, confirmations, counts. All tablets share one
// pool, and each has lanes of its own in it, so that no tablet's reads wait behind another's.
// Submitting a job never blocks. A Pool is safe for concurrent use.
type Pool struct {
	reads, background *workers
}

// Waiting returns how many jobs no worker has begun, in the lanes for reads and in those for
// background work.
func (p *Pool) Waiting() (reads, background int) { return p.reads.waiting(), p.background.waiting() }

// Lanes returns new lanes of a tablet, for reads and for background work.
func (p *Pool) Lanes() (reads, background *Lane) { return p.reads.lane(), p.background.lane() }

// workers are goroutines that serve the lanes in turn, one job of each.
type workers struct {
	done sync.WaitGroup

	mu     sync.Mutex
	some   *sync.Cond // a lane has jobs, or the end has come
	lanes  []*Lane    // those with jobs, in the order in which they are served
	closed bool
}

// Lane is one tablet's queue for some workers.
type Lane struct {
	workers *workers
	jobs    []Job // the workers' mu protects it
}

// maxLaneJobs is how many jobs a lane may hold before TrySubmit refuses another.
const maxLaneJobs = 256

// Job is a piece of reading. Run is called once, on a worker's goroutine; it must not wait for
// a tablet.
type Job interface{ Run() }

// NewPool starts n workers for reads and n/4, at least one, for background work. Close joins
// them.
func NewPool(n int) *Pool {
	return &Pool{reads: newWorkers(n), background: newWorkers(max(n/4, 1))}
}

// Close ends the workers once the queued jobs are done. No tablet may submit any more.
func (p *Pool) Close() {
	p.reads.close()
	p.background.close()
}

func newWorkers(n int) *workers {
	w := &workers{}
	w.some = sync.NewCond(&w.mu)
	for range n {
		w.done.Go(func() {
			for j := w.next(); j != nil; j = w.next() {
				j.Run()
			}
		})
	}
	return w
}

// lane returns a new, empty lane.
func (w *workers) lane() *Lane { return &Lane{workers: w} }

// Submit queues a job. The caller limits how many of its kind there are.
func (l *Lane) Submit(j Job) { l.add(j, math.MaxInt) }

// TrySubmit is like Submit, for jobs whose number nobody limits. It reports false if the lane
// holds maxLaneJobs jobs.
func (l *Lane) TrySubmit(j Job) bool { return l.add(j, maxLaneJobs) }

func (l *Lane) add(j Job, most int) bool {
	w := l.workers
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(l.jobs) >= most {
		return false
	}
	// A lane is in the ring while it has jobs, and only once.
	if l.jobs = append(l.jobs, j); len(l.jobs) == 1 {
		w.lanes = append(w.lanes, l)
	}
	w.some.Signal()
	return true
}

// next waits for a job. It returns nil after close, once no lane has one.
func (w *workers) next() Job {
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
	j := l.jobs[0]
	if l.jobs = slices.Delete(l.jobs, 0, 1); len(l.jobs) > 0 {
		w.lanes = append(w.lanes, l)
	}
	return j
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
