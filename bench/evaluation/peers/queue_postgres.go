package peers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"golang.org/x/sync/errgroup"

	scratch "github.com/percolator-go/percolator/bench/evaluation/postgres"
)

// A result is a row of a table without an index: the cheapest durable commit of a handler.
const resultsSchema = `CREATE TABLE results (job bigint NOT NULL, payload bytea NOT NULL);`

// asQueue returns what both queues in PostgreSQL have in common.
func (s *postgres) asQueue() *queue {
	return &queue{
		hold: s.hold,
		results: func(ctx context.Context) (all, jobs int, err error) {
			err = s.pool.QueryRow(ctx, `SELECT count(*), count(DISTINCT job) FROM results`).Scan(&all, &jobs)
			return all, jobs, err
		},
		cpu: s.cpu,
	}
}

// hold begins a transaction with a snapshot and leaves it open.
func (s *postgres) hold(ctx context.Context) (func() error, error) {
	tx, err := s.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		return nil, err
	}
	var before int
	if err := tx.QueryRow(ctx, `SELECT count(*) FROM results`).Scan(&before); err != nil {
		return nil, errors.Join(err, tx.Rollback(ctx))
	}
	return func() error {
		var after int
		err := tx.QueryRow(ctx, `SELECT count(*) FROM results`).Scan(&after)
		if err == nil && after != before {
			err = fmt.Errorf("the held snapshot had %d results and has %d", before, after)
		}
		return errors.Join(err, tx.Rollback(ctx))
	}, nil
}

// riverHandlers is the number of River's workers: each holds a connection while it works.
const riverHandlers = 40

type riverJob struct {
	Job     int    `json:"job"`
	Payload []byte `json:"payload"`
}

// Kind implements river.JobArgs.
func (riverJob) Kind() string { return "job" }

type riverWorker struct {
	river.WorkerDefaults[riverJob]

	db   *postgres
	jobs *tracker
}

// Work commits the result and the completion of the job in one transaction.
func (w *riverWorker) Work(ctx context.Context, job *river.Job[riverJob]) error {
	w.jobs.start(job.Args.Job)
	err := pgx.BeginFunc(ctx, w.db.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `INSERT INTO results VALUES ($1, $2)`, job.Args.Job, job.Args.Payload); err != nil {
			return err
		}
		_, err := river.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, job)
		return err
	})
	if err == nil {
		w.jobs.finish(job.Args.Job)
	}
	return err
}

func openRiver(ctx context.Context, dir string, jobs *tracker) (_ *queue, err error) {
	s, err := startPostgres(ctx, dir, resultsSchema)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close(ctx))
		}
	}()
	driver := riverpgxv5.New(s.pool)
	quiet := slog.New(slog.DiscardHandler)
	migrator, err := rivermigrate.New(driver, &rivermigrate.Config{Logger: quiet})
	if err != nil {
		return nil, err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return nil, err
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, &riverWorker{db: s, jobs: jobs})
	client, err := river.NewClient(driver, &river.Config{
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: riverHandlers}}, Workers: workers,
		FetchCooldown: river.FetchCooldownMin, Logger: quiet,
	})
	if err != nil {
		return nil, err
	}
	if err := client.Start(context.WithoutCancel(ctx)); err != nil {
		return nil, err
	}
	q := s.asQueue()
	q.put = func(ctx context.Context, job int) error {
		_, err := client.Insert(ctx, riverJob{job, payload}, nil)
		return err
	}
	q.close = func(ctx context.Context) error { return errors.Join(client.Stop(ctx), s.close(ctx)) }
	return q, nil
}

// PgQ's ticks delimit batches: a job waits for the next tick, and the consumer for the next batch.
const tickEvery = 5 * time.Millisecond

const pgqSchema = `CREATE EXTENSION pgq; SELECT pgq.create_queue('jobs');
	SELECT pgq.set_queue_config('jobs', 'ticker_max_lag', '0'), pgq.set_queue_config('jobs', 'ticker_max_count', '1'),
		pgq.register_consumer('jobs', 'handler');`

func openPgQ(ctx context.Context, dir string, jobs *tracker) (*queue, error) {
	s, err := startPostgres(ctx, dir, resultsSchema+pgqSchema)
	if err != nil {
		return nil, err
	}
	working, stop := context.WithCancel(context.WithoutCancel(ctx))
	var workers errgroup.Group
	repeat := func(step func(ctx context.Context) error) {
		workers.Go(func() error {
			for working.Err() == nil {
				if err := step(working); err != nil && working.Err() == nil {
					return err
				}
			}
			return nil
		})
	}
	ticker := time.NewTicker(tickEvery)
	repeat(func(ctx context.Context) error {
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
		_, err := s.pool.Exec(ctx, `SELECT pgq.ticker('jobs')`)
		return err
	})
	repeat(func(ctx context.Context) error { return s.consume(ctx, jobs) })
	q := s.asQueue()
	q.put = func(ctx context.Context, job int) error {
		_, err := s.pool.Exec(ctx, `SELECT pgq.insert_event('jobs', 'job', $1)`, fmt.Sprintf("%d %s", job, payload))
		return err
	}
	q.close = func(ctx context.Context) error {
		stop()
		ticker.Stop()
		return errors.Join(workers.Wait(), s.close(ctx))
	}
	return q, nil
}

// consume handles the next batch, and commits the results of all of its jobs and the end of the
// batch in one transaction. Without a batch it waits for a millisecond.
func (s *postgres) consume(ctx context.Context, jobs *tracker) error {
	var batch *int64
	if err := s.pool.QueryRow(ctx, `SELECT pgq.next_batch('jobs', 'handler')`).Scan(&batch); err != nil {
		return err
	}
	if batch == nil {
		time.Sleep(time.Millisecond)
		return nil
	}
	rows, err := s.pool.Query(ctx, `SELECT ev_data FROM pgq.get_batch_events($1)`, *batch)
	if err != nil {
		return err
	}
	events, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	numbers, payloads := make([]int, len(events)), make([][]byte, len(events))
	for i, e := range events {
		if _, err := fmt.Sscan(e, &numbers[i], &payloads[i]); err != nil {
			return err
		}
		jobs.start(numbers[i])
	}
	var b pgx.Batch // one message, one transaction
	b.Queue(`INSERT INTO results SELECT unnest($1::bigint[]), unnest($2::bytea[])`, numbers, payloads)
	b.Queue(`SELECT pgq.finish_batch($1)`, *batch)
	if err := s.pool.SendBatch(ctx, &b).Close(); err != nil {
		return err
	}
	for _, job := range numbers {
		jobs.finish(job)
	}
	return nil
}

// missingFor returns why a kind cannot run here.
func missingFor(kind string) error {
	switch kind {
	case ours, "JetStream":
		return nil
	}
	bin, err := scratch.Bin()
	if err != nil || kind != "PgQ" {
		return err
	}
	version, _ := strconv.Atoi(filepath.Base(filepath.Dir(bin)))
	if _, err := os.Stat(fmt.Sprintf("/usr/share/postgresql/%d/extension/pgq.control", version)); err != nil {
		return fmt.Errorf("PgQ is not installed (Debian: apt-get install postgresql-%d-pgq3)", version)
	}
	return nil
}
