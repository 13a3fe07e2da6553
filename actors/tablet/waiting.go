package tablet

import (
	"slices"
	"time"

	"github.com/percolator-go/percolator/actors/tablet/reads"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// Operations that cannot be judged yet. Each waits for one thing, its obstacle, and is
// evaluated again when that is gone; the wait is bounded by its deadline (boundWait), which
// the sweep enforces: a timer sends the message, the turn does the work. Reads return here
// from read workers as a message, all else happens in the tablet's turns.

// waiter is an operation that encountered a reservation, or effects in flight. It is
// evaluated again only when its obstacle is gone: however many operations wait for one busy
// cell, unrelated entries wake none of them.
type waiter struct {
	call *Call
	on   obstacle
}

// obstacle identifies what an operation waits for: a reservation, by start timestamp and token, or
// a proposal in flight. The zero value is already gone.
type obstacle struct {
	start mvcc.Timestamp
	token uint64
	// read is set for a read that encountered the reservation while the reservation's commit
	// timestamp was commitTS, 0 for none. Once that has changed, the read may pass the reservation.
	read     bool
	commitTS mvcc.Timestamp

	proposal uint64
}

// stands reports whether the obstacle still exists.
func (p *waitingOps) stands(on obstacle) bool {
	if on.token != 0 {
		o := p.reservations.held[on.start]
		return o != nil && o.token == on.token && (!on.read || o.commitTS == on.commitTS)
	}
	return p.pipeline.has(on.proposal)
}

// reserved returns the first reservation among the locks, or an obstacle without a token
// if there is none.
func reserved(locks []mvcc.LockInfo) obstacle {
	for i := range locks {
		if l := &locks[i].Lock; l.Token != 0 {
			return obstacle{start: l.StartTS, token: l.Token}
		}
	}
	return obstacle{}
}

// metBy returns the obstacle of a read blocked by the lock of a reservation.
func metBy(l *mvcc.Lock) obstacle {
	return obstacle{start: l.StartTS, token: l.Token, read: true, commitTS: l.CommitTS}
}

// waitingOps are the waiting operations, and the state of the sweep that limits their waits.
// Only the tablet's turns touch them.
type waitingOps struct {
	self         *mailbox
	maxWait      time.Duration // Config.MaxWait
	reservations *reservations // the obstacles
	pipeline     *pipeline

	mutations, reads []waiter
	sweeping         bool // a sweep is scheduled
}

func (p *waitingOps) len() int { return len(p.mutations) + len(p.reads) }

// expire removes and answers the operations whose deadline has passed.
func (p *waitingOps) expire(now time.Time, answer *pb.TabletResponse) {
	expired := func(w waiter) bool {
		if now.After(w.call.Deadline) {
			w.call.Reply(answer)
			return true
		}
		return false
	}
	p.mutations = slices.DeleteFunc(p.mutations, expired)
	p.reads = slices.DeleteFunc(p.reads, expired)
}

// freed removes and returns the calls whose obstacle is gone.
func (p *waitingOps) freed(waiting *[]waiter) (calls []*Call) {
	*waiting = slices.DeleteFunc(*waiting, func(w waiter) bool {
		if p.stands(w.on) {
			return false
		}
		calls = append(calls, w.call)
		return true
	})
	return calls
}

// hold parks the mutation until the obstacle is gone, for maxWait at most.
func (p *waitingOps) hold(call *Call, on obstacle) {
	boundWait(call, p.maxWait)
	p.mutations = append(p.mutations, waiter{call, on})
	p.arm()
}

// retryFreed evaluates again the calls whose obstacle is gone. They may encounter another obstacle.
func (t *Tablet) retryFreed() {
	if calls := t.waiting.freed(&t.waiting.mutations); len(calls) > 0 {
		t.inHand = append(t.inHand, calls...)
		t.mutate(t.filterServable(calls))
	}
	if calls := t.waiting.freed(&t.waiting.reads); len(calls) > 0 {
		t.inHand = append(t.inHand, calls...)
		t.reads.ask(t.filterServable(calls))
	}
}

// onBlockedReads retries immediately the reads whose reservation is gone already, and parks
// the rest.
func (t *Tablet) onBlockedReads(m *reads.Blocked) {
	var again []*Call
	for _, r := range m.Reads {
		t.inHand = append(t.inHand, r.Call)
	}
	for _, r := range m.Reads {
		w := waiter{r.Call, metBy(r.Met)}
		if !t.leading || !t.waiting.stands(w.on) {
			again = append(again, w.call) // refused by filterServable if this replica no longer leads
			continue
		}
		boundWait(w.call, t.cfg.MaxWait)
		t.waiting.reads = append(t.waiting.reads, w)
		t.waiting.arm()
	}
	t.reads.ask(t.filterServable(again))
	t.ready()
}

// retryWaiting evaluates the operations whose obstacle is gone and those that the pipeline now
// has room for, begins an exclusive whose barrier is reached, and handles Raft's output.
func (t *Tablet) retryWaiting() {
	t.retryFreed()
	t.takeHeld()
	t.tryExclusive()
	t.ready()
}

// sweep triggers the end of waits whose deadline has passed.
type sweep struct{}

const sweepInterval = 200 * time.Millisecond

// arm starts the timer of the next sweep, unless it is running. Every bounded wait calls
// it.
func (p *waitingOps) arm() {
	if p.sweeping {
		return
	}
	p.sweeping = true
	time.AfterFunc(sweepInterval, func() { p.self.send(&sweep{}) })
}

// onSweep ends overdue waits of operations for their obstacles, of requests for changes, of reads
// whose index was not confirmed or applied, and of one-phase commits without an answer from the
// oracle. It schedules the next sweep while anything waits.
func (t *Tablet) onSweep() {
	t.waiting.sweeping = false
	now := time.Now()
	t.waiting.expire(now, wire.Failure(pb.Error_CODE_NOT_PROPOSED,
		"tablet %d: waited too long for a commit in progress; try again", t.id))
	t.releaseChanges(now)
	t.retryWaiting() // a reservation released without an applied entry has woken nobody
	expired, asking := t.reads.indexes.Expired(now)
	for _, b := range expired {
		replyAll(b.Calls, wire.Failure(pb.Error_CODE_UNAVAILABLE,
			"tablet %d: leadership not confirmed, or the read's index not applied, within %v",
			t.id, t.cfg.MaxWait))
	}
	if asking {
		t.group.Wake() // a quiescent leader's requests were lost, or the others do not answer
		t.waiting.arm()
	}
	overdue, stamping := t.reservations.overdue(now)
	for _, o := range overdue {
		t.reservations.abandon(o, wire.Failure(pb.Error_CODE_NOT_PROPOSED,
			"tablet %d: no commit timestamp within %v; try again", t.id, t.cfg.MaxWait))
	}
	if len(overdue) > 0 {
		t.retryWaiting()
	}
	if stamping || t.waiting.len() > 0 || len(t.changes) > 0 {
		t.waiting.arm()
	}
}

// boundWait ends the call's wait at the latest when the duration most has passed from now. It moves
// the call's deadline earlier, never later. So the first wait counts, however often the call waits
// again.
func boundWait(call *Call, most time.Duration) {
	if limit := time.Now().Add(most); call.Deadline.IsZero() || call.Deadline.After(limit) {
		call.Deadline = limit
	}
}
