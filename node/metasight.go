package node

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster/admin"
)

// metaSight knows whether meta answers this node, for probes of readiness. What it says
// rests on a recent answer: groups at rest do not notice that they have lost their
// quorum, so the first probe after a quiet time waits for an answer, within a bound.
// However often it is probed, it asks meta one question at a time, with a pause after
// each. While nobody probes and meta answers, it asks nothing, so that meta's group can
// rest.
//
// It owns the time and outcome of the last question. Probes call confirm on any
// goroutine; watch, a goroutine of changes, asks. Status requests, which ask meta anyway,
// record their outcome too.
type metaSight struct {
	ask   func(ctx context.Context) error // one question to meta
	asked chan struct{}                   // capacity 1: somebody wants to know

	mu       sync.Mutex
	answered time.Time     // when the last question began that was answered; zero: none was
	err      error         // of the last question
	looked   chan struct{} // closed, and replaced, after a question
}

const (
	// sightTimeout bounds one question, sightPause is the pause after it.
	sightTimeout = 2 * time.Second
	sightPause   = time.Second
	// sightFresh is how old an answer may be that is relied on without asking again.
	sightFresh = sightPause + sightTimeout/2
	// sightPatience is how long meta may be out of sight: an election takes about a
	// second, an overload may take more.
	sightPatience = 5 * time.Second
)

// errNoMeta: without meta there are no timestamps, and so no transactions.
var errNoMeta = errors.New("node: meta does not answer")

func newMetaSight(ask func(ctx context.Context) error) *metaSight {
	return &metaSight{ask: ask, asked: make(chan struct{}, 1), looked: make(chan struct{})}
}

// confirm returns nil if meta has answered lately, else why the node is not ready. If the
// last answer is older than sightFresh, and nothing is known to be wrong, it waits for
// another: sightTimeout at most, and no longer than ctx.
func (s *metaSight) confirm(ctx context.Context) error {
	select {
	case s.asked <- struct{}{}:
	default: // watch is yet to take an earlier probe's
	}
	s.mu.Lock()
	age, looked, err := time.Since(s.answered), s.looked, s.err
	s.mu.Unlock()
	// After an error watch asks until meta answers: what it finds need not be waited for.
	if err == nil && age >= sightFresh {
		bound := time.NewTimer(sightTimeout + sightTimeout/4)
		defer bound.Stop()
		select {
		case <-looked:
		case <-bound.C:
		case <-ctx.Done():
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.answered.IsZero() && time.Since(s.answered) < sightPatience {
		return nil
	}
	return s.lost()
}

// lost returns an error that says for how long meta has not answered. The caller holds
// mu.
func (s *metaSight) lost() error {
	why := s.err
	if why == nil {
		why = context.DeadlineExceeded
	}
	if s.answered.IsZero() {
		return fmt.Errorf("%w, and never has: %w", errNoMeta, why)
	}
	return fmt.Errorf("%w, the last time was %v ago: %w", errNoMeta,
		time.Since(s.answered).Round(time.Second), why)
}

// status returns what is known without asking.
func (s *metaSight) status() *pb.MetaSight {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := &pb.MetaSight{AnsweredAgoMs: admin.AgeMs(time.Since(s.answered), !s.answered.IsZero())}
	if s.err != nil {
		out.Error = s.err.Error()
	}
	return out
}

// record notes the outcome of a question that began at the given time, and wakes those
// who wait for one. An answer counts from when the question began: it may have been long
// on its way.
func (s *metaSight) record(began time.Time, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err = err; err == nil && began.After(s.answered) {
		s.answered = began
	}
	close(s.looked)
	s.looked = make(chan struct{})
}

// watch asks meta when somebody wants to know, and after a failure until it answers. It
// is a goroutine of changes and returns when ctx ends.
func (s *metaSight) watch(ctx context.Context) {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for lost := false; ; {
		select {
		case <-pause.C:
		case <-ctx.Done():
			return
		}
		if !lost { // rest until a probe
			select {
			case <-s.asked:
			case <-ctx.Done():
				return
			}
		}
		lost = s.look(ctx)
		pause.Reset(sightPause)
	}
}

// look asks once and reports whether there was no answer.
func (s *metaSight) look(ctx context.Context) bool {
	began := time.Now()
	attempt, cancel := context.WithTimeout(ctx, sightTimeout)
	defer cancel()
	err := s.ask(attempt)
	s.record(began, err)
	return err != nil
}

// mapPause is the least time between two readings of the tablet map by a node that does
// not hold every tablet; up to a tenth is added at random, so that nodes do not read
// together. It bounds how long the node can go without knowing of a split that no request
// meets.
const mapPause = 20 * time.Second

// mapTimeout bounds one reading of the tablet map.
const mapTimeout = 5 * time.Second

// rereadMap reads the tablet map from time to time while needed returns true. It is a
// goroutine of changes and returns when ctx ends.
func rereadMap(ctx context.Context, needed func() bool, read func(context.Context) error) {
	for {
		pause := time.NewTimer(mapPause + rand.N(mapPause/10))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return
		}
		if !needed() {
			continue
		}
		attempt, cancel := context.WithTimeout(ctx, mapTimeout)
		_ = read(attempt) // the next reading comes, and misses read it as well
		cancel()
	}
}
