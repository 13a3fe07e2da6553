package tpce

import (
	"errors"
	"fmt"
)

// books is the content of a store in one snapshot.
type books struct {
	brokers  map[int]brokerTotals
	balances map[int]int64 // by account id
	held     map[holdingKey]int64
	lots     map[holdingKey]int64 // sum of the quantities
	trades   map[int64]trade
	changes  map[int64]int   // number of recorded state changes of a trade
	settled  map[int64]int64 // amount of the settlement of a trade
	paid     map[int64]int64 // amount of the cash transaction of a trade
	orders   map[int64]bool  // trades in the order book
}

type brokerTotals struct{ trades, commission int64 }

type holdingKey struct{ account, symbol int }

func newBooks() *books {
	return &books{
		brokers: map[int]brokerTotals{}, balances: map[int]int64{},
		held: map[holdingKey]int64{}, lots: map[holdingKey]int64{}, trades: map[int64]trade{},
		changes: map[int64]int{}, settled: map[int64]int64{}, paid: map[int64]int64{},
		orders: map[int64]bool{},
	}
}

// requested is what an emulator knows of the trades that it has requested.
type requested struct {
	highest int64            // the highest id
	states  map[int64]status // acknowledged states; a trade of unknown outcome is absent
}

// maxViolations bounds the violations that an error lists.
const maxViolations = 20

// check returns an error that lists violated conditions.
func (b *books) check(d *dataset, r requested) error {
	var errs []error
	violation := func(format string, args ...any) {
		if len(errs) < maxViolations {
			errs = append(errs, fmt.Errorf("tpce: "+format, args...))
		}
	}
	b.checkTotals(d, violation)
	b.checkTrades(d, r, violation)
	return errors.Join(errs...)
}

// checkTotals compares brokers, balances and holdings with the sums of the trades.
func (b *books) checkTotals(d *dataset, violation func(string, ...any)) {
	brokers, balances, held := map[int]brokerTotals{}, map[int]int64{}, map[holdingKey]int64{}
	for id := range d.customers * accountsEach {
		balances[id] = deposit
	}
	for broker := range d.brokers() {
		brokers[broker] = brokerTotals{}
	}
	for _, t := range b.trades {
		if t.status != completed {
			continue
		}
		total := brokers[t.account.broker()]
		brokers[t.account.broker()] = brokerTotals{total.trades + 1, total.commission + t.commission}
		balances[t.account.id()] -= t.cost() + t.commission
		held[holdingKey{t.account.id(), t.symbol}] += t.quantity
	}
	if len(b.brokers) != len(brokers) || len(b.balances) != len(balances) {
		violation("%d brokers and %d accounts; want %d and %d", len(b.brokers), len(b.balances),
			len(brokers), len(balances))
	}
	for broker, want := range brokers {
		if got := b.brokers[broker]; got != want {
			violation("broker %d has %d trades and a commission of %d; its trades sum to %d and %d",
				broker, got.trades, got.commission, want.trades, want.commission)
		}
	}
	for id, want := range balances {
		if got := b.balances[id]; got != want {
			violation("account %d has a balance of %d; its trades leave %d", id, got, want)
		}
	}
	for key := range b.held {
		held[key] += 0 // so that a holding without trades is compared, too
	}
	for key := range b.lots {
		held[key] += 0
	}
	for key, want := range held {
		if b.held[key] != want || b.lots[key] != want {
			violation("account %d holds %d shares of %d, and lots of %d; its trades sum to %d",
				key.account, b.held[key], key.symbol, b.lots[key], want)
		}
	}
}

// checkTrades checks each trade with what belongs to it, and that exactly the requested ones exist.
func (b *books) checkTrades(d *dataset, r requested, violation func(string, ...any)) {
	for id, t := range b.trades {
		changes := int(t.status)
		if t.limit == 0 {
			changes-- // a market order is never pending
		}
		if b.changes[id] != changes {
			violation("trade %d in state %d has %d recorded changes; want %d", id, t.status,
				b.changes[id], changes)
		}
		if b.orders[id] != (t.status == pending) {
			violation("trade %d in state %d: in the order book: %t", id, t.status, b.orders[id])
		}
		amount, done := b.settled[id]
		paid, also := b.paid[id]
		if done != (t.status == completed) || also != done || done && (amount != t.cost() || paid != amount) {
			violation("trade %d in state %d costs %d; settled %t %d, paid %t %d", id, t.status,
				t.cost(), done, amount, also, paid)
		}
		if id < 1 || id > r.highest {
			violation("trade %d exists; the highest requested is %d", id, r.highest)
		}
	}
	for id := range b.orders {
		if _, ok := b.trades[id]; !ok {
			violation("order %d has no trade", id)
		}
	}
	for id := int64(1); id <= d.trades(); id++ {
		if _, ok := b.trades[id]; !ok {
			violation("trade %d of the beginning is lost", id)
		}
	}
	for id, want := range r.states {
		if got := b.trades[id].status; got < want {
			violation("trade %d was acknowledged in state %d, and is in state %d", id, want, got)
		}
	}
}
