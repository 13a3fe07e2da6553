package peers

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// A queue of documents in PostgreSQL. Its workers select documents by FOR UPDATE SKIP LOCKED, so that
// they never wait for each other.

const postgresSchema = `
CREATE TABLE documents (name text PRIMARY KEY, body bytea NOT NULL, cluster text);
CREATE TABLE queue (name text PRIMARY KEY);
CREATE TABLE keys (key bytea PRIMARY KEY, document text NOT NULL);

-- cluster_some clusters up to most documents and returns their number. It does in the server what
-- the other workers do from outside; its keys are other hashes. Its plans are kept while the tables
-- grow: without the setting they would go on to scan them.
CREATE FUNCTION cluster_some(most int) RETURNS int LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
	taken text[];
	one text;
	own bytea[];
	first text;
BEGIN
	WITH deleted AS (DELETE FROM queue q WHERE q.name IN (
		SELECT w.name FROM queue w LIMIT most FOR UPDATE SKIP LOCKED) RETURNING q.name)
	SELECT array_agg(d.name) INTO taken FROM deleted d;
	IF taken IS NULL THEN
		RETURN 0;
	END IF;
	FOREACH one IN ARRAY taken LOOP
		own := ARRAY(SELECT substr(decode(md5(one || i), 'hex'), 1, 8) FROM generate_series(0, 2) i);
		SELECT k.document INTO first FROM keys k WHERE k.key = ANY(own) LIMIT 1;
		first := coalesce(first, one);
		INSERT INTO keys SELECT unnest(own), first
			ON CONFLICT (key) DO UPDATE SET document = excluded.document;
		UPDATE documents d SET cluster = first WHERE d.name = one;
	END LOOP;
	RETURN cardinality(taken);
END $$;`

// inPostgres is a server with workers in this process.
type inPostgres struct {
	*postgres
	take   taker
	stop   context.CancelFunc
	wg     sync.WaitGroup
	left   chan struct{} // a worker has found the queue empty
	mu     sync.Mutex
	failed error
}

// taker clusters some documents in one transaction and returns their number.
type taker func(ctx context.Context, s *postgres) (int, error)

// openPostgres returns a function that starts a server with these workers.
func openPostgres(take taker, workers int) func(ctx context.Context, dir string) (clusterer, error) {
	return func(ctx context.Context, dir string) (clusterer, error) {
		server, err := startPostgres(ctx, dir, postgresSchema)
		if err != nil {
			return nil, err
		}
		s := &inPostgres{postgres: server, take: take, left: make(chan struct{}, 1)}
		work, stop := context.WithCancel(context.WithoutCancel(ctx))
		s.stop = stop
		for range workers {
			s.wg.Go(func() { s.work(work) })
		}
		return s, nil
	}
}

func (s *inPostgres) load(ctx context.Context, names []string, text []byte) error {
	// One statement is one transaction, and one message each way.
	_, err := s.pool.Exec(ctx, `WITH written AS (
		INSERT INTO documents (name, body) SELECT unnest($1::text[]), $2 RETURNING name)
		INSERT INTO queue SELECT name FROM written`, names, text)
	return err
}

// work clusters documents until ctx ends.
func (s *inPostgres) work(ctx context.Context) {
	for ctx.Err() == nil {
		n, err := s.take(ctx, s.postgres)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			s.mu.Lock()
			s.failed = errors.Join(s.failed, err)
			s.mu.Unlock()
			return
		case n == 0:
			select {
			case s.left <- struct{}{}:
			default:
			}
			time.Sleep(time.Millisecond)
		}
	}
}

// takeHundred and takeOne cluster up to a hundred documents, or one, by statements that the worker
// sends.
func takeHundred(ctx context.Context, s *postgres) (int, error) { return takeSome(ctx, s, atOnce) }
func takeOne(ctx context.Context, s *postgres) (int, error)     { return takeSome(ctx, s, 1) }

// takeInServer clusters up to a hundred documents by one call of a function in the server.
func takeInServer(ctx context.Context, s *postgres) (n int, err error) {
	err = s.pool.QueryRow(ctx, `SELECT cluster_some($1)`, atOnce).Scan(&n)
	return n, err
}

func takeSome(ctx context.Context, s *postgres, most int) (n int, err error) {
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `DELETE FROM queue WHERE name IN (
			SELECT name FROM queue LIMIT $1 FOR UPDATE SKIP LOCKED) RETURNING name`, most)
		if err != nil {
			return err
		}
		names, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if n = len(names); err != nil || n == 0 {
			return err
		}
		return clusterThere(ctx, tx, names)
	})
	return n, err
}

// clusterThere is clusterDocuments for PostgreSQL.
func clusterThere(ctx context.Context, tx pgx.Tx, names []string) error {
	keys := make([][]byte, 0, documentKeys*len(names))
	for _, name := range names {
		for _, k := range keysOf(name) {
			keys = append(keys, []byte(k))
		}
	}
	rows, err := tx.Query(ctx, `SELECT key, document FROM keys WHERE key = ANY($1)`, keys)
	if err != nil {
		return err
	}
	known := map[string]string{}
	var key []byte
	var document string
	if _, err := pgx.ForEachRow(rows, []any{&key, &document}, func() error {
		known[string(key)] = document
		return nil
	}); err != nil {
		return err
	}
	clusters, of := make([]string, len(names)), make([]string, 0, len(keys))
	for i, name := range names {
		clusters[i] = clusterOf(name, known)
		for range documentKeys {
			of = append(of, clusters[i])
		}
	}
	var b pgx.Batch // both in one message
	b.Queue(`INSERT INTO keys SELECT unnest($1::bytea[]), unnest($2::text[])
		ON CONFLICT (key) DO UPDATE SET document = excluded.document`, keys, of)
	b.Queue(`UPDATE documents d SET cluster = v.cluster
		FROM unnest($1::text[], $2::text[]) AS v (name, cluster) WHERE d.name = v.name`, names, clusters)
	return tx.SendBatch(ctx, &b).Close()
}

func (s *inPostgres) wait(ctx context.Context) error {
	for {
		var waiting bool
		// A row that a worker has deleted, and not committed, is still seen here.
		if err := s.pool.QueryRow(ctx, `SELECT EXISTS (SELECT FROM queue)`).Scan(&waiting); err != nil {
			return err
		}
		s.mu.Lock()
		failed := s.failed
		s.mu.Unlock()
		if failed != nil || !waiting {
			return failed
		}
		select {
		case <-s.left:
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *inPostgres) count(ctx context.Context) (n int, err error) {
	err = s.pool.QueryRow(ctx, `SELECT count(*) FROM documents WHERE cluster IS NOT NULL`).Scan(&n)
	return n, err
}

func (s *inPostgres) close(ctx context.Context) error {
	s.stop()
	s.wg.Wait()
	return s.postgres.close(ctx)
}
