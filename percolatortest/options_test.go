package percolatortest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/percolatortest"
)

// TestDebounceSurvives: a debounced change survives a restart and a crash, and RunUntilIdle
// waits for it.
func TestDebounceSurvives(t *testing.T) {
	for name, end := range map[string]func(*percolatortest.Node, testing.TB){
		"restart": (*percolatortest.Node).Restart, "crash": (*percolatortest.Node).Crash,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := percolatortest.Start(t, func(r *percolator.Registry) {
				users := percolator.NewRegistry()
				registerEcho(users)
				for _, o := range users.Observers() {
					r.Strong(o.Name, o.Column, o.Func, percolator.Debounce(300*time.Millisecond))
				}
			})
			n.Set(t, "ann", said, "hello")
			end(n, t)
			n.Set(t, "ben", said, "good day")
			n.Set(t, "ben", said, "good bye")
			n.RunUntilIdle(t)
			for row, want := range map[string]string{"ann": "HELLO", "ben": "GOOD BYE"} {
				if got, _ := n.Get(t, row, heard); got != want {
					t.Errorf("%s: %q, want %q", row, got, want)
				}
			}
		})
	}
}

// TestTimersSurvive: a timer fires when due in spite of restarts and crashes, and a timer of a
// rolled-back transaction never does.
func TestTimersSurvive(t *testing.T) {
	wake := percolator.Column{Table: "guests", Name: "wake"}
	const d = 700 * time.Millisecond
	for name, end := range map[string]func(*percolatortest.Node, testing.TB){
		"restart": (*percolatortest.Node).Restart, "crash": (*percolatortest.Node).Crash,
		"neither": func(*percolatortest.Node, testing.TB) {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := percolatortest.Start(t, func(r *percolator.Registry) {
				r.Weak("awake", wake, func(_ context.Context, tx *percolator.Tx,
					n percolator.Notification) error {
					tx.Set(n.Row, heard, []byte(fmt.Sprint(n.CommitTS)))
					return nil
				})
			})
			var committed percolator.Timestamp
			began := time.Now()
			err := n.DB().Transact(t.Context(), func(_ context.Context, tx *percolator.Tx) error {
				tx.Set("ann", said, []byte("later"))
				tx.NotifyAfter("ann", wake, d)
				return nil
			}, percolator.CommittedAt(&committed))
			if err != nil {
				t.Fatal(err)
			}
			givenUp := errors.New("given up")
			err = n.DB().Transact(t.Context(), func(_ context.Context, tx *percolator.Tx) error {
				tx.NotifyAfter("ben", wake, 0)
				return givenUp
			})
			if !errors.Is(err, givenUp) {
				t.Fatal(err)
			}
			n.RunUntilIdle(t) // does not wait for timers
			end(n, t)
			value, tick := "", time.NewTicker(5*time.Millisecond)
			defer tick.Stop()
			for deadline := time.After(time.Minute); value == ""; {
				select {
				case <-tick.C:
					value, _ = n.Get(t, "ann", heard)
				case <-deadline:
					t.Fatal("the timer has not fired")
				}
			}
			var at percolator.Timestamp
			if _, err := fmt.Sscan(value, &at); err != nil {
				t.Fatal(err)
			}
			if passed := at.Time().Sub(committed.Time()); passed < d {
				t.Errorf("the timer fired after %v of the cluster's time, want at least %v", passed, d)
			}
			if passed := time.Since(began); passed < d {
				t.Errorf("the timer fired after %v of local time, want at least %v", passed, d)
			}
			if value, ok := n.Get(t, "ben", heard); ok {
				t.Errorf("a timer of a rolled-back transaction fired: %q", value)
			}
		})
	}
}
