package feedpostgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/node"
)

var columns = []percolator.Column{{Table: "t", Name: "a"}, {Table: "t", Name: "b"}}

// Environment variables that make this program a sink, which TestKilled kills: the addresses of the
// cluster and of PostgreSQL.
const envCluster, envPostgres = "FEEDPOSTGRES_CLUSTER", "FEEDPOSTGRES_POSTGRES"

func TestMain(m *testing.M) {
	if addr := os.Getenv(envCluster); addr != "" {
		if err := runSink(context.Background(), addr, os.Getenv(envPostgres)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func runSink(ctx context.Context, addr, conn string) error {
	db, err := percolator.Dial(ctx, []string{addr}, percolator.ClientConfig{Insecure: true})
	if err != nil {
		return err
	}
	pool, err := pgxpool.New(ctx, conn)
	if err != nil {
		return err
	}
	return Copy(ctx, db, pool, config(), percolator.Rows("t"))
}

func config() Config {
	return Config{Table: pgx.Identifier{"public", "cells"}, Subscription: "postgres", CommitEvery: 5 * time.Millisecond}
}

// startPostgres starts a server in a directory of its own, with a socket there and no port, and
// returns how to connect. It skips the test if PostgreSQL is not installed.
func startPostgres(ctx context.Context, t *testing.T) (conn string) {
	t.Helper()
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil || len(found) == 0 {
		t.Skip("PostgreSQL is not installed (Debian: apt-get install postgresql-15)")
	}
	bin := filepath.Dir(found[len(found)-1])
	// Not t.TempDir, whose parent only its owner can search.
	dir, err := os.MkdirTemp("", "feedpostgres")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	attr := &syscall.SysProcAttr{Setpgid: true}
	if os.Getuid() == 0 { // PostgreSQL refuses to run as root
		attr.Credential = ownedByPostgres(t, dir)
	}
	data := filepath.Join(dir, "data")
	initdb := exec.CommandContext(ctx, filepath.Join(bin, "initdb"), "-D", data, "-A", "trust", "-U", "test",
		"--no-sync")
	initdb.SysProcAttr, initdb.Dir = attr, dir
	if out, err := initdb.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var log bytes.Buffer
	server := exec.Command(filepath.Join(bin, "postgres"), "-D", data, "-k", dir, "-c", "listen_addresses=",
		"-c", "fsync=off")
	server.SysProcAttr, server.Dir, server.Stderr = attr, dir, &log
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Signal(syscall.SIGINT) // a fast shutdown
		_ = server.Wait()
		if t.Failed() {
			t.Log(log.String())
		}
	})
	return fmt.Sprintf("host=%s user=test dbname=postgres", dir)
}

// ownedByPostgres gives the directory to the user postgres.
func ownedByPostgres(t *testing.T, dir string) *syscall.Credential {
	t.Helper()
	u, err := user.Lookup("postgres")
	if err != nil {
		t.Fatal(err)
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(dir, int(uid), int(gid)); err != nil {
		t.Fatal(err)
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}

// open starts PostgreSQL and a node with the table t.
func open(ctx context.Context, t *testing.T) (conn string, pool *pgxpool.Pool, n *node.Node) {
	t.Helper()
	conn = startPostgres(ctx, t)
	pool, err := pgxpool.New(ctx, conn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	await(ctx, t, func() bool { return pool.Ping(ctx) == nil })
	cfg := node.DefaultConfig()
	cfg.Dir, cfg.Listen, cfg.HTTP, cfg.Insecure, cfg.Store.InMemory = "", "127.0.0.1:0", "", true, true
	if n, err = node.Open(ctx, cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close(context.WithoutCancel(ctx)) })
	if err := n.DB().CreateTable(ctx, percolator.TableSpec{Name: "t"}); err != nil {
		t.Fatal(err)
	}
	return conn, pool, n
}

// await waits until the condition holds.
func await(ctx context.Context, t *testing.T, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("the condition does not come to hold")
		}
	}
}

// write sets and deletes cells of random rows, whose keys are not text, and returns the commit's
// timestamp.
func write(ctx context.Context, t *testing.T, db *percolator.DB) (last percolator.Timestamp) {
	t.Helper()
	err := db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
		for range 3 {
			row, column := fmt.Sprintf("\x00\xff%d", rand.IntN(20)), columns[rand.IntN(2)]
			switch rand.IntN(4) {
			case 0:
				tx.Delete(row, column)
			case 1:
				tx.Set(row, column, nil)
			default:
				tx.Set(row, column, fmt.Append(nil, rand.Uint64()))
			}
		}
		return nil
	}, percolator.CommittedAt(&last))
	if err != nil {
		t.Fatal(err)
	}
	return last
}

