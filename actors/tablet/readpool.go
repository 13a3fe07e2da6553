package tablet

import (
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/percolator-go/percolator/actors/tablet/memory"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/evaluate"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/store"
)

// This file has the read workers of a node and what they do for a read. The pool's own
// mutex guards the lanes; tablets submit in their turns and never wait, workers take jobs
// on their own goroutines and never wait for a tablet. A job owns its calls until it has
// answered them or sent them back. Of its tablet it has what is served.

// ReadPool is the node's read workers. They answer reads off the tablets' goroutines, and
// do what else tablets want to have read: surveys, confirmations, counts. All tablets
// share one pool, and each has lanes of its own in it, so that one tablet's reads do not
// stand in front of another's. Submitting never waits: a tablet has Raft's messages and
// its ticks to see to.
type ReadPool struct {
	reads, background *readWorkers
}

// readWorkers are goroutines that serve the lanes in turn, one job of each.
type readWorkers struct {
	done sync.WaitGroup

	mu     sync.Mutex
	some   *sync.Cond  // a lane has jobs, or the end has come
	lanes  []*readLane // those with jobs, in the order in which they are served
	closed bool
}

// readLane is one tablet's queue for some workers.
type readLane struct {
	workers *readWorkers
	jobs    []job // the workers' mu protects it
}

// maxLaneJobs is how many jobs a lane may hold before trySubmit refuses another.
const maxLaneJobs = 256

// job is a piece of reading. It must not wait for a tablet.
type job interface{ run() }

// readJob is a part of a read batch, with the view that it is answered from.
type readJob struct {
	tablet *served
	term   uint64
	epoch  uint64
	view   memory.ReadView
	calls  []*Call
}

// indexJob works on the notification index.
type indexJob struct {
	tablet *mailbox
	job    memory.Job
}

// run works on a background worker. The result goes back in the same message.
func (j *indexJob) run() {
	j.job.Run()
	j.tablet.send(j.job)
}

// NewReadPool starts n workers for reads and a quarter as many, at least one, for what is
// in no hurry; Close joins them.
func NewReadPool(n int) *ReadPool {
	return &ReadPool{reads: newReadWorkers(n), background: newReadWorkers(max(n/4, 1))}
}

// Close ends the workers after the jobs that are queued. No tablet may submit any more.
func (p *ReadPool) Close() {
	p.reads.close()
	p.background.close()
}

func newReadWorkers(n int) *readWorkers {
	w := &readWorkers{}
	w.some = sync.NewCond(&w.mu)
	for range n {
		w.done.Go(func() {
			for j := w.next(); j != nil; j = w.next() {
				j.run()
			}
		})
	}
	return w
}

// lane returns a new, empty lane.
func (w *readWorkers) lane() *readLane { return &readLane{workers: w} }

// submit queues a job. The caller limits how many of its kind there are.
func (l *readLane) submit(j job) { l.add(j, math.MaxInt) }

// trySubmit is like submit, for jobs whose number nobody limits. It reports whether the
// lane has taken the job.
func (l *readLane) trySubmit(j job) bool { return l.add(j, maxLaneJobs) }

