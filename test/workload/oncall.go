package workload

import (
	"context"
	"fmt"
	"math/rand/v2"

	percolator "github.com/percolator-go/percolator"
)

// Guard is what a transaction does about a cell that it relies on and does not write.
type Guard func(tx *percolator.Tx, row string, col percolator.Column)

// OnCall has pairs of doctors go on call and off, each only while it reads that the other one
// is on: somebody of each pair always is. Snapshot isolation alone does not keep that, for
// the two write different cells. The guards, one for each of a pair, are told of the other
// one's cell before a doctor goes off.
func OnCall(name string, guards [2]Guard) func(context.Context, *percolator.DB, Load) error {
	const pairs = 3
	return func(ctx context.Context, db *percolator.DB, l Load) error {
		err := l.run(ctx, func(ctx context.Context, worker int, rng *rand.Rand) error {
			pair, me := rng.IntN(pairs), rng.IntN(2)
			return l.db(db, worker).Transact(ctx, func(ctx context.Context, tx *percolator.Tx) error {
				own, other := doctor(name, pair, me), doctor(name, pair, 1-me)
				off, err := number(ctx, tx, own)
				if err != nil {
					return err
				}
				otherOff, err := number(ctx, tx, other)
				switch {
				case err != nil:
					return err
				case off == 1 && otherOff == 1:
					return fmt.Errorf("workload: %s: nobody of pair %d is on call at %d", name, pair,
						tx.StartTS())
				case off == 1:
					tx.Set(own, value, []byte("0"))
				case otherOff == 0:
					guards[me](tx, other, value)
					tx.Set(own, value, []byte("1"))
				}
				return nil
			}, percolator.Name(name))
		})
		return err
	}
}

// doctor is the row of one; those of a pair are in different tablets, or not.
func doctor(name string, pair, i int) string { return row(name, pair+i*(3+2*pair)) }

// Unguarded does nothing.
func Unguarded(*percolator.Tx, string, percolator.Column) {}
