package scale

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/bench/evaluation/harness"
	"github.com/percolator-go/percolator/bench/turns"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/node"
	"github.com/percolator-go/percolator/test/cluster"
)

// What happens to a table later: its node is killed, an observer is added, its cells expire.

// killed starts a node on the store, kills it after a load of writes, and measures the time from
// its next start until it has returned each caller's last acknowledged write.
func killed(ctx context.Context, r *harness.Run, dir, name string, rows int, window time.Duration) (err error) {
	logs := filepath.Join(dir, "process")
	if err := os.Mkdir(logs, 0o700); err != nil {
		return err
	}
	c, err := cluster.New(cluster.Config{
		Nodes: 1, Dir: logs, Binary: filepath.Join(r.Binary, "percolator"),
		Args: []string{"--log-level", "warn"},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	process := c.Node(0)
	process.Dir = storeOf(dir)
	if err := c.Start(ctx); err != nil {
		return err
	}
	db, err := c.Dial(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	acknowledged := make([]int, callers)
	write := func(ctx context.Context, caller, i int) error {
		err := db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
			tx.Set(row(caller), column, []byte(strconv.Itoa(i)))
			tx.Set(row(rand.IntN(rows-callers)+callers), column, make([]byte, valueBytes))
			return nil
		})
		if err == nil {
			acknowledged[caller] = i
		}
		return err
	}
	if _, err := turns.Repeat(ctx, callers, 0, window, write); err != nil {
		return err
	}
	if err := process.Kill(); err != nil {
		return err
	}
	began := time.Now()
	if err := process.Start(); err != nil {
		return err
	}
	if err := c.Started(ctx); err != nil {
		return err
	}
	if err := survived(ctx, db, acknowledged); err != nil {
		return err
	}
	r.Value("growth", name, "ms to start after kill -9", time.Since(began).Seconds()*1000)
	return process.Terminate(time.Minute)
}

// survived checks that each caller's last write is there.
func survived(ctx context.Context, db *percolator.DB, acknowledged []int) error {
	return db.View(ctx, func(ctx context.Context, s *percolator.Snapshot) error {
		for caller, want := range acknowledged {
			v, _, err := s.Get(ctx, row(caller), column)
			if err != nil {
				return err
			}
			if string(v) != strconv.Itoa(want) {
				return fmt.Errorf("after kill -9, %s is %q; %d was acknowledged", row(caller), v, want)
			}
		}
		return nil
	})
}

// backfill opens the store again and replays all rows for a new observer, which it then retires.
func backfill(ctx context.Context, r *harness.Run, dir, name string, rows int) error {
	var ran atomic.Int64
	began := time.Now()
	observers := func(g *percolator.Registry) {
		g.StrongBatch("new", column, func(_ context.Context, _ *percolator.Tx, changes []percolator.Notification) error {
			ran.Add(int64(len(changes)))
			return nil
		}, percolator.Batch(100))
	}
	err := withNode(ctx, dir, observers, func(n *node.Node) error {
		r.Value("growth", name, "ms to open again", time.Since(began).Seconds()*1000)
		return backfilled(ctx, r, n.DB(), name, rows, &ran)
	})
	if err != nil {
		return err
	}
	return withNode(ctx, dir, nil, func(n *node.Node) error {
		_, err := n.DB().Admin().RetireObserver(ctx, "new")
		return err
	})
}

// backfilled replays the rows for the observer, which counts its runs, for at most backfilling.
func backfilled(ctx context.Context, r *harness.Run, db *percolator.DB, name string, rows int, ran *atomic.Int64) error {
	began := time.Now()
	if _, err := db.Admin().ReplayObserver(ctx, "new"); err != nil {
		return err
	}
	if err := until(ctx, backfilling, func() (bool, error) { return ran.Load() >= int64(rows), nil }); err != nil {
		return err
	}
	done, took := ran.Load(), time.Since(began)
	r.Value("growth", name, "rows/s back-filled", float64(done)/took.Seconds())
	r.Value("growth", name, "% back-filled", min(100, 100*float64(done)/float64(rows)))
	if done >= int64(rows) {
		return db.WaitIdle(ctx)
	}
	_, err := db.Admin().CancelReplay(ctx, "new")
	return err
}

// until calls done every 100 ms until it returns true or an error, or the time is over.
func until(ctx context.Context, limit time.Duration, done func() (bool, error)) error {
	began := time.Now()
	for time.Since(began) < limit {
		if over, err := done(); over || err != nil {
			return err
		}
		if err := txn.Sleep(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// expire gives the column an expiry that all its cells have passed, and measures the rate at which
// they are deleted, for at most expiring. The cluster deletes in the order of rows, so that the
// first row left tells how many are gone.
func expire(ctx context.Context, r *harness.Run, db *percolator.DB, name string, rows int) error {
	began := time.Now()
	age := map[string]time.Duration{column.Name: time.Second}
	if err := db.SetExpiry(ctx, column.Table, percolator.Expiry{Columns: age}); err != nil {
		return err
	}
	gone := 0
	err := until(ctx, expiring, func() (_ bool, err error) {
		gone, err = firstRow(ctx, db, gone, rows)
		return gone >= rows, err
	})
	if err != nil {
		return err
	}
	took := time.Since(began)
	if gone == 0 {
		return fmt.Errorf("no cell has expired in %v", took)
	}
	r.Value("growth", name, "rows/s expired", float64(gone)/took.Seconds())
	r.Value("growth", name, "% expired", 100*float64(gone)/float64(rows))
	return db.SetExpiry(ctx, column.Table, percolator.Expiry{})
}

// firstRow returns the index of the first row left from an index on, or rows if there is none.
func firstRow(ctx context.Context, db *percolator.DB, from, rows int) (at int, err error) {
	err = db.View(ctx, func(ctx context.Context, s *percolator.Snapshot) error {
		at = rows
		for c, err := range s.Scan(ctx, percolator.Rows(column.Table).From(row(from)).Limit(1), column) {
			if err != nil {
				return err
			}
			if _, err := fmt.Sscanf(c.Row, rowFormat, &at); err != nil {
				return fmt.Errorf("row %q: %w", c.Row, err)
			}
		}
		return nil
	})
	return at, err
}
