package tpce

import (
	"math/rand/v2"
)

// dataset generates the first state of a brokerage from a seed: each account has bought its shares
// in completed trades, so that the conditions of books.check hold from the beginning.
type dataset struct {
	seed      uint64
	customers int // a multiple of customersEach
	symbols   int // a multiple of feedSize
}

// newDataset has 500 customers and 200 securities for each unit of scale; a scale of 0 is for
// tests.
func newDataset(seed uint64, scale int) *dataset {
	if scale == 0 {
		return &dataset{seed: seed, customers: 2 * customersEach, symbols: 2 * feedSize}
	}
	return &dataset{seed: seed, customers: 500 * scale, symbols: 200 * scale}
}

func (d *dataset) brokers() int { return d.customers / customersEach }

// tradesEach is the number of initial trades of an account.
const tradesEach = symbolsEach * lotsEach

// trades returns the number of initial trades, whose ids are the first ones.
func (d *dataset) trades() int64 { return int64(d.customers * accountsEach * tradesEach) }

// basePrice is the price around which a security moves: 10.00 to 109.99.
func (d *dataset) basePrice(symbol int) int64 {
	return 1000 + int64(rand.New(rand.NewPCG(d.seed, uint64(symbol))).IntN(10_000))
}

// price returns a price within 5 % of the base price.
func (d *dataset) price(rng *rand.Rand, symbol int) int64 {
	base := d.basePrice(symbol)
	return base - base/20 + rng.Int64N(base/10)
}

// holding is an initial holding with its trades, which are its lots too.
type holding struct {
	symbol int
	trades []trade
}

func (h holding) quantity() (sum int64) {
	for _, t := range h.trades {
		sum += t.quantity
	}
	return sum
}

// holdings returns the initial holdings of an account, in ascending order of symbols.
func (d *dataset) holdings(a account) (out []holding) {
	rng := rand.New(rand.NewPCG(d.seed, 1<<32+uint64(a.id())))
	first, id := rng.IntN(d.symbols), int64(a.id()*tradesEach)
	for i := range symbolsEach {
		h := holding{symbol: (first + i*d.symbols/symbolsEach) % d.symbols}
		for range lotsEach {
			id++
			t := trade{
				account: a, id: id, symbol: h.symbol, quantity: 100 * (1 + rng.Int64N(8)),
				price: d.price(rng, h.symbol), status: completed,
			}
			t.commission = commissionOf(t)
			h.trades = append(h.trades, t)
		}
		out = append(out, h)
	}
	return out
}

// spent is what the initial trades of some holdings cost, with commissions.
func spent(holdings []holding) (sum int64) {
	for _, h := range holdings {
		for _, t := range h.trades {
			sum += t.cost() + t.commission
		}
	}
	return sum
}