func (l *readLane) add(j job, most int) bool {
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
func (w *readWorkers) next() job {
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

func (w *readWorkers) close() {
	w.mu.Lock()
	w.closed = true
	w.some.Broadcast()
	w.mu.Unlock()
	w.done.Wait()
}

// run answers the calls. The order matters (design section 5): the term first, so as not
// to read in vain; then the Txn, which is newer than the capture; then the epoch, as it
// is in the Txn, and the safepoint, as it is known by then; and at last, before each
// answer that was read, the term again.
func (j *readJob) run() {
	defer j.tablet.finished()
	if j.tablet.term.Load() != j.term {
		for _, call := range j.calls {
			call.Reply(j.lostLeadership())
		}
		return
	}
	snap := j.openSnap()
	defer snap.Close()
	if refusal := j.check(snap); refusal != nil {
		for _, call := range j.calls {
			call.Reply(refusal)
		}
		return
	}
	j.view.Open(snap, mvcc.Timestamp(j.tablet.safepoint.Load()))
	var blocked []waiter
	now := time.Now()
	for _, call := range j.calls {
		if tooLate(call, &now) {
			continue
		}
		j.view.Begin(call.Req)
		response, met, err := j.evaluate(call)
		switch {
		case err != nil:
			call.Reply(j.failed(call.Req, err))
		// It met a reservation: the tablet knows whether that still stands.
		case met != nil:
			blocked = append(blocked, waiter{call, metBy(met)})
		case j.tablet.term.Load() != j.term:
			call.Reply(j.lostLeadership())
		default:
			j.tablet.traces.Served(call.Req, "percolator.serve", now).End()
			call.Reply(wire.Capped(call.Req, response))
		}
	}
	j.tablet.took.Since(now)
	if len(blocked) > 0 {
		j.tablet.self.send(&blockedReads{waiters: blocked})
	}
}

// openSnap opens the Snap that the calls are answered from. Only a history shows locks as the
// store has them.
func (j *readJob) openSnap() *store.Snap {
	for _, call := range j.calls {
		if call.Req.GetHistory() != nil {
			return j.tablet.store.SnapWithLocks()
		}
	}
	return j.tablet.store.Snap()
}

func (j *readJob) lostLeadership() *pb.TabletResponse {
	return failure(pb.Error_CODE_NOT_LEADER, "tablet %d lost its leadership", j.tablet.id)
}

// failed returns the answer to a read that could not be evaluated.
func (j *readJob) failed(req *pb.TabletRequest, err error) *pb.TabletResponse {
	var noRoom *memory.NoRoomError
	if errors.As(err, &noRoom) {
		return wire.NoRoom(req, noRoom.Needs+j.beside(req))
	}
	if r := evaluate.Refusal(err); r != nil {
		return r
	}
	return j.unread(err)
}

// unread returns the answer to what the store could not read. If the store can read
// nothing any more, the replica stops, so that another one may serve.
func (j *readJob) unread(err error) *pb.TabletResponse {
	code := pb.Error_CODE_INTERNAL
	if errors.Is(err, store.ErrFailed) {
		code = pb.Error_CODE_UNAVAILABLE
		j.tablet.self.send(&storeFailed{err})
	}
	return failure(code, "tablet %d could not read its store: %v", j.tablet.id, err)
}

// storeFailed tells a tablet that its store can be read no more.
type storeFailed struct{ err error }

// beside returns how many bytes an answer may take beside the values for which there was
// no room, since there may be more of them. Each try has at least twice the room of the
// one before, up to what one answer holds.
func (j *readJob) beside(req *pb.TabletRequest) int {
	cells := len(req.GetGet().GetCells())
	n := cells*wire.ResultMemory + wire.AnswerOverhead
	if cells != 1 {
		n += min(int(req.MaxAnswerBytes), j.tablet.limits.Batch)
	}
	return n
}

// evaluate answers one read. A panic costs that read only, not the process.
func (j *readJob) evaluate(call *Call) (r *pb.TabletResponse, met *mvcc.Lock, err error) {
	defer func() {
		if p := recover(); p != nil {
			j.tablet.logger.Error("a read panicked", "tablet", j.tablet.id, "panic", p, "stack",
				string(debug.Stack()))
			err = fmt.Errorf("%w: %v", ErrPanic, p)
		}
	}()
	r, met, err = evaluate.Read(&j.view, call.Req, j.readAt(call))
	j.tablet.traces.Tell(r.GetWalk())
	return r, met, err
}

// check looks in the snap whether the epoch is still that of the capture: a split that came
// in between has given part of the range to a tablet whose locks are not in the captured
// view. A change of replicas raises the epoch too, and then only costs another try.
func (j *readJob) check(snap *store.Snap) *pb.TabletResponse {
	a, ok, err := snap.Applied(j.tablet.id)
	switch {
	case err != nil:
		return j.unread(err)
	case !ok:
		return failure(pb.Error_CODE_INTERNAL, "tablet %d has no state in its store", j.tablet.id)
	case a.Epoch != j.epoch:
		return failure(pb.Error_CODE_NOT_PROPOSED, "tablet %d was split, or changed its replicas, meanwhile; try again",
			j.tablet.id)
	}
	return nil
}
