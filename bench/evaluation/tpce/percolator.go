package tpce

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	percolator "github.com/percolator-go/percolator"
)

// inPercolator is a brokerage in Percolator tables. Its client plans each transaction by hand.
type inPercolator struct {
	db      *percolator.DB
	tablets int // of each table
}

// errRollback ends a transaction whose customer has changed its mind.
var errRollback = errors.New("tpce: rolled back")

// errMissing reports a row that every store contains.
var errMissing = errors.New("tpce: a row is missing")

// get reads cells that must all exist.
func get(ctx context.Context, tx percolator.Reader, keys ...percolator.CellKey) ([]percolator.Cell, error) {
	cells, err := tx.GetMulti(ctx, keys...)
	if err == nil && len(cells) != len(keys) {
		err = fmt.Errorf("%w: %d of %d cells of %q …", errMissing, len(cells), len(keys), keys[0].Row)
	}
	return cells, err
}

func key(row string, c percolator.Column) percolator.CellKey {
	return percolator.CellKey{Row: row, Column: c}
}

// now encodes the time of a change.
func now() []byte { return encode(time.Now().UnixMilli()) }

func (s *inPercolator) tradeOrder(ctx context.Context, t trade, rollback bool) (bool, error) {
	err := s.db.Transact(ctx, func(ctx context.Context, tx *percolator.Tx) error {
		// The quote, the customer, its account, and the broker, who executes the order.
		if _, err := get(ctx, tx, key(symbolRow(t.symbol), quoteColumn),
			key(customerRow(t.account.customer), customerColumn),
			key(accountRow(t.account), accountColumn),
			key(brokerRow(t.account.broker()), brokerColumn)); err != nil {
			return err
		}
		if _, _, err := lotsOf(ctx, tx, t.account, t.symbol); err != nil {
			return err
		}
		if rollback {
			return errRollback
		}
		row := tradeRow(t.account, t.id)
		tx.Set(row, tradeColumn, encodeTrade(t))
		tx.Set(row, changeColumns[t.status], now())
		if t.status == pending {
			tx.Set(orderRow(t.symbol, t.id), orderColumn,
				encode(int64(t.account.id()), t.quantity, t.limit))
		}
		return nil
	}, percolator.Name(tradeOrder.String()))
	if errors.Is(err, errRollback) {
		return false, nil
	}
	return err == nil, err
}

// lotsOf reads an account's holding of a security: its quantity and its lots, the oldest first.
func lotsOf(ctx context.Context, tx percolator.Reader, a account, symbol int) (quantity int64, lots []lot, err error) {
	for c, err := range tx.Scan(ctx, percolator.Rows(brokerageTable).Prefix(holdingRow(a, symbol))) {
		if err != nil {
			return 0, nil, err
		}
		if c.Column == holdingColumn {
			err = decode(c.Value, &quantity)
		} else {
			var l lot
			err = decode(c.Value, &l.trade, &l.quantity, &l.price)
			lots = append(lots, l)
		}
		if err != nil {
			return 0, nil, err
		}
	}
	return quantity, lots, nil
}

func (s *inPercolator) tradeResult(ctx context.Context, t trade) error {
	return s.db.Transact(ctx, func(ctx context.Context, tx *percolator.Tx) error {
		row, accountRow := tradeRow(t.account, t.id), accountRow(t.account)
		cells, err := get(ctx, tx, key(row, tradeColumn), key(accountRow, accountColumn),
			key(customerRow(t.account.customer), customerColumn))
		if err != nil {
			return err
		}
		price := t.price
		t, err := decodeTrade(t.account, t.id, cells[0].Value)
		if err != nil || t.status == completed {
			return err
		}
		t.price = price
		var balance int64
		if err := decode(cells[1].Value, &balance); err != nil {
			return err
		}
		if err := settle(ctx, tx, t); err != nil {
			return err
		}
		t.status, t.commission = completed, commissionOf(t)
		tx.Set(row, tradeColumn, encodeTrade(t))
		tx.Set(row, changeColumns[completed], now())
		tx.Set(row, settlementColumn, encode(t.cost()))
		tx.Set(row, cashColumn, encode(t.cost()))
		tx.Set(row, commissionColumn, encode(t.commission))
		tx.Set(accountRow, accountColumn, encode(balance-t.cost()-t.commission))
		return nil
	}, percolator.Name(tradeResult.String()))
}

// settle writes the holding of an executed trade.
func settle(ctx context.Context, tx *percolator.Tx, t trade) error {
	quantity, lots, err := lotsOf(ctx, tx, t.account, t.symbol)
	if err != nil {
		return err
	}
	for _, l := range match(lots, t) {
		row := lotRow(t.account, t.symbol, l.trade)
		if l.quantity == 0 {
			tx.Delete(row, lotColumn)
		} else {
			tx.Set(row, lotColumn, encode(l.trade, l.quantity, l.price))
		}
	}
	row := holdingRow(t.account, t.symbol)
	if quantity += t.quantity; quantity == 0 {
		tx.Delete(row, holdingColumn)
	} else {
		tx.Set(row, holdingColumn, encode(quantity))
	}
	return nil
}

