package peers

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/node"
)

var (
	jobColumn    = percolator.Column{Table: "jobs", Name: "job"}
	resultColumn = percolator.Column{Table: "results", Name: "result"}
)

// openQueue opens a node with an observer of jobs, and a client of it through a socket. The observer
// writes a result whose row has the start timestamp of its transaction: a second effect of a job
// would be a second row.
func openQueue(ctx context.Context, dir string, jobs *tracker) (*queue, error) {
	cfg := node.DefaultConfig()
	cfg.Dir, cfg.Listen, cfg.HTTP, cfg.Insecure = dir, "127.0.0.1:0", "", true
	cfg.Observers = func(reg *percolator.Registry) {
		reg.Strong("handle", jobColumn, func(ctx context.Context, tx *percolator.Tx, n percolator.Notification) error {
			job, err := strconv.Atoi(n.Row)
			if err != nil {
				return err
			}
			jobs.start(job)
			value, _, err := tx.Get(ctx, n.Row, jobColumn)
			if err != nil {
				return err
			}
			tx.Set(fmt.Sprintf("%d/%d", job, tx.StartTS()), resultColumn, value)
			return nil
		})
	}
	n, err := node.Open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if err := n.DB().CreateTable(ctx, percolator.TableSpec{Name: resultColumn.Table}); err != nil {
		return nil, errors.Join(err, n.Close(ctx))
	}
	db, err := percolator.Dial(ctx, []string{n.Addr()}, percolator.ClientConfig{Insecure: true})
	if err != nil {
		return nil, errors.Join(err, n.Close(ctx))
	}
	following, stop := context.WithCancel(context.WithoutCancel(ctx))
	var follower errgroup.Group
	follower.Go(func() error { return followResults(following, n.DB(), jobs) })
	return &queue{
		put: func(ctx context.Context, job int) error {
			return db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
				tx.Set(strconv.Itoa(job), jobColumn, payload)
				return nil
			})
		},
		hold: func(ctx context.Context) (func() error, error) {
			s, err := db.Snapshot(ctx)
			if err != nil {
				return nil, err
			}
			_, _, err = s.Get(ctx, "1", jobColumn)
			return func() error {
				_, found, err := s.Get(ctx, "1", jobColumn)
				if err == nil && !found {
					err = errors.New("the held snapshot has lost a job")
				}
				return errors.Join(err, s.Close())
			}, err
		},
		results: func(ctx context.Context) (int, int, error) { return countResults(ctx, db) },
		cpu:     func() time.Duration { return 0 },
		close: func(ctx context.Context) error {
			stop()
			return errors.Join(follower.Wait(), db.Close(), n.Close(ctx))
		},
	}, nil
}

// followResults reports results as the feed of changes yields them: after their commit.
func followResults(ctx context.Context, db *percolator.DB, jobs *tracker) error {
	for c, err := range db.Changes(ctx, 0, percolator.Rows(resultColumn.Table)) {
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		case c.Resolved == 0:
			var job int
			if _, err := fmt.Sscanf(c.Row, "%d/", &job); err != nil {
				return err
			}
			jobs.finish(job)
		}
	}
	return nil
}

func countResults(ctx context.Context, db *percolator.DB) (all, different int, err error) {
	s, err := db.Snapshot(ctx)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	seen := map[int]bool{}
	for c, err := range s.Scan(ctx, percolator.Rows(resultColumn.Table), resultColumn) {
		if err != nil {
			return 0, 0, err
		}
		var job int
		if _, err := fmt.Sscanf(c.Row, "%d/", &job); err != nil {
			return 0, 0, err
		}
		seen[job] = true
		all++
	}
	return all, len(seen), nil
}
