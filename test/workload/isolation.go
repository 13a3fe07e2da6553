package workload

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	percolator "github.com/percolator-go/percolator"
)

// LostUpdate makes all workers increment the same few cells: every acknowledged increment is
// counted once, and one of unknown outcome at most once.
func LostUpdate(ctx context.Context, db *percolator.DB, l Load) error {
	const counters = 3
	var acked, unknown [counters]atomic.Int64
	before := [counters]int{}
	read := func(i int) (n int, err error) {
		err = patiently(ctx, func() error {
			n, err = settled(ctx, db, row("counter", i))
			return err
		})
		return n, err
	}
	for i := range counters {
		n, err := read(i)
		if err != nil {
			return err
		}
		before[i] = n
	}
	err := l.run(ctx, func(ctx context.Context, worker int, rng *rand.Rand) error {
		i, db := rng.IntN(counters), l.db(db, worker)
		err := db.Transact(ctx, func(ctx context.Context, tx *percolator.Tx) error {
			n, err := number(ctx, tx, row("counter", i))
			tx.Set(row("counter", i), value, strconv.AppendInt(nil, int64(n+1), 10))
			return err
		})
		switch {
		case err == nil:
			acked[i].Add(1)
		default:
			if _, maybe := outcome(err); maybe {
				unknown[i].Add(1)
			}
		}
		return err
	})
	for i := range counters {
		n, readErr := read(i)
		if readErr != nil {
			return errors.Join(err, readErr)
		}
		low := before[i] + int(acked[i].Load())
		if n < low || n > low+int(unknown[i].Load()) {
			err = errors.Join(err, fmt.Errorf(
				"workload: lost update: counter %d is %d after %d acknowledged and %d unknown increments from %d",
				i, n, acked[i].Load(), unknown[i].Load(), before[i]))
		}
	}
	return err
}

// settled reads a number in a new snapshot.
func settled(ctx context.Context, db *percolator.DB, row string) (int, error) {
	s, err := db.Snapshot(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { _ = s.Close() }()
	return number(ctx, s, row)
}

// LongFork makes writers set two cells alternately, in separate transactions, and readers read
// both: if one reader sees x's write without y's, none may see y's without x's.
func LongFork(ctx context.Context, db *percolator.DB, l Load) error {
	type seen struct{ x, y int }
	run, err := newRun(ctx, db)
	if err != nil {
		return err
	}
	var round atomic.Int64
	var onlyX, onlyY atomic.Pointer[seen]
	return l.run(ctx, func(ctx context.Context, worker int, rng *rand.Rand) error {
		n, db := int(round.Load()), l.db(db, worker)
		x, y := row("fork-x"+run, n), row("fork-y"+run, n+11)
		switch worker % 4 {
		case 0, 1:
			cell := x
			if worker%4 == 1 {
				cell = y
			}
			return db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
				tx.Set(cell, value, []byte("1"))
				return nil
			})
		}
		s, err := db.Snapshot(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = s.Close() }()
		a, errX := number(ctx, s, x)
		b, errY := number(ctx, s, y)
		if err := errors.Join(errX, errY); err != nil {
			return err
		}
		switch {
		case a == 1 && b == 0:
			onlyX.Store(&seen{n, 0})
		case a == 0 && b == 1:
			onlyY.Store(&seen{0, n})
		case a == 1 && b == 1 && rng.IntN(4) == 0:
			round.CompareAndSwap(int64(n), int64(n+1))
		}
		p, q := onlyX.Load(), onlyY.Load()
		if p != nil && q != nil && p.x == q.y && p.x == n {
			return fmt.Errorf("workload: long fork: round %d was seen with x alone and with y alone", n)
		}
		return nil
	})
}

// ReadYourWrites makes each transaction read, scan and delete its own writes.
func ReadYourWrites(ctx context.Context, db *percolator.DB, l Load) error {
	return l.run(ctx, func(ctx context.Context, worker int, rng *rand.Rand) error {
		own, db := row("own", worker), l.db(db, worker)
		want := strconv.Itoa(rng.IntN(1000))
		return db.Transact(ctx, func(ctx context.Context, tx *percolator.Tx) error {
			tx.Set(own, value, []byte(want))
			if got, ok, err := tx.Get(ctx, own, value); err != nil || !ok || string(got) != want {
				return wrongOwn(err, "Get gave %q, %v after Set of %q", got, ok, want)
			}
			found := false
			for c, err := range tx.Scan(ctx, percolator.Rows(Table).Prefix(own), value) {
				if err != nil {
					return err
				}
				found = found || (c.Row == own && string(c.Value) == want)
			}
			if !found {
				return wrongOwn(nil, "Scan misses %q", want)
			}
			tx.Delete(own, value)
			if _, ok, err := tx.Get(ctx, own, value); err != nil || ok {
				return wrongOwn(err, "Get finds a cell after Delete")
			}
			tx.Set(own, value, []byte(want))
			return nil
		})
	})
}