func (s *inPercolator) marketFeed(ctx context.Context, quotes []quote) (triggered []trade, err error) {
	err = s.db.Transact(ctx, func(ctx context.Context, tx *percolator.Tx) error {
		triggered = nil
		found := make([][]trade, len(quotes))
		g, read := errgroup.WithContext(ctx)
		for i, q := range quotes {
			g.Go(func() (err error) {
				found[i], err = readQuote(read, tx, q)
				return err
			})
		}
		if err := g.Wait(); err != nil {
			return err
		}
		var keys []percolator.CellKey
		for _, some := range found {
			for _, t := range some {
				triggered = append(triggered, t)
				keys = append(keys, key(tradeRow(t.account, t.id), tradeColumn))
			}
		}
		if len(keys) == 0 {
			return nil
		}
		cells, err := get(ctx, tx, keys...)
		if err != nil {
			return err
		}
		for i, c := range cells {
			t, err := decodeTrade(triggered[i].account, triggered[i].id, c.Value)
			if err != nil {
				return err
			}
			t.status = submitted
			tx.Set(c.Row, tradeColumn, encodeTrade(t))
			tx.Set(c.Row, changeColumns[submitted], now())
			tx.Delete(orderRow(t.symbol, t.id), orderColumn)
		}
		return nil
	}, percolator.Name(marketFeed.String()))
	return triggered, err
}

// readQuote reads a security and its order book, writes the new price, and returns the orders that
// it triggers.
func readQuote(ctx context.Context, tx *percolator.Tx, q quote) (triggered []trade, err error) {
	row := symbolRow(q.symbol)
	for c, err := range tx.Scan(ctx, percolator.Rows(marketTable).Prefix(row)) {
		if err != nil {
			return nil, err
		}
		if c.Column == quoteColumn {
			var price, volume int64
			if err := decode(c.Value, &price, &volume); err != nil {
				return nil, err
			}
			tx.Set(row, quoteColumn, encode(q.price, volume+q.volume))
			continue
		}
		var account, quantity, limit int64
		if err := decode(c.Value, &account, &quantity, &limit); err != nil {
			return nil, err
		}
		if triggers(quantity, limit, q.price) && len(triggered) < triggeredEach {
			id, err := orderID(c.Row)
			if err != nil {
				return nil, err
			}
			triggered = append(triggered, trade{account: accountOf(int(account)), id: id})
		}
	}
	return triggered, nil
}

func (s *inPercolator) customerPosition(ctx context.Context, customer int,
	history bool) (assets []int64, changes int, err error) {
	err = s.db.Transact(ctx, func(ctx context.Context, tx *percolator.Tx) error {
		changes = 0
		if assets, err = assetsOf(ctx, tx, customer); err != nil || !history {
			return err
		}
		trades := percolator.Rows(brokerageTable).Prefix(tradesPrefix(account{customer, 0})).Reverse()
		for _, err := range tx.Scan(ctx, trades.Limit(positionTrades), changeColumns[pending],
			changeColumns[submitted], changeColumns[completed]) {
			if err != nil {
				return err
			}
			changes++
		}
		return nil
	}, percolator.Name(customerPosition.String()))
	return assets, changes, err
}

// assetsOf values the accounts of a customer: balances, and holdings at the newest prices.
func assetsOf(ctx context.Context, tx percolator.Reader, customer int) ([]int64, error) {
	assets := make([]int64, accountsEach)
	type held struct {
		account  int
		quantity int64
	}
	var holdings []held
	var quotes []percolator.CellKey
	row := customerRow(customer)
	for c, err := range tx.Scan(ctx, percolator.Rows(brokerageTable).From(row).Before(row+"/i"),
		customerColumn, accountColumn, holdingColumn) {
		if err != nil {
			return nil, err
		}
		if c.Column == customerColumn {
			continue
		}
		p, err := parseRow(c.Row)
		if err != nil {
			return nil, err
		}
		var n int64
		if err := decode(c.Value, &n); err != nil {
			return nil, err
		}
		if c.Column == accountColumn {
			assets[p.account.number] += n
		} else {
			holdings = append(holdings, held{p.account.number, n})
			quotes = append(quotes, key(symbolRow(p.symbol), quoteColumn))
		}
	}
	if len(quotes) == 0 {
		return assets, nil
	}
	cells, err := get(ctx, tx, quotes...)
	if err != nil {
		return nil, err
	}
	for i, c := range cells {
		var price int64
		if err := decode(c.Value, &price); err != nil {
			return nil, err
		}
		assets[holdings[i].account] += holdings[i].quantity * price
	}
	return assets, nil
}

func (s *inPercolator) tradeStatus(ctx context.Context, a account) (trades []trade, err error) {
	err = s.db.Transact(ctx, func(ctx context.Context, tx *percolator.Tx) error {
		trades = nil
		if _, err := get(ctx, tx, key(brokerRow(a.broker()), brokerColumn),
			key(customerRow(a.customer), customerColumn)); err != nil {
			return err
		}
		newest := percolator.Rows(brokerageTable).Prefix(tradesPrefix(a)).Reverse().Limit(statusTrades)
		for c, err := range tx.Scan(ctx, newest, tradeColumn) {
			if err != nil {
				return err
			}
			p, err := parseRow(c.Row)
			if err != nil {
				return err
			}
			t, err := decodeTrade(a, p.id, c.Value)
			if err != nil {
				return err
			}
			trades = append(trades, t)
		}
		return nil
	}, percolator.Name(tradeStatus.String()))
	return trades, err
}
