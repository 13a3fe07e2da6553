package tpce

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	percolator "github.com/percolator-go/percolator"
)

// loadedEach is the number of customers in one loading transaction.
const loadedEach = 10

// createTables makes both tables, split into equal numbers of brokers and securities.
func (s *inPercolator) createTables(ctx context.Context, d *dataset) error {
	brokerage := percolator.TableSpec{Name: brokerageTable}
	market := percolator.TableSpec{Name: marketTable}
	for i := 1; i < s.tablets; i++ {
		if at := i * d.brokers() / s.tablets; at > (i-1)*d.brokers()/s.tablets {
			brokerage.SplitKeys = append(brokerage.SplitKeys, brokerRow(at))
		}
		market.SplitKeys = append(market.SplitKeys, symbolRow(i*d.symbols/s.tablets))
	}
	return errors.Join(s.db.CreateTable(ctx, brokerage), s.db.CreateTable(ctx, market))
}

func (s *inPercolator) load(ctx context.Context, d *dataset) error {
	loader := s.db.Loader(percolator.LoaderConfig{Workers: 16})
	err := loader.Load(ctx, func(_ context.Context, tx *percolator.Tx) error {
		for symbol := range d.symbols {
			tx.Set(symbolRow(symbol), quoteColumn, encode(d.basePrice(symbol), 0))
		}
		for broker := range d.brokers() {
			first, trades := broker*customersEach*accountsEach, brokerTotals{}
			for i := range customersEach * accountsEach {
				for _, h := range d.holdings(accountOf(first + i)) {
					for _, t := range h.trades {
						trades.trades++
						trades.commission += t.commission
					}
				}
			}
			tx.Set(brokerRow(broker), brokerColumn, encode(trades.trades, trades.commission))
		}
		return nil
	})
	for first := 0; first < d.customers && err == nil; first += loadedEach {
		err = loader.Load(ctx, func(_ context.Context, tx *percolator.Tx) error {
			for customer := first; customer < min(first+loadedEach, d.customers); customer++ {
				tx.Set(customerRow(customer), customerColumn, encode(int64(1+customer%3)))
				for number := range accountsEach {
					setAccount(tx, d, account{customer, number})
				}
			}
			return nil
		})
	}
	return errors.Join(err, loader.Close())
}

// setAccount writes an account with its initial holdings and trades. Their commissions are part of
// the brokers' initial totals, and so have no cell in the side table.
func setAccount(tx *percolator.Tx, d *dataset, a account) {
	holdings := d.holdings(a)
	tx.Set(accountRow(a), accountColumn, encode(deposit-spent(holdings)))
	for _, h := range holdings {
		tx.Set(holdingRow(a, h.symbol), holdingColumn, encode(h.quantity()))
		for _, t := range h.trades {
			tx.Set(lotRow(a, h.symbol, t.id), lotColumn, encode(t.id, t.quantity, t.price))
			row := tradeRow(a, t.id)
			tx.Set(row, tradeColumn, encodeTrade(t))
			tx.Set(row, changeColumns[submitted], now())
			tx.Set(row, changeColumns[completed], now())
			tx.Set(row, settlementColumn, encode(t.cost()))
			tx.Set(row, cashColumn, encode(t.cost()))
		}
	}
}

func (s *inPercolator) books(ctx context.Context) (*books, error) {
	if err := s.db.WaitIdle(ctx); err != nil {
		return nil, err
	}
	b := newBooks()
	err := s.db.View(ctx, func(ctx context.Context, snapshot *percolator.Snapshot) error {
		for c, err := range snapshot.Scan(ctx, percolator.Rows(brokerageTable)) {
			if err != nil {
				return err
			}
			if err := b.addCell(c); err != nil {
				return fmt.Errorf("row %q, column %q: %w", c.Row, c.Column.Name, err)
			}
		}
		for c, err := range snapshot.Scan(ctx, percolator.Rows(marketTable), orderColumn) {
			if err != nil {
				return err
			}
			id, err := orderID(c.Row)
			if err != nil {
				return err
			}
			b.orders[id] = true
		}
		return nil
	})
	return b, err
}

func orderID(row string) (int64, error) {
	_, id, _ := strings.Cut(row, "/")
	return strconv.ParseInt(id, 10, 64)
}

// addCell adds a cell of the table brokerage.
func (b *books) addCell(c percolator.Cell) error {
	switch c.Column {
	case customerColumn:
		return nil
	case brokerColumn:
		broker, err := strconv.Atoi(c.Row)
		var total brokerTotals
		if err == nil {
			err = decode(c.Value, &total.trades, &total.commission)
		}
		b.brokers[broker] = total
		return err
	}
	p, err := parseRow(c.Row)
	if err != nil {
		return err
	}
	holding := holdingKey{p.account.id(), p.symbol}
	var n int64
	switch c.Column {
	case accountColumn:
		err = decode(c.Value, &n)
		b.balances[p.account.id()] = n
	case holdingColumn:
		err = decode(c.Value, &n)
		b.held[holding] = n
	case lotColumn:
		var id int64
		err = decode(c.Value, &id, &n)
		b.lots[holding] += n
	case tradeColumn:
		b.trades[p.id], err = decodeTrade(p.account, p.id, c.Value)
	case settlementColumn:
		err = decode(c.Value, &n)
		b.settled[p.id] = n
	case cashColumn:
		err = decode(c.Value, &n)
		b.paid[p.id] = n
	case commissionColumn: // its trade holds the same
	default:
		b.changes[p.id]++
	}
	return err
}
