package tpce

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/percolator-go/percolator/bench/evaluation/postgres"
	"github.com/percolator-go/percolator/node"
)

func TestMain(m *testing.M) {
	Main()
	os.Exit(m.Run())
}

// openNode returns a brokerage in a node of this process.
func openNode(t *testing.T) *inPercolator {
	cfg := node.DefaultConfig()
	cfg.Dir, cfg.Listen, cfg.HTTP, cfg.Insecure, cfg.Observers = t.TempDir(), "127.0.0.1:0", "", true, observe
	n, err := node.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return &inPercolator{db: n.DB(), tablets: 3}
}

// runMix runs a fixed number of transactions and returns how many there were of each kind.
func runMix(t *testing.T, e *emulator, workers, each int) (ran [kinds]int) {
	t.Helper()
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(t.Context())
	for i := range workers {
		g.Go(func() error {
			w := e.worker(i)
			for range each {
				k, err := w.next(ctx)
				if err != nil {
					return err
				}
				mu.Lock()
				ran[k]++
				mu.Unlock()
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	return ran
}

// TestMix: the mix leaves consistent books in both stores.
func TestMix(t *testing.T) {
	stores := map[string]func(*testing.T) store{
		"Percolator": func(t *testing.T) store {
			s := openNode(t)
			if err := s.createTables(t.Context(), newDataset(1, 0)); err != nil {
				t.Fatal(err)
			}
			return s
		},
		"PostgreSQL": func(t *testing.T) store {
			dir := t.TempDir()
			// searchable by the server's user
			if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
				t.Fatal(err)
			}
			s, err := openPostgres(t.Context(), dir)
			if errors.Is(err, postgres.ErrMissing) {
				t.Skip(err)
			} else if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.server.Close() }) // before its directory
			return s
		},
	}
	for name, open := range stores {
		t.Run(name, func(t *testing.T) {
			d := newDataset(1, 0)
			s := open(t)
			if err := s.load(t.Context(), d); err != nil {
				t.Fatal(err)
			}
			e := newEmulator(d, s)
			if err := e.verify(t.Context()); err != nil {
				t.Fatal("after loading:", err)
			}
			ran := runMix(t, e, 8, 150)
			if err := e.verify(t.Context()); err != nil {
				t.Fatal(err)
			}
			for k, n := range ran {
				if n == 0 {
					t.Errorf("no %s ran", kind(k))
				}
			}
			if err := e.worker(0).drain(t.Context()); err != nil {
				t.Fatal(err)
			}
			b, err := s.books(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for id, state := range e.states {
				if state == submitted || b.trades[id].status == submitted {
					t.Errorf("trade %d waits for its execution in an empty market", id)
				}
			}
			done := len(b.trades) - len(b.orders)
			t.Logf("%v: %d trades completed, %d pending", ran, done, len(b.orders))
		})
	}
}

// TestBooksCheck: each condition is reported when it is violated.
func TestBooksCheck(t *testing.T) {
	d := newDataset(1, 0)
	consistent := func() *books {
		b := newBooks()
		for id := range d.customers * accountsEach {
			a := accountOf(id)
			holdings := d.holdings(a)
			b.balances[id] = deposit - spent(holdings)
			for _, h := range holdings {
				k := holdingKey{id, h.symbol}
				b.held[k], b.lots[k] = h.quantity(), h.quantity()
				for _, t := range h.trades {
					b.trades[t.id], b.changes[t.id] = t, 2
					b.settled[t.id], b.paid[t.id] = t.cost(), t.cost()
					total := b.brokers[a.broker()]
					b.brokers[a.broker()] = brokerTotals{total.trades + 1, total.commission + t.commission}
				}
			}
		}
		return b
	}
	r := requested{highest: d.trades()}
	if err := consistent().check(d, r); err != nil {
		t.Fatal(err)
	}
	held := holdingKey{0, d.holdings(account{})[0].symbol}
	for want, violate := range map[string]func(b *books){
		"broker 1 has":              func(b *books) { b.brokers[1] = brokerTotals{1, 2} },
		"0 brokers":                 func(b *books) { clear(b.brokers) },
		"account 3 has a balance":   func(b *books) { b.balances[3]++ },
		"account 0 holds":           func(b *books) { b.held[held]-- },
		"lots of":                   func(b *books) { b.lots[held]-- },
		"account 9 holds 1 shares":  func(b *books) { b.held[holdingKey{9, 1 << 20}] = 1 },
		"has 1 recorded changes":    func(b *books) { b.changes[5] = 1 },
		"in the order book: true":   func(b *books) { b.orders[5] = true },
		"has no trade":              func(b *books) { b.orders[d.trades()+1] = true },
		"trade 7 in state 3 costs":  func(b *books) { b.paid[7]++ },
		"settled false":             func(b *books) { delete(b.settled, 7) },
		"the highest requested is":  func(b *books) { b.trades[d.trades()+1] = b.trades[1] },
		"of the beginning is lost":  func(b *books) { delete(b.trades, 1) },
		"was acknowledged in state": func(b *books) { delete(b.trades, 2) },
	} {
		b, r := consistent(), r
		r.states = map[int64]status{2: completed}
		violate(b)
		if err := b.check(d, r); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error with %q, got: %v", want, err)
		}
	}
}

// TestMatch: a trade uses the oldest lots of the opposite sign, and leaves the rest as a new lot.
func TestMatch(t *testing.T) {
	lots := []lot{{1, 100, 10}, {2, 200, 20}}
	for name, c := range map[string]struct {
		lots     []lot
		quantity int64
		want     []lot
	}{
		"buy":        {lots, 50, []lot{{9, 50, 30}}},
		"sell part":  {lots, -150, []lot{{1, 0, 10}, {2, 150, 20}}},
		"sell all":   {lots, -300, []lot{{1, 0, 10}, {2, 0, 20}}},
		"sell short": {lots, -400, []lot{{1, 0, 10}, {2, 0, 20}, {9, -100, 30}}},
		"buy back":   {[]lot{{3, -100, 10}}, 250, []lot{{3, 0, 10}, {9, 150, 30}}},
	} {
		got := match(c.lots, trade{id: 9, quantity: c.quantity, price: 30})
		if len(got) != len(c.want) {
			t.Fatalf("%s: %v; want %v", name, got, c.want)
		}
		for i := range got {
			if got[i] != c.want[i] {
				t.Errorf("%s: %v; want %v", name, got, c.want)
			}
		}
	}
}
