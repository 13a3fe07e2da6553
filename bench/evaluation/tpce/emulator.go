package tpce

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
)

// kind is a transaction of the mix.
type kind int

const (
	tradeStatus kind = iota
	customerPosition
	tradeOrder
	tradeResult
	marketFeed
	kinds
)

func (k kind) String() string {
	return [...]string{"trade-status", "customer-position", "trade-order", "trade-result",
		"market-feed"}[k]
}

// shares are TPC-E's shares of the five transactions, in tenths of a percent of all ten.
var shares = [kinds]int{tradeStatus: 190, customerPosition: 130, tradeOrder: 101, tradeResult: 100,
	marketFeed: 10}

// deck holds each transaction as many times as its share.
var deck = func() (d []kind) {
	for k, n := range shares {
		for range n {
			d = append(d, kind(k))
		}
	}
	return d
}()

// Shares of requests, in percent, as in TPC-E.
const (
	limitOrders = 40
	rolledBack  = 1
	withHistory = 50
)

// maxSubmitted bounds the trades that wait for their execution; above it no orders are placed.
const maxSubmitted = 1 << 14

// emulator sends the requests of customers and of the market, and records what was acknowledged.
type emulator struct {
	data      *dataset
	store     store
	trades    atomic.Int64 // the highest id of a trade
	feeds     atomic.Int64
	submitted chan trade // waiting for their execution

	mu     sync.Mutex
	states map[int64]status
}

func newEmulator(d *dataset, s store) *emulator {
	e := &emulator{
		data: d, store: s, submitted: make(chan trade, maxSubmitted), states: map[int64]status{},
	}
	e.trades.Store(d.trades())
	return e
}

// requested returns what books.check needs. No request may be running.
func (e *emulator) requested() requested { return requested{e.trades.Load(), e.states} }

// worker sends requests one after another, in an order that its seed determines.
type worker struct {
	*emulator
	rng   *rand.Rand
	cards []kind // left of the deck
}

func (e *emulator) worker(i int) *worker {
	return &worker{emulator: e, rng: rand.New(rand.NewPCG(e.data.seed, 2<<32+uint64(i)))}
}

// next runs the next transaction and returns its kind.
func (w *worker) next(ctx context.Context) (kind, error) {
	if len(w.cards) == 0 {
		w.cards = append(w.cards, deck...)
		w.rng.Shuffle(len(w.cards), func(i, j int) {
			w.cards[i], w.cards[j] = w.cards[j], w.cards[i]
		})
	}
	k := w.cards[0]
	w.cards = w.cards[1:]
	switch k {
	case tradeStatus:
		return k, w.status(ctx)
	case customerPosition:
		return k, w.position(ctx)
	case tradeOrder:
		return w.order(ctx)
	case tradeResult:
		return w.result(ctx)
	default:
		return k, w.feed(ctx)
	}
}

func (w *worker) account() account {
	return accountOf(w.rng.IntN(w.data.customers * accountsEach))
}

func (w *worker) status(ctx context.Context) error {
	trades, err := w.store.tradeStatus(ctx, w.account())
	if err == nil && len(trades) < tradesEach {
		err = fmt.Errorf("tpce: an account has %d trades; it began with %d", len(trades), tradesEach)
	}
	return err
}

func (w *worker) position(ctx context.Context) error {
	history := w.rng.IntN(100) < withHistory
	assets, changes, err := w.store.customerPosition(ctx, w.rng.IntN(w.data.customers), history)
	if err == nil && (len(assets) != accountsEach || history != (changes > 0)) {
		err = fmt.Errorf("tpce: a customer has %d accounts and %d changes of trades", len(assets), changes)
	}
	return err
}

// order places an order, or executes one if too many wait.
func (w *worker) order(ctx context.Context) (kind, error) {
	if len(w.submitted) > maxSubmitted/2 {
		return w.result(ctx)
	}
	t := trade{
		account: w.account(), symbol: w.rng.IntN(w.data.symbols),
		quantity: 100 * (1 + w.rng.Int64N(8)), status: submitted,
	}
	if w.rng.IntN(2) == 0 {
		t.quantity = -t.quantity
	}
	if w.rng.IntN(100) < limitOrders {
		t.limit, t.status = w.data.price(w.rng, t.symbol), pending
	}
	rollback := w.rng.IntN(100) < rolledBack
	t.id = w.trades.Add(1)
	ok, err := w.store.tradeOrder(ctx, t, rollback)
	if err != nil || !ok {
		return tradeOrder, err
	}
	w.acknowledge(t)
	if t.status == submitted {
		w.submit(ctx, t)
	}
	return tradeOrder, nil
}

// submit queues a trade for its execution.
func (e *emulator) submit(ctx context.Context, t trade) {
	select {
	case e.submitted <- t:
	case <-ctx.Done():
	}
}

func (e *emulator) acknowledge(t trade) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.states[t.id] = max(e.states[t.id], t.status)
}

// result executes the trade that waits longest, or places an order if none does.
func (w *worker) result(ctx context.Context) (kind, error) {
	select {
	case t := <-w.submitted:
		return tradeResult, w.execute(ctx, t)
	default:
		return w.order(ctx)
	}
}

// execute executes a trade. After an error it is queued again.
func (w *worker) execute(ctx context.Context, t trade) error {
	t.price = w.data.price(w.rng, t.symbol)
	if err := w.store.tradeResult(ctx, t); err != nil {
		w.submit(ctx, t)
		return err
	}
	t.status = completed
	w.acknowledge(t)
	return nil
}

// feed sends prices of one group of securities. Successive feeds send different groups, so
// concurrent ones rarely send the same.
func (w *worker) feed(ctx context.Context) error {
	groups := w.data.symbols / feedSize
	group := int(w.feeds.Add(1)) % groups
	quotes := make([]quote, feedSize)
	for i := range quotes {
		symbol := group + i*groups
		quotes[i] = quote{symbol, w.data.price(w.rng, symbol), 1 + w.rng.Int64N(1000)}
	}
	triggered, err := w.store.marketFeed(ctx, quotes)
	for _, t := range triggered {
		t.status = submitted
		w.acknowledge(t)
		w.submit(ctx, t)
	}
	return err
}

// drain executes all waiting trades.
func (w *worker) drain(ctx context.Context) error {
	for {
		select {
		case t := <-w.submitted:
			if err := w.execute(ctx, t); err != nil {
				return err
			}
		default:
			return nil
		}
	}
}

// verify checks the store against what was acknowledged.
func (e *emulator) verify(ctx context.Context) error {
	b, err := e.store.books(ctx)
	if err != nil {
		return fmt.Errorf("tpce: read the books: %w", err)
	}
	if len(b.trades) == 0 {
		return errors.New("tpce: the books are empty")
	}
	return b.check(e.data, e.requested())
}
