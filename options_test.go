package percolator_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/percolator-go/percolator"
)

// runsUnderConflicts runs Transact on a row that another transaction changes during the first three
// runs, and returns the number of runs.
func runsUnderConflicts(ctx context.Context, t *testing.T, db *percolator.DB,
	opts ...percolator.TxOption) (runs int, err error) {
	t.Helper()
	err = db.Transact(ctx, func(ctx context.Context, tx *percolator.Tx) error {
		runs++
		if _, _, err := tx.Get(ctx, "a", column); err != nil {
			return err
		}
		if runs <= 3 {
			put(ctx, t, db, "a")
		}
		tx.Set("a", column, nil)
		return nil
	}, opts...)
	return runs, err
}

// TestMaxRetries: Transact runs its function once more than MaxRetries says and then returns a
// RetryError, which wraps the conflict; without MaxRetries it retries until it commits.
func TestMaxRetries(t *testing.T) {
	ctx, db, _ := open(t)
	for most, want := range map[int]int{-1: 1, 0: 1, 2: 3, 3: 4} {
		runs, err := runsUnderConflicts(ctx, t, db, percolator.MaxRetries(most))
		var used *percolator.RetryError
		if fails := want <= 3; errors.As(err, &used) != fails || runs != want ||
			errors.Is(err, percolator.ErrConflict) != fails || (err != nil) != fails {
			t.Errorf("MaxRetries(%d): %d runs, want %d; %v", most, runs, want, err)
		}
		if used != nil && used.Retries != want-1 {
			t.Errorf("MaxRetries(%d): the error reports %d retries, want %d", most, used.Retries, want-1)
		}
	}
	if runs, err := runsUnderConflicts(ctx, t, db); runs != 4 || err != nil {
		t.Errorf("without MaxRetries: %d runs, %v", runs, err)
	}
}

// TestStartTS: StartTS is 0 until the first read or Start, and afterwards what Start returned.
func TestStartTS(t *testing.T) {
	ctx, db, _ := open(t)
	put(ctx, t, db, "a")
	if err := db.Transact(ctx, func(ctx context.Context, tx *percolator.Tx) error {
		before := tx.StartTS()
		first, err := tx.Start(ctx)
		if err != nil {
			return err
		}
		_, _, err = tx.Get(ctx, "a", column)
		if before != 0 || first == 0 || tx.StartTS() != first {
			t.Errorf("started at %d, then %d, then %d", before, first, tx.StartTS())
		}
		return err
	}); err != nil {
		t.Error(err)
	}
	tx, err := db.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if tx.StartTS() == 0 {
		t.Error("a transaction of Begin has no start timestamp")
	}
	if err := tx.Rollback(ctx); err != nil {
		t.Error(err)
	}
}

// TestMiddleware: middleware wraps all observers in the order of Use, whenever they are registered,
// and functions for one change as batches of one.
func TestMiddleware(t *testing.T) {
	var calls []string
	wrapped := 0
	log := func(name string) percolator.Middleware {
		return func(o percolator.ObserverSpec, next percolator.BatchFunc) percolator.BatchFunc {
			wrapped++
			return func(ctx context.Context, tx *percolator.Tx, changes []percolator.Notification) error {
				calls = append(calls, fmt.Sprint(name, " ", o.Name, " ", len(changes)))
				return next(ctx, tx, changes)
			}
		}
	}
	r := percolator.NewRegistry()
	r.Use(log("outer"))
	failed := errors.New("failed")
	r.Strong("one", column, func(context.Context, *percolator.Tx, percolator.Notification) error {
		calls = append(calls, "one")
		return failed
	})
	r.Use(log("inner"))
	r.StrongBatch("many", percolator.Column{Table: "t", Name: "d"},
		func(context.Context, *percolator.Tx, []percolator.Notification) error {
			calls = append(calls, "many")
			return nil
		})
	if err := r.Err(); err != nil {
		t.Fatal(err)
	}
	observers := r.Observers()
	if err := observers[0].Func(t.Context(), nil, percolator.Notification{}); !errors.Is(err, failed) {
		t.Errorf("the error of the function is lost: %v", err)
	}
	if err := observers[1].BatchFunc(t.Context(), nil, make([]percolator.Notification, 3)); err != nil {
		t.Error(err)
	}
	want := []string{"outer one 1", "inner one 1", "one", "outer many 3", "inner many 3", "many"}
	if !slices.Equal(calls, want) || observers[0].BatchFunc != nil || observers[1].Func != nil {
		t.Errorf("calls %q, want %q", calls, want)
	}
	// A middleware may register a metric of each observer, which it can do only once.
	if r.Observers(); wrapped != 4 {
		t.Errorf("two middlewares wrapped functions of two observers %d times, want 4", wrapped)
	}
	r.Use(nil)
	if err := r.Err(); !errors.Is(err, percolator.ErrInvalid) {
		t.Errorf("nil middleware: %v, want ErrInvalid", err)
	}
}

func ExampleMaxRetries() {
	ctx := context.Background()
	db, done := openExample("bank")
	defer done()
	balance := percolator.Typed(percolator.Column{Table: "bank", Name: "balance"},
		percolator.Integer[int]())
	err := db.Transact(ctx, func(ctx context.Context, tx *percolator.Tx) error {
		n, _, err := balance.Get(ctx, tx, "bob")
		balance.Set(tx, "bob", n+10)
		return err
	}, percolator.MaxRetries(5))
	if used, ok := errors.AsType[*percolator.RetryError](err); ok {
		fmt.Println("bob's balance is too contended:", used.Retries, "retries")
	}
	fmt.Println(err)
	// Output: <nil>
}

// A middleware logs the runs of all observers in one place.
func ExampleRegistry_Use() {
	var logged percolator.Middleware = func(o percolator.ObserverSpec,
		next percolator.BatchFunc) percolator.BatchFunc {
		return func(ctx context.Context, tx *percolator.Tx, changes []percolator.Notification) error {
			err := next(ctx, tx, changes)
			fmt.Println(o.Name, len(changes), err)
			return err
		}
	}
	r := percolator.NewRegistry()
	r.Use(logged)
	r.Strong("index", text, index)
	_ = r.Observers()[0].Func(context.Background(), nil, percolator.Notification{Row: "a"})
	// Output: index 1 <nil>
}

// Parked notifications are written to a dead-letter table. The row's name makes the function
// idempotent.
func ExampleOnParked() {
	reason := percolator.Typed(percolator.Column{Table: "dead", Name: "reason"},
		percolator.Text[string]())
	r := percolator.NewRegistry()
	r.Table(percolator.TableSpec{Name: "dead"})
	r.Strong("index", text, index, percolator.OnParked(
		func(ctx context.Context, p percolator.Parked) error {
			return percolator.DBFrom(ctx).Transact(ctx,
				func(_ context.Context, tx *percolator.Tx) error {
					reason.Set(tx, fmt.Sprintf("%s/%s/%d", p.Observer, p.Row, p.CommitTS), p.Err.Error())
					return nil
				})
		}))
	fmt.Println(r.Err())
	// Output: <nil>
}
