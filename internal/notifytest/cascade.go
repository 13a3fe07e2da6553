package notifytest

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	percolator "github.com/percolator-go/percolator"
)

// This file has a cascade of observers for tests of who waits for a commit's effects. It
// keeps nothing between calls: what it checks is in the repository alone.

// cascadeDepth is the number of observers in a chain.
const cascadeDepth = 5

// cascadeColumn returns the column of a level's values. A strong level's observer observes it, a
// weak level's observes kick.
func cascadeColumn(level int) percolator.Column {
	return percolator.Column{Table: "cascade" + strconv.Itoa(level), Name: "value"}
}

// kick is the column observed by a weak level.
func kick(level int) percolator.Column {
	return percolator.Column{Table: cascadeColumn(level).Table, Name: "kick"}
}

// weakLevel reports whether the level's observer is weak.
func weakLevel(level int) bool { return level == 1 || level == 3 }

// CascadeTables returns the tables of the cascade, each of two tablets.
func CascadeTables() []percolator.TableSpec {
	var out []percolator.TableSpec
	for level := range cascadeDepth + 1 {
		out = append(out, percolator.TableSpec{
			Name: cascadeColumn(level).Table, SplitKeys: []string{"m"},
		})
	}
	return out
}

// children returns the rows of the next level that a run for a row writes: one, or one in each
// tablet.
func children(level int, row string) []string {
	if level%2 == 0 && level < cascadeDepth-1 {
		return []string{"a" + row, "z" + row}
	}
	return []string{"a" + row}
}

// RegisterCascade registers the cascade's observers: each copies its row's value into rows of the
// next level, into several of them on some levels. Of every five observers two are weak, and one
// writes in a separate transaction.
func RegisterCascade(r *percolator.Registry) {
	for level := range cascadeDepth {
		name := "cascade" + strconv.Itoa(level)
		if weakLevel(level) {
			r.Weak(name, kick(level), cascade(level))
		} else {
			r.Strong(name, cascadeColumn(level), cascade(level))
		}
	}
}

func cascade(level int) percolator.ObserverFunc {
	return func(ctx context.Context, tx *percolator.Tx, n percolator.Notification) error {
		value, _, err := tx.Get(ctx, n.Row, cascadeColumn(level))
		if err != nil {
			return err
		}
		write := func(ctx context.Context, tx *percolator.Tx) error {
			for _, row := range children(level, n.Row) {
				if err := raise(ctx, tx, level+1, row, value); err != nil {
					return err
				}
			}
			return nil
		}
		if level == 3 {
			return percolator.DBFrom(ctx).Transact(ctx, write)
		}
		return write(ctx, tx)
	}
}

// raise sets a row's value to at least the given one, and notifies its observer. A weak observer's
// read may be older than the present value.
func raise(ctx context.Context, tx *percolator.Tx, level int, row string, value []byte) error {
	old, err := number(ctx, tx, level, row)
	if err != nil {
		return err
	}
	to, err := strconv.Atoi(string(value))
	if err != nil {
		return err
	}
	tx.Set(row, cascadeColumn(level), []byte(strconv.Itoa(max(old, to))))
	if weakLevel(level) {
		tx.Notify(row, kick(level))
	}
	return nil
}

func number(ctx context.Context, r percolator.Reader, level int, row string) (int, error) {
	value, ok, err := r.Get(ctx, row, cascadeColumn(level))
	if err != nil || !ok {
		return 0, err
	}
	return strconv.Atoi(string(value))
}

// Begin adds 1 to the number in a row of the first level, and returns the new number and the commit
// timestamp.
func Begin(ctx context.Context, db *percolator.DB, row string) (to int,
	at percolator.Timestamp, err error) {
	err = db.Transact(ctx, func(ctx context.Context, tx *percolator.Tx) error {
		old, err := number(ctx, tx, 0, row)
		to = old + 1
		tx.Set(row, cascadeColumn(0), []byte(strconv.Itoa(to)))
		return err
	}, percolator.CommittedAt(&at))
	return to, at, err
}

// ErrEarly reports that an effect is missing.
var ErrEarly = errors.New("notifytest: EFFECT-MISSING")

// Arrived returns ErrEarly unless all effects of a commit of Begin are present.
func Arrived(ctx context.Context, db *percolator.DB, row string, value int) error {
	_, err := LastEffect(ctx, db, row, value)
	return err
}

// LastEffect returns the commit timestamp of the last effect of a commit of Begin, or ErrEarly unless
// all of them are present.
func LastEffect(ctx context.Context, db *percolator.DB, row string,
	value int) (at percolator.Timestamp, err error) {
	s, err := db.Snapshot(ctx)
	if err != nil {
		return 0, err
	}
	defer s.Close()
	rows := []string{row}
	for level := range cascadeDepth + 1 {
		var next []string
		for _, row := range rows {
			cells, err := s.GetMulti(ctx, percolator.CellKey{Row: row, Column: cascadeColumn(level)})
			if err != nil {
				return 0, err
			}
			got := 0
			for _, c := range cells {
				at = max(at, c.CommitTS)
				if got, err = strconv.Atoi(string(c.Value)); err != nil {
					return 0, err
				}
			}
			if got < value {
				return 0, fmt.Errorf("%w: row %q of level %d is at %d, not yet at %d", ErrEarly, row,
					level, got, value)
			}
			next = append(next, children(level, row)...)
		}
		rows = next
	}
	return at, nil
}
