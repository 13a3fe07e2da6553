package join

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// namesBoth reports whether a refusal contains both clocks and the limit; virtual time begins in
// the year 2000.
func namesBoth(err error) bool {
	text := err.Error()
	return strings.Contains(text, "it is 2000-01-01 01:") &&
		strings.Contains(text, " and 2000-01-01 00:") &&
		strings.Contains(text, "the difference may be at most 5s")
}

// TestWrongClockDoesNotJoin: a new node whose clock is wrong by an hour is refused, with both
// clocks in the error. Once the clock is set the node joins; a member returns with any clock.
func TestWrongClockDoesNotJoin(t *testing.T) {
	onTestNetwork(t, 1, func(s *testNetwork) {
		a, b := s.build("a", 1), s.build("b", 1, "a")
		a.start()
		<-time.After(time.Second)
		b.ahead = time.Hour
		b.start()
		if err := <-b.entered; !errors.Is(err, ErrClock) || !namesBoth(err) {
			t.Fatalf("an hour ahead: %v", err)
		}
		for _, ahead := range []time.Duration{-time.Hour, 2 * time.Second} {
			b.crash()
			b.ahead = ahead
			b.start()
			if err := <-b.entered; ahead < 0 && !errors.Is(err, ErrClock) || ahead > 0 &&
				err != nil {
				t.Fatalf("%v ahead: %v", ahead, err)
			}
		}
		b.crash()
		b.ahead = time.Hour
		b.start()
		if err := <-b.entered; err != nil {
			t.Errorf("a node of the cluster: %v", err)
		}
	})
}

// TestWrongClockDoesNotFound: one of three nodes that are to found a cluster has a wrong clock. It
// is refused, and the others wait for a third.
func TestWrongClockDoesNotFound(t *testing.T) {
	onTestNetwork(t, 1, func(s *testNetwork) {
		var all []*testNode
		for _, addr := range []string{"a", "b", "c"} {
			all = append(all, s.build(addr, 3, "a", "b", "c"))
		}
		wrong := all[1]
		wrong.ahead = time.Hour
		for _, h := range all {
			h.start()
		}
		if err := <-wrong.entered; !errors.Is(err, ErrClock) || !namesBoth(err) {
			t.Fatalf("the one that is wrong: %v", err)
		}
		<-time.After(time.Minute)
		s.mu.Lock()
		begun := len(s.begun)
		s.mu.Unlock()
		if begun != 0 {
			t.Fatalf("%d clusters were founded", begun)
		}
		wrong.crash()
		wrong.ahead = 0
		wrong.start()
		if err := s.settle(time.Minute); err != nil {
			t.Error(err)
		}
	})
}

// TestTwoClocksDiffer: with two nodes it is unknown which clock is wrong; both are refused.
func TestTwoClocksDiffer(t *testing.T) {
	onTestNetwork(t, 1, func(s *testNetwork) {
		a, b := s.build("a", 2, "a", "b"), s.build("b", 2, "a", "b")
		a.ahead = time.Hour
		a.start()
		b.start()
		for _, h := range []*testNode{a, b} {
			if err := <-h.entered; !errors.Is(err, ErrClock) {
				t.Errorf("%s: %v", h.addr, err)
			}
		}
	})
}
