package node

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestMetaOutOfSight: meta that does not answer is noticed by who asks whether the node is ready, not at once and not late;
// however often that is asked, meta is asked once a second at most, and not at all when nobody wants to know.
func TestMetaOutOfSight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away := errors.New("away")
		var questions atomic.Int64
		var gone atomic.Bool
		s := newMetaSight(func(context.Context) error {
			questions.Add(1)
			if gone.Load() {
				return away
			}
			return nil
		})
		ctx, end := context.WithCancel(context.Background())
		ended := make(chan struct{})
		go func() { defer close(ended); s.watch(ctx) }()
		defer func() { end(); <-ended }()
		after := func(d time.Duration) { <-time.After(d); synctest.Wait() }
		probe := func() error { defer synctest.Wait(); return s.lost() }

		after(time.Hour)
		if n := questions.Load(); n != 0 {
			t.Errorf("meta was asked %d times for nobody", n)
		}
		for range 1000 {
			if err := probe(); err != nil {
				t.Fatal(err)
			}
		}
		after(3 * sightPause)
		if n := questions.Load(); n > 2 {
			t.Errorf("%d questions for 1000 probes at once", n)
		}
		gone.Store(true)
		after(2 * sightPause)
		if err := probe(); err != nil { // it is asked from here on
			t.Fatal(err)
		}
		after(sightPatience - time.Second)
		if err := probe(); err != nil {
			t.Errorf("not ready although meta was lost a moment ago: %v", err)
		}
		after(2 * time.Second)
		if err := probe(); !errors.Is(err, errNoMeta) || !errors.Is(err, away) {
			t.Errorf("UNSEEN: meta is away for long, and the node is ready: %v", err)
		}
		gone.Store(false)
		after(2 * sightPause)
		if err := probe(); err != nil {
			t.Errorf("meta is back: %v", err)
		}
	})
}

// TestMapIsReadAgain: slowly, while it is needed, also when it could not be read.
func TestMapIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var needed atomic.Bool
		var readings atomic.Int64
		needed.Store(true)
		ctx, end := context.WithCancel(context.Background())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			rereadMap(ctx, needed.Load, func(context.Context) error { readings.Add(1); return errors.New("away") })
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