// position returns the stored position; 0 before there is one.
func position(ctx context.Context, q interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}) percolator.Timestamp {
	var at int64
	_ = q.QueryRow(ctx, `SELECT position FROM percolator_positions WHERE name = $1`, config().Table.Sanitize()).Scan(&at)
	return percolator.Timestamp(at)
}

// compare compares the table with a snapshot at its position, and returns the position.
func compare(ctx context.Context, t *testing.T, pool *pgxpool.Pool, db *percolator.DB) percolator.Timestamp {
	t.Helper()
	got := map[string]string{}
	var at percolator.Timestamp
	err := pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, func(tx pgx.Tx) error {
		if at = position(ctx, tx); at == 0 {
			return nil
		}
		rows, err := tx.Query(ctx, `SELECT row_key, col, value, commit_ts FROM cells WHERE tab = 't'`)
		if err != nil {
			return err
		}
		var row, value []byte
		var col string
		var commit int64
		_, err = pgx.ForEachRow(rows, []any{&row, &col, &value, &commit}, func() error {
			got[string(row)+"/"+col] = fmt.Sprintf("%s at %d", value, commit)
			return nil
		})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if at == 0 {
		return 0
	}
	snapshot, err := db.SnapshotAt(ctx, at)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = snapshot.Close() }()
	want := map[string]string{}
	for cell, err := range snapshot.Scan(ctx, percolator.Rows("t")) {
		if err != nil {
			t.Fatal(err)
		}
		want[cell.Row+"/"+cell.Column.Name] = fmt.Sprintf("%s at %d", cell.Value, cell.CommitTS)
	}
	if !maps.Equal(got, want) {
		t.Errorf("at %d the table has %q; the snapshot %q", at, got, want)
	}
	return at
}

// ended checks the error of a Copy that was stopped.
func ended(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestKilled: a sink in a process of its own is killed again and again while cells are set and
// deleted. After each kill the table is the state of the snapshot at its position, and the next sink
// continues from there.
func TestKilled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	conn, pool, n := open(ctx, t)
	db := n.DB()
	for range 20 {
		write(ctx, t, db)
	}
	at := percolator.Timestamp(0)
	for range 5 {
		sink := exec.CommandContext(ctx, os.Args[0])
		sink.Env = append(os.Environ(), envCluster+"="+n.Addr(), envPostgres+"="+conn)
		var stderr bytes.Buffer
		sink.Stderr = &stderr
		if err := sink.Start(); err != nil {
			t.Fatal(err)
		}
		// From the first commit on the sink is between two of them, or within one.
		last := write(ctx, t, db)
		await(ctx, t, func() bool {
			write(ctx, t, db)
			return position(ctx, pool) >= last
		})
		for range 10 + rand.IntN(50) {
			write(ctx, t, db)
		}
		_ = sink.Process.Kill()
		if err := sink.Wait(); sink.ProcessState.Exited() {
			t.Fatalf("the sink ended by itself: %v: %s", err, &stderr)
		}
		before := at
		if at = compare(ctx, t, pool, db); at <= before {
			t.Errorf("the position is %d after %d", at, before)
		}
	}
	copying, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- Copy(copying, db, pool, config(), percolator.Rows("t")) }()
	last := write(ctx, t, db)
	await(ctx, t, func() bool { return position(ctx, pool) >= last })
	stop()
	ended(t, <-done)
	compare(ctx, t, pool, db)
}

// TestOneSink: of two sinks on a table one fails, and the table stays right. Without its position the
// table is replaced.
func TestOneSink(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, pool, n := open(ctx, t)
	db := n.DB()
	copying, stop := context.WithCancel(ctx)
	done := make(chan error, 2)
	for range 2 {
		go func() { done <- Copy(copying, db, pool, config(), percolator.Rows("t")) }()
	}
	var failed error
	await(ctx, t, func() bool {
		write(ctx, t, db)
		select {
		case failed = <-done:
			return true
		default:
			return false
		}
	})
	if !errors.Is(failed, ErrOvertaken) {
		t.Error("one of two sinks ends with ", failed)
	}
	last := write(ctx, t, db)
	await(ctx, t, func() bool { return position(ctx, pool) >= last })
	stop()
	ended(t, <-done)
	compare(ctx, t, pool, db)
	_, err := pool.Exec(ctx, `DELETE FROM percolator_positions; INSERT INTO cells VALUES ('t', 'stale', 'a', '', 1)`)
	if err != nil {
		t.Fatal(err)
	}
	copying, stop = context.WithCancel(ctx)
	go func() { done <- Copy(copying, db, pool, config(), percolator.Rows("t")) }()
	await(ctx, t, func() bool { return position(ctx, pool) != 0 })
	stop()
	ended(t, <-done)
	compare(ctx, t, pool, db)
}

