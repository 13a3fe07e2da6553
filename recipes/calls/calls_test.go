package calls_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/percolatortest"
	"github.com/percolator-go/percolator/recipes/calls"
)

var (
	order   = percolator.Column{Table: "orders", Name: "order"}
	receipt = percolator.Column{Table: "orders", Name: "receipt"}
	log     = calls.NewLog("calls")
)

// service is an external service that executes the request of each key once, and counts calls.
type service struct {
	mu    sync.Mutex
	asked map[string]int    // calls, by key
	done  map[string]string // requests executed, by key
	err   func(asked int) error
}

func (s *service) do(key, what string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked[key]++
	if s.err != nil {
		if err := s.err(s.asked[key]); err != nil {
			return "", err
		}
	}
	s.done[key] = what
	return "done " + what, nil
}

func newService() *service {
	return &service{asked: map[string]int{}, done: map[string]string{}}
}

// observe charges and ships an order.
func observe(charge, ship *service) percolator.ObserverFunc {
	text := percolator.Text[string]()
	return func(ctx context.Context, tx *percolator.Tx, n percolator.Notification) error {
		what, _, err := tx.Get(ctx, n.Row, order)
		if err != nil {
			return err
		}
		run, err := log.Run(ctx, tx, n)
		if err != nil {
			return err
		}
		charged, err := calls.Step(ctx, run, "charge", text,
			func(_ context.Context, key string) (string, error) { return charge.do(key, string(what)) })
		if err != nil {
			return err
		}
		shipped, err := calls.Step(ctx, run, "ship", text,
			func(_ context.Context, key string) (string, error) { return ship.do(key, string(what)) })
		if err != nil {
			return err
		}
		tx.Set(n.Row, receipt, []byte(charged+", "+shipped))
		return nil
	}
}

func register(charge, ship *service) func(*percolator.Registry) {
	return func(r *percolator.Registry) {
		log.Register(r)
		r.Strong("fulfil", order, observe(charge, ship))
	}
}

// An order is charged and shipped once each, though its run may be repeated.
func Example() {
	fulfil := func(ctx context.Context, tx *percolator.Tx, n percolator.Notification) error {
		run, err := log.Run(ctx, tx, n)
		if err != nil {
			return err
		}
		id, err := calls.Step(ctx, run, "charge", percolator.Text[string](),
			func(ctx context.Context, key string) (string, error) {
				// The payment service is given the key as its idempotency key.
				return "payment for " + n.Row, ctx.Err()
			})
		if err != nil {
			return err
		}
		tx.Set(n.Row, receipt, []byte(id))
		return nil
	}
	_ = func(r *percolator.Registry) {
		log.Register(r)
		r.Strong("fulfil", order, fulfil)
	}
}

// TestOnce runs orders under every fault of a run: each order has one charge and one shipment by
// its key, and a recorded step is not called again.
func TestOnce(t *testing.T) {
	for _, kind := range []percolatortest.Kind{
		percolatortest.CommitConflicts, percolatortest.CommitReplyLost, percolatortest.CommitUnknown,
		percolatortest.CommitLost, percolatortest.ClearLost, percolatortest.RunFails,
		percolatortest.RunPanics,
	} {
		t.Run(kind.String(), func(t *testing.T) {
			t.Parallel()
			charge, ship := newService(), newService()
			// The first shipment of each order fails, after it was charged.
			ship.err = func(asked int) error {
				if asked == 1 {
					return errors.New("no van")
				}
				return nil
			}
			n := percolatortest.Start(t, register(charge, ship))
			n.Inject(t, percolatortest.Fault{Kind: kind, Observer: "fulfil", Times: 3})
			const orders = 10
			for i := range orders {
				n.Set(t, fmt.Sprint(i), order, fmt.Sprint("order ", i))
			}
			n.RunUntilIdle(t)
			for i := range orders {
				want := fmt.Sprintf("done order %d, done order %d", i, i)
				if got, _ := n.Get(t, fmt.Sprint(i), receipt); got != want {
					t.Errorf("%d: %q", i, got)
				}
			}
			if len(charge.done) != orders || len(ship.done) != orders {
				t.Errorf("%d charges, %d shipments", len(charge.done), len(ship.done))
			}
			for key, times := range charge.asked {
				if times != 1 {
					t.Errorf("%s was charged by %d calls", charge.done[key], times)
				}
			}
			for key, times := range ship.asked {
				if times != 2 { // one of them failed
					t.Errorf("%s was shipped by %d calls", ship.done[key], times)
				}
			}
		})
	}
}

// TestSecondChange repeats the steps for a new change of the row and deletes the old results.
func TestSecondChange(t *testing.T) {
	t.Parallel()
	charge, ship := newService(), newService()
	n := percolatortest.Start(t, register(charge, ship))
	for i := range 3 {
		n.Set(t, "a", order, fmt.Sprint("order ", i))
		n.RunUntilIdle(t)
	}
	if len(charge.done) != 3 {
		t.Errorf("%d charges", len(charge.done))
	}
	if left := n.Column(t, percolator.Column{Table: "calls", Name: "result"}); len(left) != 2 {
		t.Errorf("%d results are kept, want those of the last change", len(left))
	}
}

func TestOutsideOfRuns(t *testing.T) {
	t.Parallel()
	n := percolatortest.Start(t, nil, percolatortest.Tables(percolator.TableSpec{Name: "calls"}))
	err := n.DB().Transact(t.Context(), func(ctx context.Context, tx *percolator.Tx) error {
		run, err := log.Run(ctx, tx, percolator.Notification{Row: "a", Column: order, CommitTS: 1})
		if err != nil {
			return err
		}
		_, err = calls.Step(ctx, run, "s", percolator.Text[string](),
			func(context.Context, string) (string, error) { return "", nil })
		return err
	})
	if !errors.Is(err, calls.ErrNoDatabase) {
		t.Error(err)
	}
}

// BenchmarkFulfil runs orders of two steps, 32 at a time.
func BenchmarkFulfil(b *testing.B) {
	n := percolatortest.Start(b, register(newService(), newService()))
	b.SetParallelism(16)
	var mu sync.Mutex
	next := 0
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			mu.Lock()
			next++
			row := fmt.Sprint(next)
			mu.Unlock()
			n.Set(b, row, order, row)
		}
	})
	n.RunUntilIdle(b)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "per/s")
}
