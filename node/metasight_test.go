package node

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestMetaOutOfSight: meta that does not answer is noticed by who asks whether the node is ready, not at once and not late;
// however often that is asked, meta is asked once a second at most, and not at all when nobody wants to know.
func TestMetaOutOfSight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away, questions := errors.New("away"), 0
		var answer error
		s := newMetaSight(func(context.Context) error { questions++; return answer })
		ctx, end := context.WithCancel(context.Background())
		ended := make(chan struct{})
		go func() { defer close(ended); s.watch(ctx) }()
		defer func() { end(); <-ended }()
		after := func(d time.Duration) { <-time.After(d); synctest.Wait() }
		probe := func() error { defer synctest.Wait(); return s.lost() }

		after(time.Hour)
		if questions != 0 {
			t.Errorf("meta was asked %d times for nobody", questions)
		}
		for range 1000 {
			if err := probe(); err != nil {
				t.Fatal(err)
			}
		}
		after(3 * sightPause)
		if questions > 2 {
			t.Errorf("%d questions for 1000 probes at once", questions)
		}
		answer = away
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
		answer = nil
		after(2 * sightPause)
		if err := probe(); err != nil {
			t.Errorf("meta is back: %v", err)
		}
	})
}

// TestMapIsReadAgain: slowly, while it is needed, also when it could not be read.
func TestMapIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		needed, readings := true, 0
		ctx, end := context.WithCancel(context.Background())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			rereadMap(ctx, func() bool { return needed }, func(context.Context) error { readings++; return errors.New("away") })
		}()
		defer func() { end(); <-ended }()
		after := func(d time.Duration) { <-time.After(d); synctest.Wait() }
		after(10 * mapPause)
		if readings < 9 || readings > 10 {
			t.Errorf("%d readings in ten times the pause", readings)
		}
		needed, readings = false, 0
		after(10 * mapPause)
		if readings > 0 {
			t.Errorf("%d readings that nobody needs", readings)
		}
	})
}
