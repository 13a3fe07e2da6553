package recipes_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/recipes/calls"
	"github.com/percolator-go/percolator/recipes/closure"
	"github.com/percolator-go/percolator/recipes/combine"
	"github.com/percolator-go/percolator/recipes/export"
	"github.com/percolator-go/percolator/recipes/hashed"
	"github.com/percolator-go/percolator/recipes/index"
	"github.com/percolator-go/percolator/recipes/periodic"
	"github.com/percolator-go/percolator/recipes/ratelimit"
	"github.com/percolator-go/percolator/recipes/unique"
	"github.com/percolator-go/percolator/test/cluster"
	"github.com/percolator-go/percolator/test/cluster/clustertest"
	"github.com/percolator-go/percolator/tuple"
)

// An application that uses every recipe: orders of goods.

var (
	goods   = percolator.Typed(percolator.Column{Table: "orders", Name: "goods"}, percolator.Text[string]())
	receipt = percolator.Typed(percolator.Column{Table: "orders", Name: "receipt"}, percolator.Text[string]())
	gift    = percolator.Typed(percolator.Column{Table: "orders", Name: "gift"}, percolator.Text[string]())
	sold    = percolator.Typed(percolator.Column{Table: "sold", Name: "count"}, percolator.Integer[int64]())
	sent    = percolator.Typed(percolator.Column{Table: "sent", Name: "version"}, percolator.Integer[int64]())
	ticks   = percolator.Typed(percolator.Column{Table: "orders", Name: "ticks"}, percolator.Integer[int64]())

	byGoods = index.New(index.Config{Name: "by_goods", Column: goods.Column})
	sales   = combine.New(combine.Config[int64]{
		Name: "sales", Result: sold,
		Combine: func(_ string, sum int64, _ bool, updates []int64) (int64, bool) {
			for _, u := range updates {
				sum += u
			}
			return sum, true
		},
	})
	numbers = unique.New("numbers")
	gifts   = ratelimit.New(ratelimit.Config{Table: "gifts", Every: 24 * time.Hour, Burst: giftsInAll})
	events  = hashed.New("events", 4)
	event   = percolator.Column{Table: "events", Name: "order"}
	paid    = calls.NewLog("paid")
	follows = closure.New(closure.Config{Name: "follows", Batch: 10})
	clock   = periodic.New("clock", periodic.Job{Name: "tick", Every: time.Second,
		Do: func(ctx context.Context, tx *percolator.Tx) error {
			n, _, err := ticks.Get(ctx, tx, "clock")
			ticks.Set(tx, "clock", n+1)
			return err
		}})
)

const (
	orders     = 120
	writers    = 4
	giftsInAll = 7
)

// register registers the recipes, which also declares their tables.
func register(r *percolator.Registry) {
	byGoods.Register(r)
	sales.Register(r)
	numbers.Register(r)
	gifts.Register(r)
	events.Register(r)
	paid.Register(r)
	follows.Register(r)
	clock.Register(r)
	r.Strong("pay", goods.Column, pay)
	r.Table(percolator.TableSpec{Name: sent.Column.Table})
	export.Register(r, export.Config[string]{
		Name: "send", Column: receipt.Column,
		Read: func(_ context.Context, _ percolator.Reader, _ string, value []byte) (string, error) {
			return string(value), nil
		},
		Apply: send,
	})
}

// pay calls a service that answers with the key.
func pay(ctx context.Context, tx *percolator.Tx, n percolator.Notification) error {
	run, err := paid.Run(ctx, tx, n)
	if err != nil {
		return err
	}
	answer, err := calls.Step(ctx, run, "pay", percolator.Text[string](),
		func(_ context.Context, key string) (string, error) { return key, nil })
	receipt.Set(tx, n.Row, answer)
	return err
}

// send is the sink of the export: it keeps the newest version of each row.
func send(ctx context.Context, changes []export.Change[string]) error {
	return percolator.DBFrom(ctx).Transact(ctx, func(ctx context.Context, tx *percolator.Tx) error {
		for _, c := range changes {
			had, _, err := sent.Get(ctx, tx, c.Row)
			if err != nil {
				return err
			}
			sent.Set(tx, c.Row, max(had, int64(c.Version)))
		}
		return nil
	})
}

