package tpce

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	percolator "github.com/percolator-go/percolator"
)

// Rows of the table brokerage, all beginning with a broker:
//
//	00012                          a broker: totals
//	00012/0001234                  a customer
//	00012/0001234/a/1              an account: balance
//	00012/0001234/h/1/00042        a holding of the account: quantity
//	00012/0001234/h/1/00042/ID     a lot of it, by trade
//	00012/0001234/t/1/ID           a trade, with its changes of state, settlement and cash transaction
//
// Rows of the table market:
//
//	00042                          a security: price and volume
//	00042/ID                       a limit order for it: the order book, an index of pending trades
const (
	brokerageTable = "brokerage"
	marketTable    = "market"
)

func column(table, name string) percolator.Column {
	return percolator.Column{Table: table, Name: name}
}

var (
	brokerColumn     = column(brokerageTable, "broker")
	customerColumn   = column(brokerageTable, "customer")
	accountColumn    = column(brokerageTable, "account")
	holdingColumn    = column(brokerageTable, "holding")
	lotColumn        = column(brokerageTable, "lot")
	tradeColumn      = column(brokerageTable, "trade")
	settlementColumn = column(brokerageTable, "settlement")
	cashColumn       = column(brokerageTable, "cash")
	// commissionColumn is the side table of the brokers: each cell is an increment of a broker's
	// totals, which the observer adds.
	commissionColumn = column(brokerageTable, "commission")
	// changeColumns hold the time at which a trade has reached a state.
	changeColumns = map[status]percolator.Column{
		pending:   column(brokerageTable, "pending"),
		submitted: column(brokerageTable, "submitted"),
		completed: column(brokerageTable, "completed"),
	}
	quoteColumn = column(marketTable, "quote")
	orderColumn = column(marketTable, "order")
)

// digits formats n with leading zeros, so that rows are in numeric order.
func digits(n, width int) string {
	s := strconv.Itoa(n)
	return strings.Repeat("0", max(0, width-len(s))) + s
}

func brokerRow(broker int) string { return digits(broker, 5) }

func customerRow(customer int) string {
	return brokerRow(customer/customersEach) + "/" + digits(customer, 7)
}

func accountRow(a account) string {
	return customerRow(a.customer) + "/a/" + strconv.Itoa(a.number)
}

func holdingRow(a account, symbol int) string {
	return customerRow(a.customer) + "/h/" + strconv.Itoa(a.number) + "/" + symbolRow(symbol)
}

func lotRow(a account, symbol int, trade int64) string {
	return holdingRow(a, symbol) + "/" + idDigits(trade)
}

func tradesPrefix(a account) string {
	return customerRow(a.customer) + "/t/" + strconv.Itoa(a.number) + "/"
}

func tradeRow(a account, id int64) string { return tradesPrefix(a) + idDigits(id) }

func symbolRow(symbol int) string { return digits(symbol, 5) }

func orderRow(symbol int, trade int64) string { return symbolRow(symbol) + "/" + idDigits(trade) }

func idDigits(id int64) string { return digits(int(id), 12) }

// path is a parsed row.
type path struct {
	account account
	symbol  int
	id      int64
}

// parseRow parses a row of an account, a holding, a lot or a trade of the table brokerage.
func parseRow(row string) (p path, err error) {
	parts := strings.Split(row, "/")
	if len(parts) < 4 {
		return p, fmt.Errorf("tpce: row %q has no account", row)
	}
	number := func(s string) (n int) {
		if err == nil {
			n, err = strconv.Atoi(s)
		}
		return n
	}
	p.account = account{number(parts[1]), number(parts[3])}
	rest := parts[4:]
	if parts[2] == "h" && len(rest) > 0 {
		p.symbol, rest = number(rest[0]), rest[1:]
	}
	if len(rest) > 0 {
		p.id = int64(number(rest[0]))
	}
	return p, err
}

// encode and decode convert the numbers of a cell.
func encode(numbers ...int64) []byte {
	out := make([]byte, 0, 4*len(numbers))
	for _, n := range numbers {
		out = binary.AppendVarint(out, n)
	}
	return out
}

func decode(value []byte, numbers ...*int64) error {
	for _, n := range numbers {
		v, size := binary.Varint(value)
		if size <= 0 {
			return fmt.Errorf("tpce: a cell holds fewer than %d numbers", len(numbers))
		}
		*n, value = v, value[size:]
	}
	return nil
}

func encodeTrade(t trade) []byte {
	return encode(int64(t.symbol), t.quantity, t.limit, t.price, t.commission, int64(t.status))
}

func decodeTrade(a account, id int64, value []byte) (trade, error) {
	t := trade{account: a, id: id}
	var symbol, state int64
	err := decode(value, &symbol, &t.quantity, &t.limit, &t.price, &t.commission, &state)
	t.symbol, t.status = int(symbol), status(state)
	return t, err
}
