package workload

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	percolator "github.com/percolator-go/percolator"
)

// Guard protects a cell that a transaction relies on and does not write.
type Guard func(tx *percolator.Tx, row string, col percolator.Column)

// OnCall makes pairs of doctors go on and off call. Each goes off only if it reads that the other
// one is on, so that one of each pair is always on call. Snapshot isolation alone does not ensure
// that, since the two write different cells. Before a doctor goes off, the guard of its position in
// the pair protects the other one's cell.
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
					return nobodyOnCall(name, pair, tx.StartTS())
				case off == 1:
					tx.Set(own, value, []byte("0"))
				case otherOff == 0:
					guards[me](tx, other, value)
					tx.Set(own, value, []byte("1"))
				}
				return nil
			}, percolator.Name(name))
		})
		return errors.Join(err, patiently(ctx, func() error { return checkOnCall(ctx, db, name, pairs) }))
	}
}

// checkOnCall reads all pairs in one snapshot: no transaction follows the last ones.
func checkOnCall(ctx context.Context, db *percolator.DB, name string, pairs int) error {
	s, err := db.Snapshot(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	for pair := range pairs {
		off, err := number(ctx, s, doctor(name, pair, 0))
		otherOff, otherErr := number(ctx, s, doctor(name, pair, 1))
		if err := errors.Join(err, otherErr); err != nil {
			return err
		}
		if off == 1 && otherOff == 1 {
			return nobodyOnCall(name, pair, s.StartTS())
		}
	}
	return nil
}

func nobodyOnCall(name string, pair int, at percolator.Timestamp) error {
	return fmt.Errorf("workload: %s: nobody of pair %d is on call at %d", name, pair, at)
}

// doctor returns the row of doctor i of a pair. The rows of some pairs are in one tablet, those of
// others in two.
func doctor(name string, pair, i int) string { return row(name, pair+i*(3+2*pair)) }

// Unguarded does nothing.
func Unguarded(*percolator.Tx, string, percolator.Column) {}
