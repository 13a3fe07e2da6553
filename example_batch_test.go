package percolator_test

import (
	"context"
	"fmt"
	"strconv"
	"testing"

	"github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/percolatortest"
)

// An observer sums orders by customer, up to a hundred orders in one transaction. The total
// of a customer is read and written once per batch.
func ExampleRegistry_StrongBatch() {
	order := percolator.Column{Table: "orders", Name: "amount"}
	total := percolator.Column{Table: "customers", Name: "total"}
	register := func(r *percolator.Registry) {
		r.StrongBatch("totals", order, func(ctx context.Context, tx *percolator.Tx,
			changes []percolator.Notification) error {
			keys := make([]percolator.CellKey, len(changes))
			for i, n := range changes {
				keys[i] = percolator.CellKey{Row: n.Row, Column: order}
			}
			orders, err := tx.GetMulti(ctx, keys...)
			if err != nil {
				return err
			}
			sums := map[string]int{}
			for _, o := range orders {
				customer, amount := "", 0
				if _, err := fmt.Sscanf(string(o.Value), "%s %d", &customer, &amount); err != nil {
					return err // parks this order alone, once the batch is split down to it
				}
				sums[customer] += amount
			}
			for customer, sum := range sums {
				value, _, err := tx.Get(ctx, customer, total)
				if err != nil {
					return err
				}
				before := 0
				_, _ = fmt.Sscan(string(value), &before) // empty at first: before stays 0
				tx.Set(customer, total, []byte(fmt.Sprint(before+sum)))
			}
			return nil
		}, percolator.Batch(100))
	}
	inTest(func(t testing.TB) {
		n := percolatortest.Start(t, register,
			percolatortest.Tables(percolator.TableSpec{Name: total.Table}))
		n.Transact(t, func(_ context.Context, tx *percolator.Tx) error {
			tx.Set("order/1", order, []byte("ann 5"))
			tx.Set("order/2", order, []byte("bob 7"))
			tx.Set("order/3", order, []byte("ann 20"))
			tx.Set("order/4", order, []byte("ann twenty"))
			return nil
		})
		n.RunUntilIdle(t)
		ann, _ := n.Get(t, "ann", total)
		bob, _ := n.Get(t, "bob", total)
		fmt.Println(ann, bob, "parked:", n.Parked(t, "totals")[0].Row)
	})
	// Output: 25 7 parked: order/4
}

// One order of a batch cannot be parsed. The function names it in a PartialError: the same
// run commits the others, and the failed order is parked after too many failures.
func ExamplePartialError() {
	order := percolator.Column{Table: "orders", Name: "amount"}
	tax := percolator.Column{Table: "orders", Name: "tax"}
	register := func(r *percolator.Registry) {
		r.StrongBatch("taxes", order, func(ctx context.Context, tx *percolator.Tx,
			changes []percolator.Notification) error {
			failed := map[string]error{}
			for _, n := range changes {
				value, _, err := tx.Get(ctx, n.Row, order)
				if err != nil {
					return err // not the failure of one order
				}
				amount, err := strconv.Atoi(string(value))
				if err != nil {
					failed[n.Row] = err // write nothing for this order
					continue
				}
				tx.Set(n.Row, tax, []byte(fmt.Sprint(amount/5)))
			}
			return &percolator.PartialError{Failed: failed} // empty: all succeeded
		})
	}
	inTest(func(t testing.TB) {
		n := percolatortest.Start(t, register)
		n.Transact(t, func(_ context.Context, tx *percolator.Tx) error {
			tx.Set("order/1", order, []byte("50"))
			tx.Set("order/2", order, []byte("twenty"))
			tx.Set("order/3", order, []byte("70"))
			return nil
		})
		n.RunUntilIdle(t)
		one, _ := n.Get(t, "order/1", tax)
		three, _ := n.Get(t, "order/3", tax)
		fmt.Println(one, three, "parked:", n.Parked(t, "taxes")[0].Row)
	})
	// Output: 10 14 parked: order/2
}

// inTest runs an example as if it were a test, and prints its failures.
func inTest(f func(t testing.TB)) {
	t := &exampleTB{}
	defer func() {
		for i := len(t.cleanups) - 1; i >= 0; i-- {
			t.cleanups[i]()
		}
	}()
	f(t)
}

type exampleTB struct {
	testing.TB
	cleanups []func()
}

func (t *exampleTB) Helper()                           {}
func (t *exampleTB) Logf(string, ...any)               {}
func (t *exampleTB) Cleanup(f func())                  { t.cleanups = append(t.cleanups, f) }
func (t *exampleTB) Errorf(format string, args ...any) { fmt.Printf(format+"\n", args...) }
func (t *exampleTB) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
