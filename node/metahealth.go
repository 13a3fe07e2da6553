package node

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster/admin"
	"github.com/percolator-go/percolator/internal/actorkit"
	"github.com/percolator-go/percolator/internal/txn"
)

// metaHealth determines for readiness probes whether meta answers this node. It accepts only a
// recent answer, because a quiescent Raft group does not notice the loss of its quorum: the first
// probe after a quiet time waits for a new answer, within a bound. However often it is probed, it
// sends one request at a time and pauses after each. Without probes, while meta answers, it sends
// none, so that meta's group can stay quiescent.
//
// It owns the time and outcome of the last request. Probes call check on any goroutine;
// watch, a goroutine of the node's background, sends the requests. Status requests, which
// ask meta anyway, record their outcome too.
type metaHealth struct {
	ask    func(ctx context.Context) error // sends one request to meta
	probed actorkit.Wakeup                 // wakes watch, which sends a request

	mu       sync.Mutex
	answered time.Time     // when the last request that was answered began; zero: none was
	err      error         // of the last request
	recorded chan struct{} // closed, and replaced, after each request
}

const (
	// healthTimeout bounds one request to meta; healthPause follows each.
	healthTimeout = 2 * time.Second
	healthPause   = time.Second
	// healthFresh is the age up to which a probe relies on an answer without waiting for another.
	healthFresh = healthPause + healthTimeout/2
	// healthGrace is the time for which meta may be silent before the node is not ready: an
	// election takes about 1 s, an overload may take longer.
	healthGrace = 5 * time.Second
)

// errNoMeta reports that meta does not answer, so that there are no timestamps and no transactions.
var errNoMeta = errors.New("node: meta does not answer")

func newMetaHealth(ask func(ctx context.Context) error) *metaHealth {
	return &metaHealth{ask: ask, probed: actorkit.NewWakeup(), recorded: make(chan struct{})}
}

// check returns nil if meta has answered within healthGrace, else why the node is not
// ready. If the last answer is older than healthFresh and the last request did not fail,
// it first waits for another answer: a little over healthTimeout at most, and no longer
// than ctx.
func (h *metaHealth) check(ctx context.Context) error {
	h.probed.Wake()
	h.mu.Lock()
	age, recorded, err := time.Since(h.answered), h.recorded, h.err
	h.mu.Unlock()
	// After an error watch asks until meta answers, whether or not probes continue, so a probe need
	// not wait for an answer.
	if err == nil && age >= healthFresh {
		bound := time.NewTimer(healthTimeout + healthTimeout/4)
		defer bound.Stop()
		select {
		case <-recorded:
		case <-bound.C:
		case <-ctx.Done():
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.answered.IsZero() && time.Since(h.answered) < healthGrace {
		return nil
	}
	return h.unanswered()
}

// unanswered returns an error with the time for which meta has not answered. The caller holds mu.
func (h *metaHealth) unanswered() error {
	why := h.err
	if why == nil { // the first request, or the newest, is still under way
		why = context.DeadlineExceeded
	}
	if h.answered.IsZero() {
		return fmt.Errorf("%w and never has: %w", errNoMeta, why)
	}
	return fmt.Errorf("%w; it last did %v ago: %w", errNoMeta,
		time.Since(h.answered).Round(time.Second), why)
}

// status returns the known state of meta, for node statuses, without a request to meta.
func (h *metaHealth) status() *pb.MetaSight {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := &pb.MetaSight{AnsweredAgoMs: admin.AgeMs(time.Since(h.answered), !h.answered.IsZero())}
	if h.err != nil {
		out.Error = h.err.Error()
	}
	return out
}

// record keeps the outcome of a request that began at the given time, and wakes the
// probes that wait for one. An answer is as old as its request: it may have been long on
// its way.
func (h *metaHealth) record(began time.Time, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err = err; err == nil && began.After(h.answered) {
		h.answered = began
	}
	close(h.recorded)
	h.recorded = make(chan struct{})
}

// watch asks meta after a probe, and after a failure until meta answers. It is a
// goroutine of the node's background and returns when ctx ends.
func (h *metaHealth) watch(ctx context.Context) {
	for failed := false; ; {
		if !failed { // idle until the next probe
			select {
			case <-h.probed:
			case <-ctx.Done():
				return
			}
		}
		failed = h.request(ctx)
		if txn.Sleep(ctx, healthPause) != nil {
			return
		}
	}
}

// request asks meta once and reports whether that failed.
func (h *metaHealth) request(ctx context.Context) bool {
	began := time.Now()
	attempt, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	err := h.ask(attempt)
	h.record(began, err)
	return err != nil
}
