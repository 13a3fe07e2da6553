package workload

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"

	percolator "github.com/percolator-go/percolator"
)

// The workload of waits for effects. It checks only the repository, so that its observers may run
// anywhere.

// Effects runs a chain of three observers from row to row, strong, weak and strong. Its workers
// wait for the effects of their commits (DB.WaitFor), which must then be visible.
type Effects struct{}

// The columns of a chain: a row's start and end, and what is between.
var (
	effectsTable = "effects"
	effectsStart = percolator.Column{Table: effectsTable, Name: "start"}
	effectsNext  = percolator.Column{Table: effectsTable, Name: "next"}
	effectsKick  = percolator.Column{Table: effectsTable, Name: "kick"}
	effectsLast  = percolator.Column{Table: effectsTable, Name: "last"}
	effectsEnd   = percolator.Column{Table: effectsTable, Name: "end"}
)

// effectsRows is the number of chains; several workers may use one.
const effectsRows = 6

// Table is what the observers need.
func (Effects) Table() percolator.TableSpec {
	return percolator.TableSpec{Name: effectsTable, SplitKeys: []string{"m"}}
}

// Register registers the observers. The rows between are in both tablets.
func (Effects) Register(r *percolator.Registry) {
	follow := func(from, to percolator.Column, prefix string) percolator.ObserverFunc {
		return func(ctx context.Context, tx *percolator.Tx, n percolator.Notification) error {
			row := n.Row
			if from != effectsStart {
				row = row[1:]
			}
			reached, err := numberAt(ctx, tx, n.Row, from)
			if err != nil {
				return err
			}
			// A weak run may have read less than what is there.
			had, err := numberAt(ctx, tx, prefix+row, to)
			if err != nil {
				return err
			}
			tx.Set(prefix+row, to, []byte(strconv.Itoa(max(had, reached))))
			if to == effectsNext {
				tx.Notify(prefix+row, effectsKick)
			}
			return nil
		}
	}
	r.Strong("effects start", effectsStart, follow(effectsStart, effectsNext, "z"))
	r.Weak("effects next", effectsKick, follow(effectsNext, effectsLast, "a"))
	r.Strong("effects last", effectsLast, follow(effectsLast, effectsEnd, ""))
}

// Run is the workload.
func (Effects) Run(ctx context.Context, db *percolator.DB, l Load) error {
	return l.run(ctx, func(ctx context.Context, worker int, rng *rand.Rand) error {
		return beginAndWait(ctx, l.db(db, worker), fmt.Sprintf("r%d", rng.IntN(effectsRows)))
	})
}

// beginAndWait increments the number at the row's start, and expects it at the end after WaitFor.
func beginAndWait(ctx context.Context, db *percolator.DB, row string) error {
	var to int
	var at percolator.Timestamp
	err := db.Transact(ctx, func(ctx context.Context, tx *percolator.Tx) error {
		had, err := numberAt(ctx, tx, row, effectsStart)
		to = had + 1
		tx.Set(row, effectsStart, []byte(strconv.Itoa(to)))
		return err
	}, percolator.Name("effects"), percolator.CommittedAt(&at))
	if err != nil {
		return err
	}
	unfinished, err := db.WaitFor(ctx, at)
	if err != nil || len(unfinished) > 0 { // no node runs the observers, or runs were parked
		return err
	}
	s, err := db.Snapshot(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	reached, err := numberAt(ctx, s, row, effectsEnd)
	if err == nil && reached < to {
		err = fmt.Errorf("workload: effects: EFFECT-MISSING: row %s is at %d in the snapshot at %d, "+
			"although the wait for the commit at %d, which made it %d, has ended", row, reached, s.StartTS(), at, to)
	}
	return err
}

// numberAt returns the number in a cell, or 0 if there is none.
func numberAt(ctx context.Context, r percolator.Reader, row string,
	col percolator.Column) (int, error) {
	text, ok, err := r.Get(ctx, row, col)
	if err != nil || !ok {
		return 0, err
	}
	return strconv.Atoi(string(text))
}
