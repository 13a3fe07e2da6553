package actorkit

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/percolator-go/percolator/internal/leaktest"
)

// inTurns runs a test with Turns in virtual time. times returns when each turn began, counted from
// the start of the test.
func inTurns(
	t *testing.T, cfg TurnsConfig, during func(ctx context.Context, n int),
	test func(t *testing.T, turns *Turns, times func() []time.Duration),
) {
	synctest.Test(t, func(t *testing.T) {
		leaktest.Settle(t)
		system := NewSystem(slog.New(slog.DiscardHandler))
		began := time.Now()
		var times atomic.Pointer[[]time.Duration]
		times.Store(&[]time.Duration{})
		cfg.Name = "turns"
		cfg.Turn = func(ctx context.Context) time.Duration {
			all := append(slices.Clone(*times.Load()), time.Since(began))
			times.Store(&all)
			if during != nil {
				during(ctx, len(all))
			}
			return 10 * time.Second
		}
		turns, err := SpawnTurns(system, cfg)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := SpawnTurns(system, cfg); err == nil {
			t.Error("a second actor of the same name")
		}
		test(t, turns, func() []time.Duration { return *times.Load() })
		if err := turns.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		ended := len(*times.Load())
		turns.Wake()
		<-time.After(time.Hour)
		if n := len(*times.Load()); n != ended {
			t.Errorf("%d turns after the end", n-ended)
		}
		system.Shutdown()
		synctest.Wait()
	})
}

// at advances virtual time to d since the start.
func at(began time.Time, d time.Duration) {
	<-time.After(time.Until(began.Add(d)))
	synctest.Wait()
}

func same(t *testing.T, got []time.Duration, want ...time.Duration) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("turns at %v, want %v", got, want)
	}
}

// TestTurns: the first turn comes after First, each next one after the pause returned by the last,
// or on a wake, but not within Gap; a wake shifts the following pauses.
func TestTurns(t *testing.T) {
	cfg := TurnsConfig{First: time.Second, Gap: 3 * time.Second}
	inTurns(t, cfg, nil, func(t *testing.T, turns *Turns, times func() []time.Duration) {
		began := time.Now()
		at(began, 12*time.Second)
		same(t, times(), time.Second, 11*time.Second)
		for range 5 {
			turns.Wake() // a second after a turn: too early
		}
		at(began, 20*time.Second)
		same(t, times(), time.Second, 11*time.Second, 14*time.Second)
		turns.Wake()
		at(began, 29*time.Second)
		same(t, times(), time.Second, 11*time.Second, 14*time.Second, 20*time.Second)
	})
}

// TestTurnsNeverOverlap: all wakes during a turn lead to one turn after it, and none is lost; a
// pause that ends during a turn leads to none.
func TestTurnsNeverOverlap(t *testing.T) {
	under := atomic.Int32{}
	inTurns(t, TurnsConfig{}, func(context.Context, int) {
		if under.Add(1) > 1 {
			t.Error("two concurrent turns")
		}
		<-time.After(5 * time.Second)
		under.Add(-1)
	}, func(t *testing.T, turns *Turns, times func() []time.Duration) {
		began := time.Now()
		for i := range 3 {
			at(began, time.Duration(i+1)*time.Second)
			turns.Wake()
		}
		at(began, 18*time.Second)
		turns.Wake()
		at(began, 32*time.Second) // the pause would have ended in the woken turn
		same(t, times(), 0, 5*time.Second, 18*time.Second)
	})
}

// TestTurnsStop: a turn under way is cancelled, and Stop returns when it has ended.
func TestTurnsStop(t *testing.T) {
	ended := atomic.Bool{}
	inTurns(t, TurnsConfig{}, func(ctx context.Context, _ int) {
		<-ctx.Done()
		<-time.After(time.Second)
		ended.Store(true)
	}, func(t *testing.T, turns *Turns, _ func() []time.Duration) {
		synctest.Wait()
		if err := turns.Stop(t.Context()); err != nil || !ended.Load() {
			t.Errorf("Stop: %v; the turn has ended: %v", err, ended.Load())
		}
	})
}

// TestTurnsPanic: a turn that panics is followed by a pause that grows while turns panic and that a
// wake does not shorten. After any number of panics the next turn comes; after one that returns,
// the pause is the one that it returns.
func TestTurnsPanic(t *testing.T) {
	const panics = 20
	inTurns(t, TurnsConfig{}, func(_ context.Context, n int) {
		if n != panics+1 {
			panic(n)
		}
	}, func(t *testing.T, turns *Turns, times func() []time.Duration) {
		began := time.Now()
		var want []time.Duration
		next, pause := time.Duration(0), time.Second
		for range panics {
			want = append(want, next)
			for end := next + pause; next < end; next += time.Second {
				at(began, next+time.Second/2)
				turns.Wake()
			}
			pause = min(2*pause, time.Minute)
		}
		want = append(want, next, next+10*time.Second, next+11*time.Second)
		at(began, next+12*time.Second)
		same(t, times(), want...)
	})
}
