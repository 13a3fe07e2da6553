package workload

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"

	percolator "github.com/percolator-go/percolator"
)

// Table is the workloads' table; split keys spread its cells over tablets.
const Table = "workload"

var value = percolator.Column{Table: Table, Name: "v"}

// Prepare creates the workloads' table with the given number of tablets.
func Prepare(ctx context.Context, db *percolator.DB, tablets int) error {
	spec := percolator.TableSpec{Name: Table}
	for i := 1; i < tablets; i++ {
		spec.SplitKeys = append(spec.SplitKeys, fmt.Sprintf("%02x", i*256/tablets))
	}
	return db.CreateTable(ctx, spec)
}

// row spreads numbered rows evenly over the table, so that neighbours lie in different tablets.
func row(kind string, i int) string { return fmt.Sprintf("%02x/%s/%d", (i*37)%256, kind, i) }

// The bank: number of accounts, and initial balance of each.
const (
	accounts = 20
	opening  = 100
)

// OpenBank writes the initial balances.
func OpenBank(ctx context.Context, db *percolator.DB) error {
	return db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
		for i := range accounts {
			tx.Set(row("bank", i), value, strconv.AppendInt(nil, opening, 10))
		}
		return nil
	})
}

// Bank transfers money between accounts while other workers sum all accounts in a snapshot: the
// sum never changes, and no checked account is overdrawn.
func Bank(ctx context.Context, db *percolator.DB, l Load) error {
	err := l.run(ctx, func(ctx context.Context, worker int, rng *rand.Rand) error {
		db := l.db(db, worker)
		if worker%4 == 3 {
			return CheckBank(ctx, db)
		}
		from, to := rng.IntN(accounts), rng.IntN(accounts)
		amount := 1 + rng.IntN(10)
		return db.Transact(ctx, func(ctx context.Context, tx *percolator.Tx) error {
			return transfer(ctx, tx, row("bank", from), row("bank", to), amount)
		}, percolator.Name("transfer"))
	})
	return errors.Join(err, patiently(ctx, func() error { return CheckBank(ctx, db) }))
}

func transfer(ctx context.Context, tx *percolator.Tx, from, to string, amount int) error {
	a, err := number(ctx, tx, from)
	if err != nil || a < amount || from == to {
		return err
	}
	b, err := number(ctx, tx, to)
	if err != nil {
		return err
	}
	tx.Set(from, value, strconv.AppendInt(nil, int64(a-amount), 10))
	tx.Set(to, value, strconv.AppendInt(nil, int64(b+amount), 10))
	return nil
}

// CheckBank sums the accounts in one snapshot.
func CheckBank(ctx context.Context, db *percolator.DB) error {
	s, err := db.Snapshot(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	sum := 0
	for i := range accounts {
		n, err := number(ctx, s, row("bank", i))
		if err != nil {
			return err
		}
		if n < 0 {
			return fmt.Errorf("workload: bank: account %d is overdrawn: %d", i, n)
		}
		sum += n
	}
	if sum != accounts*opening {
		return fmt.Errorf("workload: bank: the accounts hold %d in the snapshot at %d, not %d", sum, s.StartTS(),
			accounts*opening)
	}
	return nil
}

// number reads a cell that holds a decimal number, 0 if it does not exist.
func number(ctx context.Context, r percolator.Reader, row string) (int, error) {
	v, ok, err := r.Get(ctx, row, value)
	if err != nil || !ok {
		return 0, err
	}
	return strconv.Atoi(string(v))
}
