package tpce

import "context"

// The sizes of a brokerage. All amounts are in cents.
const (
	customersEach = 100 // of one broker, as in TPC-E
	accountsEach  = 2   // of one customer
	symbolsEach   = 3   // in which an account holds shares at first
	lotsEach      = 2   // of one holding at first; each is the result of one trade
	deposit       = 1_000_000_00
	feedSize      = 20 // securities in one market feed, as in TPC-E
	// statusTrades is the number of trades that trade-status returns, as in TPC-E;
	// positionTrades that of customer-position.
	statusTrades, positionTrades = 50, 10
	// triggeredEach bounds the orders of one security that one market feed submits.
	triggeredEach = 20
)

// status is the state of a trade.
type status int64

const (
	pending   status = iota + 1 // a limit order in the order book
	submitted                   // sent to the market
	completed                   // executed
)

// account identifies an account by its customer and its number among the customer's accounts.
type account struct{ customer, number int }

func (a account) id() int     { return a.customer*accountsEach + a.number }
func (a account) broker() int { return a.customer / customersEach }

func accountOf(id int) account { return account{id / accountsEach, id % accountsEach} }

// trade is an order and, once it is completed, its execution.
type trade struct {
	account    account
	id         int64 // unique, ascending in the order of requests
	symbol     int
	quantity   int64 // shares; negative for a sale
	limit      int64 // price per share; 0 for a market order
	price      int64 // of the execution
	commission int64
	status     status
}

// cost is what the execution deducts from the account's balance, without the commission.
func (t trade) cost() int64 { return t.quantity * t.price }

// commissionOf returns the broker's commission: a fee and a thousandth of the value.
func commissionOf(t trade) int64 { return 500 + max(t.cost(), -t.cost())/1000 }

// triggers reports whether a price submits a limit order.
func triggers(quantity, limit, price int64) bool {
	return quantity > 0 && price <= limit || quantity < 0 && price >= limit
}

// lot is what a holding still has of the shares of one trade; negative for shares sold short.
type lot struct{ trade, quantity, price int64 }

// match executes a trade against the lots of its holding, the oldest first. It returns the lots
// that change: used ones with what is left of them, and at most one new one.
func match(lots []lot, t trade) (changed []lot) {
	left := t.quantity
	for _, l := range lots {
		if left == 0 || (l.quantity > 0) == (left > 0) {
			break // all lots of a holding have the same sign
		}
		used := min(max(left, -left), max(l.quantity, -l.quantity))
		if left < 0 {
			used = -used
		}
		l.quantity += used
		left -= used
		changed = append(changed, l)
	}
	if left != 0 {
		changed = append(changed, lot{t.id, left, t.price})
	}
	return changed
}

// quote is the new price of a security and the shares traded at it.
type quote struct {
	symbol        int
	price, volume int64
}

// store is a database with the transactions of the brokerage. Safe for concurrent use.
type store interface {
	// load fills an empty store.
	load(ctx context.Context, d *dataset) error
	// tradeOrder records a trade. A market order becomes submitted, a limit order pending. It
	// returns false if the customer has changed its mind, and the transaction was rolled back.
	tradeOrder(ctx context.Context, t trade, rollback bool) (bool, error)
	// tradeResult executes a submitted trade at its price. A trade that is completed already stays
	// as it is.
	tradeResult(ctx context.Context, t trade) error
	// marketFeed sets prices and submits the pending orders that they trigger, and returns these.
	marketFeed(ctx context.Context, quotes []quote) ([]trade, error)
	// customerPosition returns the assets of each account of a customer and, with history, the
	// number of state changes of the newest trades of its first account.
	customerPosition(ctx context.Context, customer int, history bool) (assets []int64, changes int, err error)
	// tradeStatus returns the newest trades of an account, the newest first.
	tradeStatus(ctx context.Context, a account) ([]trade, error)
	// books reads the whole store in one snapshot, after the brokers' totals have caught up.
	books(ctx context.Context) (*books, error)
}
