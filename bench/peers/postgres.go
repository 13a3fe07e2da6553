package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A queue of documents in Debian's PostgreSQL, with the default settings (every commit is
// synced). Its workers select documents by FOR UPDATE SKIP LOCKED, so that they never wait for
// each other.

var errNoPostgres = errors.New("PostgreSQL is not installed (Debian: apt-get install postgresql)")

// postgresBin returns the directory of the server's programs.
func postgresBin() (string, error) {
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil || len(found) == 0 {
		return "", errNoPostgres
	}
	return filepath.Dir(found[len(found)-1]), nil
}

// postgres is a server of its own.
type postgres struct {
	server *exec.Cmd
	pool   *pgxpool.Pool
}

// startPostgres starts a server with these settings in the directory, and makes the schema.
func startPostgres(ctx context.Context, dir, schema string, settings ...string) (_ *postgres, err error) {
	bin, err := postgresBin()
	if err != nil {
		return nil, err
	}
	attr, err := unprivileged(dir)
	if err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "data")
	initdb := exec.CommandContext(ctx, filepath.Join(bin, "initdb"), "-D", data, "-A", "trust",
		"-U", "bench")
	initdb.SysProcAttr, initdb.Dir = attr, dir
	if out, err := initdb.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w: %s", err, out)
	}
	log := &bytes.Buffer{}
	s := &postgres{}
	// A socket in the directory, and no port: no other program reaches this server.
	s.server = exec.Command(filepath.Join(bin, "postgres"), "-D", data, "-k", dir,
		"-c", "listen_addresses=")
	for _, set := range settings {
		s.server.Args = append(s.server.Args, "-c", set)
	}
	s.server.SysProcAttr, s.server.Dir, s.server.Stderr = attr, dir, log
	if err := s.server.Start(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close(ctx), errors.New(log.String()))
		}
	}()
	cfg, err := pgxpool.ParseConfig("host=" + dir + " user=bench dbname=postgres pool_max_conns=64")
	if err != nil {
		return nil, err
	}
	if s.pool, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return nil, err
	}
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	_, err = s.pool.Exec(ctx, schema)
	return s, err
}

func (s *postgres) close(context.Context) error {
	if s.pool != nil {
		s.pool.Close()
	}
	// SIGINT is a fast shutdown.
	return errors.Join(s.server.Process.Signal(syscall.SIGINT), s.server.Wait())
}

const postgresSchema = `
CREATE TABLE documents (name text PRIMARY KEY, body bytea NOT NULL, cluster text);
CREATE TABLE queue (name text PRIMARY KEY);
CREATE TABLE keys (key bytea PRIMARY KEY, document text NOT NULL);`

// inPostgres is a server with workers in this process.
type inPostgres struct {
	*postgres
	stop   context.CancelFunc
	wg     sync.WaitGroup
	left   chan struct{} // a worker has found the queue empty
	mu     sync.Mutex
	failed error
}

func openPostgres(ctx context.Context, dir string) (clusterer, error) {
	server, err := startPostgres(ctx, dir, postgresSchema)
	if err != nil {
		return nil, err
	}
	s := &inPostgres{postgres: server, left: make(chan struct{}, 1)}
	work, stop := context.WithCancel(context.Background())
	s.stop = stop
	for range batchesAtOnce {
		s.wg.Go(func() { s.work(work) })
	}
	return s, nil
}

// unprivileged changes the owner of the directory to the user that runs the server: PostgreSQL
// does not run as root.
func unprivileged(dir string) (*syscall.SysProcAttr, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, err
	}
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.Atoi(u.Gid)
	if err != nil {
		return nil, err
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}},
		os.Chown(dir, uid, gid)
}

// ready waits until the server answers.
func (s *postgres) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		err := s.pool.Ping(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(20 * time.Millisecond):
		}
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
		n, err := s.take(ctx)
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

// take clusters up to a hundred documents in one transaction.
func (s *inPostgres) take(ctx context.Context) (n int, err error) {
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `DELETE FROM queue WHERE name IN (
			SELECT name FROM queue LIMIT $1 FOR UPDATE SKIP LOCKED) RETURNING name`, atOnce)
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

// cpu adds up the server's processes; those that have ended count as the first one's children.
func (s *postgres) cpu() (sum time.Duration, err error) {
	first := s.server.Process.Pid
	all, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, err
	}
	for _, file := range all {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		// After the name, in brackets: the state, the parent, …, and from the 14th field on
		// the time of the process, and of its children that have ended, in hundredths.
		head, rest, _ := strings.Cut(string(text), ") ")
		fields := strings.Fields(rest)
		pid, _ := strconv.Atoi(strings.Fields(head)[0])
		parent, _ := strconv.Atoi(fields[1])
		if pid != first && parent != first {
			continue
		}
		for _, f := range fields[11:15] {
			ticks, err := strconv.Atoi(f)
			if err != nil {
				return 0, err
			}
			sum += time.Duration(ticks) * 10 * time.Millisecond
		}
	}
	return sum, nil
}

func (s *inPostgres) close(ctx context.Context) error {
	s.stop()
	s.wg.Wait()
	return s.postgres.close(ctx)
}
