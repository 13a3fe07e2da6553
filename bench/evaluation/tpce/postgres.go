package tpce

import (
	"context"
	_ "embed"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/percolator-go/percolator/bench/evaluation/postgres"
)

// postgresSchema has the tables, and each transaction as a stored procedure, as in TPC-E: one
// message each way.
//
//go:embed postgres.sql
var postgresSchema string

// inPostgres is a brokerage in PostgreSQL, at its default isolation: each procedure locks the rows
// that it reads and then writes. The broker's row is updated by each execution of a trade.
type inPostgres struct{ server *postgres.Server }

func openPostgres(ctx context.Context, dir string) (*inPostgres, error) {
	// Large enough for all data; the other settings are Debian's.
	s, err := postgres.Start(ctx, dir, postgresSchema, "shared_buffers=256MB", "max_wal_size=4GB")
	return &inPostgres{s}, err
}

// retried runs a procedure again while it is the victim of a deadlock.
func retried(ctx context.Context, fn func() error) error {
	for {
		err := fn()
		var failed *pgconn.PgError
		if ctx.Err() != nil || !errors.As(err, &failed) || failed.Code != "40P01" {
			return err
		}
	}
}

func (s *inPostgres) tradeOrder(ctx context.Context, t trade, rollback bool) (ok bool, err error) {
	err = s.server.Pool.QueryRow(ctx, `SELECT trade_order($1, $2, $3, $4, $5, $6, $7)`, t.id,
		t.account.id(), t.symbol, t.quantity, t.limit, int64(t.status), rollback).Scan(&ok)
	return ok, err
}

func (s *inPostgres) tradeResult(ctx context.Context, t trade) error {
	return retried(ctx, func() error {
		_, err := s.server.Pool.Exec(ctx, `SELECT trade_result($1, $2)`, t.id, t.price)
		return err
	})
}

func (s *inPostgres) marketFeed(ctx context.Context, quotes []quote) (triggered []trade, err error) {
	symbols, prices, volumes := make([]int, len(quotes)), make([]int64, len(quotes)), make([]int64, len(quotes))
	for i, q := range quotes {
		symbols[i], prices[i], volumes[i] = q.symbol, q.price, q.volume
	}
	err = retried(ctx, func() error {
		rows, err := s.server.Pool.Query(ctx,
			`SELECT id, account, symbol, quantity, limit_price, 0, 0, 2 FROM market_feed($1, $2, $3)`,
			symbols, prices, volumes)
		if err != nil {
			return err
		}
		triggered, err = pgx.CollectRows(rows, scanTrade)
		return err
	})
	return triggered, err
}

const tradeColumns = "id, account, symbol, quantity, limit_price, price, commission, status"

// scanTrade scans tradeColumns.
func scanTrade(row pgx.CollectableRow) (t trade, err error) {
	var account int
	err = row.Scan(&t.id, &account, &t.symbol, &t.quantity, &t.limit, &t.price, &t.commission, (*int64)(&t.status))
	t.account = accountOf(account)
	return t, err
}

func (s *inPostgres) customerPosition(ctx context.Context, customer int,
	history bool) (assets []int64, changes int, err error) {
	err = s.server.Pool.QueryRow(ctx, `SELECT assets, changes FROM customer_position($1, $2, $3)`, customer,
		history, positionTrades).Scan(&assets, &changes)
	return assets, changes, err
}

func (s *inPostgres) tradeStatus(ctx context.Context, a account) ([]trade, error) {
	rows, err := s.server.Pool.Query(ctx, `SELECT `+tradeColumns+` FROM trade_status($1, $2)`, a.id(), statusTrades)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scanTrade)
}

func (s *inPostgres) load(ctx context.Context, d *dataset) error {
	tables := map[string][][]any{}
	add := func(table string, values ...any) { tables[table] = append(tables[table], values) }
	for symbol := range d.symbols {
		add("security", symbol, d.basePrice(symbol), 0)
	}
	totals := make([]brokerTotals, d.brokers())
	for id := range d.customers * accountsEach {
		a, at := accountOf(id), time.Now()
		if a.number == 0 {
			add("customer", a.customer, a.broker(), 1+a.customer%3)
		}
		holdings := d.holdings(a)
		add("account", id, a.customer, deposit-spent(holdings))
		for _, h := range holdings {
			add("holding", id, h.symbol, h.quantity())
			for _, t := range h.trades {
				add("lot", id, h.symbol, t.id, t.quantity, t.price)
				add("trade", t.id, id, h.symbol, t.quantity, t.limit, t.price, t.commission, int64(t.status))
				add("change", t.id, int64(submitted), at)
				add("change", t.id, int64(completed), at)
				add("settlement", t.id, t.cost())
				add("cash", t.id, t.cost())
				totals[a.broker()].trades++
				totals[a.broker()].commission += t.commission
			}
		}
	}
	for broker, total := range totals {
		add("broker", broker, total.trades, total.commission)
	}
	for table, rows := range tables {
		if err := s.copyRows(ctx, table, rows); err != nil {
			return err
		}
	}
	_, err := s.server.Pool.Exec(ctx, `ANALYZE`)
	return err
}

// copyRows loads a table; each row has all columns, in their order.
func (s *inPostgres) copyRows(ctx context.Context, table string, rows [][]any) error {
	names, err := s.server.Pool.Query(ctx, `SELECT column_name::text FROM information_schema.columns
		WHERE table_name = $1 ORDER BY ordinal_position`, table)
	if err != nil {
		return err
	}
	columns, err := pgx.CollectRows(names, pgx.RowTo[string])
	if err != nil {
		return err
	}
	_, err = s.server.Pool.CopyFrom(ctx, pgx.Identifier{table}, columns, pgx.CopyFromRows(rows))
	return err
}

func (s *inPostgres) books(ctx context.Context) (*books, error) {
	b := newBooks()
	tx, err := s.server.Pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback(ctx) }() // it only reads
	var x, y int
	var n, m int64
	for _, read := range []struct {
		query string
		into  []any
		add   func()
	}{
		{`SELECT id, trades, commission FROM broker`, []any{&x, &n, &m},
			func() { b.brokers[x] = brokerTotals{n, m} }},
		{`SELECT id, balance FROM account`, []any{&x, &n}, func() { b.balances[x] = n }},
		{`SELECT account, symbol, quantity FROM holding`, []any{&x, &y, &n},
			func() { b.held[holdingKey{x, y}] = n }},
		{`SELECT account, symbol, quantity FROM lot`, []any{&x, &y, &n},
			func() { b.lots[holdingKey{x, y}] += n }},
		{`SELECT trade FROM change`, []any{&n}, func() { b.changes[n]++ }},
		{`SELECT trade, amount FROM settlement`, []any{&n, &m}, func() { b.settled[n] = m }},
		{`SELECT trade, amount FROM cash`, []any{&n, &m}, func() { b.paid[n] = m }},
		{`SELECT trade FROM request`, []any{&n}, func() { b.orders[n] = true }},
	} {
		rows, err := tx.Query(ctx, read.query)
		if err != nil {
			return nil, err
		}
		if _, err := pgx.ForEachRow(rows, read.into, func() error { read.add(); return nil }); err != nil {
			return nil, err
		}
	}
	rows, err := tx.Query(ctx, `SELECT `+tradeColumns+` FROM trade`)
	if err != nil {
		return nil, err
	}
	trades, err := pgx.CollectRows(rows, scanTrade)
	for _, t := range trades {
		b.trades[t.id] = t
	}
	return b, err
}
