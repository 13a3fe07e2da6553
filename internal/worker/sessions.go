package worker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/rpc"
	"github.com/percolator-go/percolator/internal/txn"
)

// Which nodes the worker has sessions with. It keeps one with each node that it reaches, since a
// node hints only changes of the tablets that it leads. Addresses are those of the transport and
// those that the nodes announce. One session scans, which finds what was not hinted in all tablets; if it
// ends, another one takes over at once.

const (
	// lookPause is the longest pause between two looks for nodes, and lookTimeout bounds one.
	lookPause   = 5 * time.Second
	lookTimeout = 2 * time.Second
	// The pause before an address is tried again doubles with each consecutive failure, up to
	// maxRetryPause. Each actual pause is a random part of it, at least half.
	retryPause, maxRetryPause = 50 * time.Millisecond, 2 * time.Second
	// aliasPause is the maximum pause before another address of a connected node is tried again.
	aliasPause = 30 * time.Second
	// firstWithin is the time within which a node must accept the observers of a new worker.
	firstWithin = 15 * time.Second
)

// errAlias reports that the worker has a session with the node by another address.
var errAlias = errors.New("worker: another address of a connected node")

// attempt is the state of one address. Only the goroutine of serve uses it.
type attempt struct {
	running bool
	pause   time.Duration
	next    time.Time
}

// ended is the end of a session that was tried at an address.
type ended struct {
	addr   string
	served bool // the node had accepted the observers
	err    error
}

// serve opens sessions until ctx ends, which leaves them open. It returns an error if, while no
// session is open, a node refuses the worker, or none has accepted it within firstWithin.
func (w *worker) serve(ctx context.Context) error {
	began, served := time.Now(), false
	tries, ends := map[string]*attempt{}, make(chan ended)
	known := w.transport.Addresses()
	look := time.NewTimer(0)
	defer look.Stop()
	for {
		wait := lookPause
		for _, addr := range known {
			t := tries[addr]
			if t == nil {
				t = &attempt{}
				tries[addr] = t
			}
			switch left := time.Until(t.next); {
			case t.running:
			case left > 0:
				wait = min(wait, left)
			default:
				t.running = true
				w.running.Go(func() { w.try(addr, ends) })
			}
		}
		look.Reset(wait)
		select {
		case e := <-ends:
			served = served || e.served
			err := w.refusal(e.err, served || time.Since(began) < firstWithin)
			if err != nil && len(w.open()) == 0 {
				return err
			}
			// Logged are the end of a session that the node had accepted, and the first failed attempt at an
			// address.
			if t := tries[e.addr]; e.served || t.pause == 0 && !errors.Is(e.err, errAlias) {
				w.cfg.Client.Logger.Warn("worker: no session with a node; it is tried again", "address", e.addr,
					"error", e.err)
			}
			tries[e.addr].again(&e)
		case <-look.C:
			known = w.look(ctx, known)
		case <-ctx.Done():
			return nil
		}
	}
}

// try has one session at the address, and reports its end.
func (w *worker) try(addr string, ends chan<- ended) {
	served, err := w.session(addr)
	select {
	case ends <- ended{addr, served, err}:
	case <-w.life.Done():
	}
}

// again sets when the address is tried again: after a random time of half to all of the pause.
func (t *attempt) again(e *ended) {
	t.running = false
	switch {
	case errors.Is(e.err, errAlias):
		t.pause = aliasPause
	case e.served:
		t.pause = retryPause
	default:
		t.pause = min(max(2*t.pause, retryPause), maxRetryPause)
	}
	t.next = time.Now().Add(t.pause/2 + rand.N(t.pause/2+1))
}

// refusal returns err if trying again does not help. patient is false if no
// node has accepted the worker for so long that any error ends it.
func (w *worker) refusal(err error, patient bool) error {
	var refused *txn.ServerError
	final := errors.As(err, &refused) && !errors.Is(err, rpc.ErrOtherService) &&
		(refused.Code == pb.Error_CODE_INVALID || refused.Code == pb.Error_CODE_PERMISSION)
	switch {
	case final:
		return fmt.Errorf("worker: a node refuses the observers: %w", txn.MarkRefusal(err))
	case !patient && err != nil && !errors.Is(err, errAlias):
		return fmt.Errorf("worker: no node has accepted the observers within %v; the last error: %w",
			firstWithin, txn.MarkRefusal(err))
	}
	return nil
}

// look returns the addresses of the transport and those of the nodes that are alive, or known if
// none answers or Config.Alone is set.
func (w *worker) look(ctx context.Context, known []string) []string {
	if w.cfg.Alone {
		return known
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	answer, err := w.client.Admin().Nodes(ctx, &pb.NodesRequest{})
	if err != nil {
		return known
	}
	out := w.transport.Addresses()
	for _, n := range answer.GetNodes() {
		if addr := n.GetListen(); n.GetAlive() && addr != "" && !slices.Contains(out, addr) {
			out = append(out, addr)
		}
	}
	return out
}

// open returns the sessions whose nodes have accepted the observers.
func (w *worker) open() []*session {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Values(w.sessions))
}

// opened adds the session to w.sessions and returns true, unless the worker has another session
// with its node. If no other session scans, this one does.
func (w *worker) opened(s *session) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.sessions[s.node] != nil {
		return false
	}
	w.sessions[s.node] = s
	if w.scanning == nil {
		w.scanning = s
		s.scan()
	}
	return true
}

// lost removes the session. If it has scanned, another session scans from now on.
func (w *worker) lost(s *session) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.sessions[s.node] == s {
		delete(w.sessions, s.node)
	}
	if w.scanning != s {
		return
	}
	w.scanning = nil
	for _, other := range w.sessions {
		w.scanning = other
		other.scan()
		return
	}
}

// leave ends all sessions in good order: nodes then know that the worker has not died.
func (w *worker) leave() {
	waiting := w.open()
	for _, s := range waiting {
		s.post(func(m *pb.WorkRequest) { m.Leaves = true }, true)
	}
	late := time.NewTimer(leaveTimeout)
	defer late.Stop()
	for _, s := range waiting {
		select {
		case <-s.closed:
		case <-late.C:
			late.Reset(0) // the time is over for the remaining sessions, too
		}
	}
	w.end()
	w.running.Wait()
}

// leaveTimeout bounds the wait for the nodes' answer to the end of the sessions.
const leaveTimeout = time.Second