func wrongOwn(err error, format string, args ...any) error {
	if err != nil {
		return err
	}
	return fmt.Errorf("workload: read your writes: "+format, args...)
}

// StableSnapshots reads the same cells of one snapshot repeatedly while writers change them and
// the table's tablets split: a snapshot's contents never change.
func StableSnapshots(ctx context.Context, db *percolator.DB, l Load) error {
	const cells = 40
	var splits atomic.Int64
	return l.run(ctx, func(ctx context.Context, worker int, rng *rand.Rand) error {
		db := l.db(db, worker)
		switch worker % 4 {
		case 0, 1:
			return db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
				for range 5 {
					tx.Set(row("stable", rng.IntN(cells)), value,
						strconv.AppendInt(nil, rng.Int64(), 10))
				}
				return nil
			})
		case 2:
			if n := splits.Add(1); n <= 30 {
				return db.CreateTable(ctx,
					percolator.TableSpec{
						Name: Table, SplitKeys: []string{fmt.Sprintf("%02x/s%d", rng.IntN(256), n)},
					})
			}
			return pause(ctx, 10*time.Millisecond)
		}
		return watch(ctx, db, cells)
	})
}

// watch compares two reads of one snapshot: cell by cell, then by scan.
func watch(ctx context.Context, db *percolator.DB, cells int) error {
	s, err := db.Snapshot(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	first := map[string]string{}
	for i := range cells {
		v, ok, err := s.Get(ctx, row("stable", i), value)
		if err != nil {
			return err
		}
		if ok {
			first[row("stable", i)] = string(v)
		}
	}
	again, err := db.SnapshotAt(ctx, s.StartTS())
	if err != nil {
		return err
	}
	defer func() { _ = again.Close() }()
	second := map[string]string{}
	for c, err := range again.Scan(ctx, percolator.Rows(Table), value) {
		if err != nil {
			return err
		}
		if _, mine := first[c.Row]; mine || len(c.Row) > 10 && c.Row[3:9] == "stable" {
			second[c.Row] = string(c.Value)
		}
	}
	for r, v := range first {
		if second[r] != v {
			return fmt.Errorf("workload: stable snapshots: row %s at %d was %q, then %q", r,
				s.StartTS(), v, second[r])
		}
	}
	if len(second) != len(first) {
		return fmt.Errorf("workload: stable snapshots: %d cells, then %d", len(first), len(second))
	}
	return nil
}

// WriteSkew lets two transactions each read two new cells and write one. It reports whether
// both committed although each had read what the other changed: snapshot isolation allows
// it.
func WriteSkew(ctx context.Context, db *percolator.DB) (happened bool, err error) {
	run, err := newRun(ctx, db)
	if err != nil {
		return false, err
	}
	x, y := row("skew-x"+run, 1), row("skew-y"+run, 2)
	begin := func(cell string) (*percolator.Tx, error) {
		tx, err := db.Begin(ctx)
		if err != nil {
			return nil, err
		}
		a, errX := number(ctx, tx, x)
		b, errY := number(ctx, tx, y)
		if err := errors.Join(errX, errY); err != nil || a+b != 0 {
			return nil, errors.Join(err, fmt.Errorf("workload: write skew: the new cells hold %d and %d "+
				"before the first commit, want 0", a, b),
				tx.Rollback(ctx))
		}
		tx.Set(cell, value, []byte("1"))
		return tx, nil
	}
	one, err := begin(x)
	if err != nil {
		return false, err
	}
	two, err := begin(y)
	if err != nil {
		return false, errors.Join(err, one.Rollback(ctx))
	}
	_, errOne := one.Commit(ctx)
	_, errTwo := two.Commit(ctx)
	return errOne == nil && errTwo == nil, nil
}
