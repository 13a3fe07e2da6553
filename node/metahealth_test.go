package node

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestMetaOutOfSight: an unresponsive meta is detected by queries of the node's readiness, also by
// the first after a quiet period; meta is queried at most once a second, and only while there are
// such queries.
func TestMetaOutOfSight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away := errors.New("away")
		var questions atomic.Int64
		var gone atomic.Bool
		s := newMetaHealth(func(ctx context.Context) error {
			questions.Add(1)
			if gone.Load() {
				<-ctx.Done() // a quiescent group without a quorum: no refusal, no answer
				return away
			}
			return nil
		})
		ctx, end := context.WithCancel(context.Background())
		ended := make(chan struct{})
		go func() { defer close(ended); s.watch(ctx) }()
		defer func() { end(); <-ended }()
		after := func(d time.Duration) { <-time.After(d); synctest.Wait() }
		probe := func() error { defer synctest.Wait(); return s.check(ctx) }

		if at := s.status(); at.AnsweredAgoMs != -1 || at.Error != "" {
			t.Errorf("nobody has asked, and the report is: %v", at)
		}
		after(time.Hour)
		if n := questions.Load(); n != 0 {
			t.Errorf("meta was queried %d times without a request", n)
		}
		for range 1000 {
			if err := probe(); err != nil {
				t.Fatal(err)
			}
		}
		after(3 * healthPause)
		if n := questions.Load(); n > 2 {
			t.Errorf("%d questions for 1000 probes at once", n)
		}
		gone.Store(true)
		if err := probe(); err != nil {
			t.Errorf("not ready although meta answered a moment ago: %v", err)
		}
		after(healthGrace)
		if err := probe(); !errors.Is(err, errNoMeta) || !errors.Is(err, away) {
			t.Errorf("UNSEEN: meta is away for long, and the node is ready: %v", err)
		}
		gone.Store(false)
		after(healthTimeout + 2*healthPause)
		if err := probe(); err != nil {
			t.Errorf("meta is back: %v", err)
		}
		after(time.Hour) // no queries, and meta loses its quorum
		gone.Store(true)
		began := time.Now()
		if err := probe(); !errors.Is(err, errNoMeta) {
			t.Errorf("UNSEEN: the first who asks after a quiet time is told that the node is ready: %v", err)
		}
		if took := time.Since(began); took > 2*healthTimeout { // bubble time
			t.Errorf("it waited for %v", took)
		}
		if at := s.status(); at.AnsweredAgoMs < time.Hour.Milliseconds() || at.Error == "" {
			t.Errorf("the report on the last answer is: %v", at)
		}
	})
}

// TestMapIsReadAgain: the map is reread slowly, while it is needed, also after failed reads.
func TestMapIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var needed atomic.Bool
		var readings atomic.Int64
		needed.Store(true)
		ctx, end := context.WithCancel(context.Background())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			rereadMap(ctx, needed.Load, func(context.Context) error {
				readings.Add(1)
				return errors.New("away")
			})
		}()
		defer func() { end(); <-ended }()
		after := func(d time.Duration) { <-time.After(d); synctest.Wait() }
		after(10 * mapPause)
		if n := readings.Load(); n < 9 || n > 10 {
			t.Errorf("%d readings in ten times the pause", n)
		}
		needed.Store(false)
		readings.Store(0)
		after(10 * mapPause)
		if n := readings.Load(); n > 0 {
			t.Errorf("%d readings that nobody needs", n)
		}
	})
}
