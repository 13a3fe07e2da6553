package periodic_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/app"
	"github.com/percolator-go/percolator/node"
	"github.com/percolator-go/percolator/percolatortest"
	"github.com/percolator-go/percolator/recipes/periodic"
)

var count = percolator.Typed(percolator.Column{Table: "jobs", Name: "count"},
	percolator.Integer[int]())

// counting returns a job that counts its executions.
func counting(every time.Duration) *periodic.Jobs {
	return periodic.New("jobs", periodic.Job{
		Name: "tidy", Every: every,
		Do: func(ctx context.Context, tx *percolator.Tx) error {
			n, _, err := count.Get(ctx, tx, "tidy")
			count.Set(tx, "tidy", n+1)
			return err
		},
	})
}

// Old rows are deleted every hour, by any node.
func Example() {
	jobs := periodic.New("jobs", periodic.Job{
		Name: "expire", Every: time.Hour,
		Do: func(ctx context.Context, tx *percolator.Tx) error {
			old := tx.StartTS().Time().AddDate(0, -1, 0)
			_ = old // scan for rows that are older, and delete them
			return ctx.Err()
		},
	})
	main := func() {
		app.Main(func(r *percolator.Registry) { jobs.Register(r) },
			app.OnStart(func(ctx context.Context, n *node.Node) error {
				return jobs.Start(ctx, n.DB())
			}))
	}
	_ = main
}

// done reads the job's count.
func done(t *testing.T, n *percolatortest.Node) int {
	text, _ := n.Get(t, "tidy", count.Column)
	times, _ := strconv.Atoi(text)
	return times
}

// TestAgainAndAgain waits for three executions of the job, with a crash of the node in between, and
// checks that their times are a period apart by the oracle's time, which leaps when the node
// returns.
func TestAgainAndAgain(t *testing.T) {
	t.Parallel()
	last := percolator.Typed(percolator.Column{Table: "jobs", Name: "last"},
		percolator.Integer[int64]())
	jobs := periodic.New("jobs", periodic.Job{
		Name: "tidy", Every: periodic.MinEvery,
		Do: func(ctx context.Context, tx *percolator.Tx) error {
			n, _, err := count.Get(ctx, tx, "tidy")
			if err != nil {
				return err
			}
			before, _, err := last.Get(ctx, tx, "tidy")
			now := tx.StartTS().Time().UnixNano()
			if apart := time.Duration(now - before); apart < periodic.MinEvery {
				t.Errorf("done again after %v", apart)
			}
			count.Set(tx, "tidy", n+1)
			last.Set(tx, "tidy", now)
			return err
		},
	})
	n := percolatortest.Start(t, func(r *percolator.Registry) { jobs.Register(r) },
		percolatortest.DuplicateHints(), percolatortest.Timeout(time.Minute))
	start := func() {
		for range 3 { // as three nodes do
			if err := jobs.Start(t.Context(), n.DB()); err != nil {
				t.Fatal(err)
			}
		}
	}
	until := func(times int) {
		t.Helper()
		for began := time.Now(); done(t, n) < times; n.RunUntilIdle(t) {
			if time.Since(began) > time.Minute {
				t.Fatalf("done %d times in a minute", done(t, n))
			}
		}
	}
	start()
	until(2)
	n.Crash(t)
	start()
	until(3)
}

// TestDoneOnce makes runs fail in every way: each time the job is due it is executed once.
func TestDoneOnce(t *testing.T) {
	for _, kind := range []percolatortest.Kind{
		percolatortest.CommitConflicts, percolatortest.CommitReplyLost, percolatortest.CommitUnknown,
		percolatortest.CommitLost, percolatortest.ClearLost, percolatortest.RunFails,
		percolatortest.RunPanics,
	} {
		t.Run(kind.String(), func(t *testing.T) {
			t.Parallel()
			jobs := counting(time.Hour)
			n := percolatortest.Start(t, func(r *percolator.Registry) { jobs.Register(r) },
				percolatortest.DuplicateHints())
			n.Inject(t, percolatortest.Fault{Kind: kind, Observer: "tidy", Times: 2})
			for range 4 {
				if err := jobs.Start(t.Context(), n.DB()); err != nil {
					t.Fatal(err)
				}
				n.RunUntilIdle(t)
			}
			if times := done(t, n); times != 1 {
				t.Errorf("done %d times", times)
			}
			n.Transact(t, func(ctx context.Context, tx *percolator.Tx) error {
				due, ok, err := jobs.Next(ctx, tx, "tidy")
				if left := due.Sub(tx.StartTS().Time()); !ok || left <= 0 || left > time.Hour {
					t.Errorf("due in %v (%v)", left, ok)
				}
				return err
			})
		})
	}
}

func TestFaults(t *testing.T) {
	t.Parallel()
	do := func(context.Context, *percolator.Tx) error { return nil }
	for _, j := range []periodic.Job{{}, {Name: "a", Every: time.Second},
		{Name: "a", Every: time.Second - 1, Do: do}} {
		func() {
			defer func() {
				if err, _ := recover().(error); !errors.Is(err, percolator.ErrInvalid) {
					t.Errorf("%+v: %v", j, err)
				}
			}()
			periodic.New("jobs", j)
		}()
	}
}
