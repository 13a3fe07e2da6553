package workload

import (
	"context"
	"math/rand/v2"

	percolator "github.com/percolator-go/percolator"
)

// Transfers transfers money between accounts and checks nothing, for clients that will be killed.
func Transfers(ctx context.Context, db *percolator.DB, l Load) error {
	return l.run(ctx, func(ctx context.Context, worker int, rng *rand.Rand) error {
		from, to := rng.IntN(accounts), rng.IntN(accounts)
		amount := 1 + rng.IntN(10)
		return l.db(db, worker).Transact(ctx, func(ctx context.Context, tx *percolator.Tx) error {
			return transfer(ctx, tx, row("bank", from), row("bank", to), amount)
		}, percolator.Name("transfer"))
	})
}
