package replicas

import "sync"

// queue runs tasks on a few workers, in the order of push. It owns the tasks not yet begun. Any
// goroutine may push, even while it holds the mutex of a Set: tasks run without it.
type queue struct {
	workers sync.WaitGroup

	mu   sync.Mutex
	work sync.Cond // on mu: ready or closed has changed
	// At most one task of each tablet, and those of maxArrivals snapshots.
	ready  []func()
	closed bool
}

func newQueue() *queue {
	q := &queue{}
	q.work.L = &q.mu
	return q
}

// start starts the given number of workers, which close joins.
func (q *queue) start(workers int) {
	for range workers {
		q.workers.Go(q.run)
	}
}

// push runs the task on a worker. After close it never runs.
func (q *queue) push(task func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ready = append(q.ready, task)
	q.work.Signal()
}

// waiting returns the number of tasks not yet begun.
func (q *queue) waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.ready)
}

// run is a worker: it holds the mutex except while it runs a task.
func (q *queue) run() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		for len(q.ready) == 0 && !q.closed {
			q.work.Wait()
		}
		if q.closed {
			return
		}
		task := q.ready[0]
		q.ready = q.ready[1:]
		q.mu.Unlock()
		task()
		q.mu.Lock()
	}
}

// close stops the workers after the tasks that they have begun, and joins them.
func (q *queue) close() {
	q.mu.Lock()
	q.closed = true
	q.work.Broadcast()
	q.mu.Unlock()
	q.workers.Wait()
}