// order creates an order, unless an earlier attempt has. Each but the first follows another.
func order(ctx context.Context, tx *percolator.Tx, i int) error {
	name := nameOf(i)
	if _, done, err := goods.Get(ctx, tx, name); err != nil || done {
		return err
	}
	if err := numbers.Claim(ctx, tx, fmt.Sprint("number ", i), name); err != nil {
		return err
	}
	wait, err := gifts.Take(ctx, tx, "all", 1)
	if err != nil {
		return err
	}
	if wait == 0 {
		gift.Set(tx, name, "yes")
	}
	goods.Set(tx, name, goodsOf(i))
	sales.Add(tx, goodsOf(i), 1)
	tx.Set(events.Row(name), event, nil)
	if i == 0 {
		follows.Mark(tx, "first", name)
	} else {
		follows.AddEdge(tx, nameOf(i/2), name)
	}
	return nil
}

func nameOf(i int) string  { return fmt.Sprintf("order-%03d", i) }
func goodsOf(i int) string { return [...]string{"apples", "pears", "plums"}[i%3] }

// TestMain runs this program as a node of the test's cluster if it was started as one.
func TestMain(m *testing.M) {
	cluster.Main(register)
	os.Exit(m.Run())
}

// TestKilledNode kills -9 one of three nodes while orders arrive, and restarts it.
func TestKilledNode(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	c := clustertest.Start(ctx, t, cluster.Config{Nodes: 3})
	db, err := c.Dial(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	clustertest.Replicated(ctx, t, db, 10) // meta, and most of the tables
	until(ctx, t, func() error { return clock.Start(ctx, db) })
	var all sync.WaitGroup
	half := make(chan struct{})
	for w := range writers {
		all.Go(func() {
			for i := w; i < orders; i += writers {
				until(ctx, t, func() error {
					return db.Transact(ctx, func(ctx context.Context, tx *percolator.Tx) error {
						return order(ctx, tx, i)
					})
				})
				if i == orders/2 {
					close(half)
				}
			}
		})
	}
	<-half
	if err := c.Node(1).Kill(); err != nil {
		t.Fatal(err)
	}
	all.Wait()
	for i := 5; i < orders; i += 20 { // the orders from these on no longer follow the first
		until(ctx, t, func() error {
			return db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
				follows.DeleteEdge(tx, nameOf(i/2), nameOf(i))
				return nil
			})
		})
	}
	if err := errors.Join(c.Node(1).Start(), c.Ready(ctx)); err != nil {
		t.Fatal(err)
	}
	until(ctx, t, func() error { return complete(ctx, db) })
}

// until retries calls that fail while a node is down.
func until(ctx context.Context, t *testing.T, do func() error) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := do()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Error(err)
			return
		}
	}
}

// complete reports what the recipes have not derived from the orders yet.
func complete(ctx context.Context, db *percolator.DB) error {
	s, err := db.Snapshot(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	want, errs := map[string]int{}, []error{}
	check := func(what string, got, want any, err error) {
		if err != nil || got != want {
			errs = append(errs, fmt.Errorf("%s: %v, want %v (error %v)", what, got, want, err))
		}
	}
	given := 0
	for i := range orders {
		name := nameOf(i)
		want[goodsOf(i)]++
		owner, _, err := numbers.Owner(ctx, s, fmt.Sprint("number ", i))
		check("owner", owner, name, err)
		answer, _, err := receipt.Get(ctx, s, name)
		check("receipt of "+name, len(answer), 32, err)
		_, exported, err := sent.Get(ctx, s, name)
		check("export of "+name, exported, true, err)
		_, ok, err := gift.Get(ctx, s, name)
		if ok {
			given++
		}
		check("gift", err, nil, err)
		reached := true
		for at := i; at > 0; at /= 2 {
			reached = reached && at%20 != 5
		}
		has, err := follows.Has(ctx, s, "first", name)
		check(name+" follows the first", has, reached, err)
	}
	check("gifts", given, giftsInAll, nil)
	for name, count := range want {
		total, _, err := sales.Get(ctx, s, name)
		check("sold "+name, total, int64(count), err)
		found := 0
		for _, err := range byGoods.Lookup(ctx, s, name) {
			errs = append(errs, err)
			found++
		}
		check("index of "+name, found, count, nil)
	}
	read := 0
	for cell, err := range events.Scan(ctx, s, nil, event) {
		errs = append(errs, err)
		elements, err := hashed.Elements(cell.Row)
		check("event", elements, tuple.Pack(nameOf(read)), err)
		read++
	}
	check("events", read, orders, nil)
	n, _, err := ticks.Get(ctx, s, "clock")
	check("the clock has ticked", n > 1, true, err)
	return errors.Join(errs...)
}
