package tablet

import (
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/broken"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/store"
)

// ReadPool is the node's read workers: they answer reads off the tablets' goroutines. All tablets share one pool.
type ReadPool struct {
	jobs chan job
	done sync.WaitGroup
}

// job is a piece of reading: it must not wait for a tablet.
type job interface{ run() }

// readJob is a part of a read batch, with what it is answered from.
type readJob struct {
	capture
	calls []*Call
}

// NewReadPool starts n workers; Close joins them.
func NewReadPool(n int) *ReadPool {
	p := &ReadPool{jobs: make(chan job, 256)}
	for range n {
		p.done.Go(func() {
			for j := range p.jobs {
				j.run()
			}
		})
	}
	return p
}

// submit may wait for a free worker: workers never wait for a tablet.
func (p *ReadPool) submit(j job) { p.jobs <- j }

// Close ends the workers after the jobs that are there. No tablet may submit any more.
func (p *ReadPool) Close() {
	close(p.jobs)
	p.done.Wait()
}

func (j *readJob) run() {
	snap := j.snap
	if snap == nil {
		snap = j.tablet.store.Snap()
		defer snap.Close()
	}
	if refusal := j.check(snap); refusal != nil {
		for _, call := range j.calls {
			call.Reply(refusal)
		}
		return
	}
	view := &readView{Snap: snap, capture: j.capture}
	// Whatever the Txn lacks because it was collected, the safepoint was raised before.
	if !broken.StaleBound {
		view.bound = max(view.bound, mvcc.Timestamp(j.tablet.seenSafepoint.Load()))
	}
	var blocked []waiter
	now := time.Now()
	for _, call := range j.calls {
		if tooLate(call, now) {
			continue
		}
		view.forCall(call.Req)
		response, met, err := j.answer(view, call)
		switch {
		case err != nil:
			call.Reply(j.failed(call.Req, err))
		case met.token != 0:
			blocked = append(blocked, waiter{call, met})
		case j.tablet.servedTerm.Load() != j.term:
			call.Reply(failure(pb.Error_CODE_NOT_LEADER, "tablet %d lost its leadership", j.tablet.id))
		default:
			call.Reply(wire.Capped(call.Req, response))
		}
	}
	if len(blocked) > 0 {
		j.tablet.root.Send(j.tablet.self, &blockedReads{waiters: blocked})
	}
}

// failed is the answer to a read that could not be evaluated.
func (j *readJob) failed(req *pb.TabletRequest, err error) *pb.TabletResponse {
	var noRoom *errNoRoom
	if errors.As(err, &noRoom) {
		return wire.NoRoom(req, noRoom.needs+j.beside(req))
	}
	if r := invalid(err); r != nil {
		return r
	}
	return failure(pb.Error_CODE_INTERNAL, "tablet %d could not read its store: %v", j.tablet.id, err)
}

// beside is what an answer may take beside the values for which there was no room: there may be more of them. Each try has
// at least twice the room of the one before, up to what one answer holds.
func (j *readJob) beside(req *pb.TabletRequest) int {
	cells := len(req.GetGet().GetCells())
	n := cells*wire.ResultMemory + wire.AnswerOverhead
	if cells != 1 {
		n += min(int(req.MaxAnswerBytes), j.tablet.cfg.Limits.Batch)
	}
	return n
}

// answer is the function answer, but a panic costs its own read only, not the process.
func (j *readJob) answer(v *readView, call *Call) (r *pb.TabletResponse, met obstacle, err error) {
	defer func() {
		if p := recover(); p != nil {
			j.tablet.cfg.Logger.Error("a read panicked", "tablet", j.tablet.id, "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("%w: %v", ErrPanic, p)
		}
	}()
	return answer(v, call)
}

// check looks inside the Txn whether the range and the bound are still those of the capture: a split that came in between
// has given part of the range to a tablet whose locks are not in the captured view.
func (j *readJob) check(snap *store.Snap) *pb.TabletResponse {
	a, ok, err := snap.Applied(j.tablet.id)
	switch {
	case err != nil || !ok:
		return failure(pb.Error_CODE_INTERNAL, "tablet %d could not read its state: %v", j.tablet.id, err)
	case a.Epoch != j.epoch:
		return failure(pb.Error_CODE_NOT_PROPOSED, "tablet %d was split meanwhile; try again", j.tablet.id)
	}
	return nil
}
