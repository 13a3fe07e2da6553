package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/bench/turns"
	"github.com/percolator-go/percolator/internal/txn"
	processes "github.com/percolator-go/percolator/test/cluster"
)

var column = percolator.Column{Table: "bench", Name: "c"}

// secondTablet is the first row of the second tablet, which holds other keys of the same callers.
const secondTablet = "second/"

// withPercolator starts three processes of a build, with a table of two tablets.
func withPercolator(binary string) variant {
	return func(ctx context.Context, under conditions, do func(context.Context, subject) error) error {
		cfg := processes.Config{Nodes: nodes, Binary: binary, TLS: under.tls, SyncDelay: under.syncDelay}
		return turns.WithCluster(ctx, cfg, func(c *processes.Cluster, _ string) (err error) {
			db, err := c.Dial(ctx)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, db.Close()) }()
			spec := percolator.TableSpec{Name: column.Table, SplitKeys: []string{secondTablet}}
			if err := db.CreateTable(ctx, spec); err != nil {
				return err
			}
			if err := replicated(ctx, db); err != nil {
				return err
			}
			return do(ctx, subject{operationsOf(db), func(ctx context.Context) error { return kill(ctx, db, c) }})
		})
	}
}

func operationsOf(db *percolator.DB) map[string]operation {
	type step func(ctx context.Context, tx *percolator.Tx, key string) error
	var (
		read step = func(ctx context.Context, tx *percolator.Tx, key string) error {
			_, _, err := tx.Get(ctx, key, column)
			return err
		}
		write step = func(_ context.Context, tx *percolator.Tx, key string) error {
			tx.Set(key, column, payload)
			return nil
		}
		second step = func(_ context.Context, tx *percolator.Tx, key string) error {
			tx.Set(secondTablet+key, column, payload)
			return nil
		}
	)
	transact := func(steps ...step) operation {
		return func(ctx context.Context, key string) error {
			return db.Transact(ctx, func(ctx context.Context, tx *percolator.Tx) error {
				for _, s := range steps {
					if err := s(ctx, tx, key); err != nil {
						return err
					}
				}
				return nil
			})
		}
	}
	return map[string]operation{
		put: transact(write), get: transact(read), rmw: transact(read, write), two: transact(write, second),
	}
}

// replicated waits until every tablet has a replica on each node, and the tablets have different
// leaders.
func replicated(ctx context.Context, db *percolator.DB) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		tablets, err := db.Admin().Tablets(ctx, column.Table)
		if err != nil {
			return err
		}
		missing, leaders := 0, []uint64{0}
		for _, t := range tablets {
			if missing += nodes - len(t.Nodes); !slices.Contains(leaders, t.Leader) {
				leaders = append(leaders, t.Leader)
			}
		}
		if missing <= 0 && len(leaders) > len(tablets) {
			return nil
		}
		if late := txn.Sleep(ctx, 100*time.Millisecond); late != nil {
			return fmt.Errorf("%d replicas are missing, and %d tablets have %d leaders: %w", missing,
				len(tablets), len(leaders)-1, late)
		}
	}
}

// kill kills the process that leads the first tablet.
func kill(ctx context.Context, db *percolator.DB, c *processes.Cluster) error {
	tablets, err := db.Admin().Tablets(ctx, column.Table)
	if err != nil {
		return err
	}
	known, err := db.Admin().Nodes(ctx)
	if err != nil {
		return err
	}
	for _, n := range known {
		for _, p := range c.Nodes() {
			if n.ID == tablets[0].Leader && n.Addr == p.Listen {
				return p.Kill()
			}
		}
	}
	return fmt.Errorf("no process is node %d", tablets[0].Leader)
}