// TestFailedCommit: a commit that PostgreSQL refuses leaves neither changes nor a position. The next
// Copy applies the same changes.
func TestFailedCommit(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, pool, n := open(ctx, t)
	db := n.DB()
	run := func(last percolator.Timestamp) {
		copying, stop := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() { done <- Copy(copying, db, pool, config(), percolator.Rows("t")) }()
		await(ctx, t, func() bool { return position(ctx, pool) >= last })
		stop()
		ended(t, <-done)
	}
	run(write(ctx, t, db))
	_, err := pool.Exec(ctx, `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
			BEGIN RAISE EXCEPTION 'refused'; END $$;
		CREATE CONSTRAINT TRIGGER refuse AFTER INSERT OR UPDATE ON cells DEFERRABLE INITIALLY DEFERRED
			FOR EACH ROW EXECUTE FUNCTION refuse()`)
	if err != nil {
		t.Fatal(err)
	}
	before := position(ctx, pool)
	err = db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
		tx.Set("row", columns[0], []byte("value"))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	last := write(ctx, t, db)
	if err := Copy(ctx, db, pool, config(), percolator.Rows("t")); err == nil || ctx.Err() != nil {
		t.Fatal("the refused commit: ", err)
	}
	if after := compare(ctx, t, pool, db); after < before || after >= last {
		t.Errorf("the position moved from %d to %d; the refused changes are up to %d", before, after, last)
	}
	if _, err := pool.Exec(ctx, `DROP TRIGGER refuse ON cells`); err != nil {
		t.Fatal(err)
	}
	run(last)
	compare(ctx, t, pool, db)
}

// TestHostileNames: names of any bytes are stored apart from each other, and read back as they
// were; what PostgreSQL cannot keep is an error with a type.
func TestHostileNames(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, pool, n := open(ctx, t)
	db := n.DB()
	const table = "t\x00'; DROP TABLE cells; --"
	if err := db.CreateTable(ctx, percolator.TableSpec{Name: table}); err != nil {
		t.Fatal(err)
	}
	names := []string{
		"", "\xff", "\xff\x00", "\x00", `\xff`, `\x5c786666`, `\x`, `"`, `'`, "A", "a", "a ", "\u00e9", "e\u0301", "\u202e",
		strings.Repeat("n", 1000), strings.Repeat("\xff", 1000), "$1", "\n",
	}
	var last percolator.Timestamp
	err := db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
		for _, name := range names {
			tx.Set("row", percolator.Column{Table: table, Name: name}, []byte(name))
		}
		return nil
	}, percolator.CommittedAt(&last))
	if err != nil {
		t.Fatal(err)
	}
	copying, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- Copy(copying, db, pool, config(), percolator.Rows(table)) }()
	await(ctx, t, func() bool { return position(ctx, pool) >= last })
	var count int
	if err := pool.QueryRow(ctx, `SELECT count(*) FROM cells`).Scan(&count); err != nil || count != len(names) {
		t.Errorf("%d rows for %d columns: %v", count, len(names), err)
	}
	for _, name := range names {
		var value []byte
		err := pool.QueryRow(ctx, `SELECT value FROM cells WHERE tab = $1 AND col = $2`, Name(table), Name(name)).Scan(&value)
		if err != nil || string(value) != name {
			t.Errorf("the column %q has %q: %v", name, value, err)
		}
	}
	stop()
	ended(t, <-done)

	// Random bytes, which PostgreSQL does not compress, as a row of more bytes than it indexes.
	long := make([]byte, 3500)
	for i := range long {
		long[i] = byte(rand.Uint32())
	}
	err = db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
		tx.Set(string(long), percolator.Column{Table: table, Name: "long"}, nil)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := Copy(ctx, db, pool, config(), percolator.Rows(table)); !errors.Is(err, percolator.ErrTooLarge) {
		t.Errorf("a row that PostgreSQL cannot index: %v", err)
	}
	for _, id := range []pgx.Identifier{{"a\x00"}, {"a", strings.Repeat("x", 64)}, {"\xff"}, {""}} {
		if err := Copy(ctx, db, pool, Config{Table: id}, percolator.Rows(table)); !errors.Is(err, percolator.ErrInvalid) {
			t.Errorf("the table %q: %v", id, err)
		}
	}
}
