// Package postgres runs a scratch server of the installed PostgreSQL with its default durability:
// every commit is synced. The server belongs to the measurement that starts it: it has a directory
// and a socket of its own, no port, and ends with this process.
package postgres

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
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// ErrMissing reports that PostgreSQL is not installed, or not to be used.
var ErrMissing = errors.New("postgres: PostgreSQL is not available (Debian: apt-get install postgresql-15)")

// Without is the name of an environment variable that, if not empty, makes measurements skip
// PostgreSQL even if it is installed.
const Without = "PERCOLATOR_BENCH_WITHOUT_POSTGRES"

// Bin returns the directory of the newest server's programs, or an error that wraps ErrMissing.
func Bin() (string, error) {
	if os.Getenv(Without) != "" {
		return "", fmt.Errorf("%w: %s is set", ErrMissing, Without)
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil || len(found) == 0 {
		return "", ErrMissing
	}
	return filepath.Dir(found[len(found)-1]), nil
}

// maxConns is the number of connections of Pool, below the server's default limit of 100.
const maxConns = 90

// readyWithin bounds the start of a server.
const readyWithin = 30 * time.Second

// Server is a running server.
type Server struct {
	Pool *pgxpool.Pool // nil: a standby

	dir, programs string
	settings      []string
	process       *exec.Cmd
	log           bytes.Buffer
}

// Start starts a server in an empty directory with additional settings, such as
// "shared_buffers=256MB", and runs the statements of schema. As root it runs the server as the user
// postgres, to whom it gives the directory; all parents of the directory must be searchable.
func Start(ctx context.Context, dir, schema string, settings ...string) (_ *Server, err error) {
	programs, err := Bin()
	if err != nil {
		return nil, err
	}
	attr, err := unprivileged(dir)
	if err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "data")
	initdb := exec.CommandContext(ctx, filepath.Join(programs, "initdb"), "-D", data, "-A", "trust",
		"-U", "bench", "--no-sync")
	initdb.SysProcAttr, initdb.Dir = attr, dir
	if out, err := initdb.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("postgres: initdb: %w: %s", err, out)
	}
	s, err := run(programs, dir, attr, settings...)
	if err != nil {
		return nil, err
	}
	if err := s.open(ctx, schema); err != nil {
		return nil, errors.Join(err, s.Close(), errors.New(s.log.String()))
	}
	return s, nil
}

// run runs a server on the directory data in dir, with its socket in dir.
func run(programs, dir string, attr *syscall.SysProcAttr, settings ...string) (*Server, error) {
	s := &Server{dir: dir, programs: programs, settings: settings}
	s.process = exec.Command(filepath.Join(programs, "postgres"), "-D", filepath.Join(dir, "data"), "-k", dir,
		"-c", "listen_addresses=")
	for _, set := range settings {
		s.process.Args = append(s.process.Args, "-c", set)
	}
	s.process.SysProcAttr, s.process.Dir, s.process.Stderr = attr, dir, &s.log
	return s, s.process.Start()
}

// Standby starts a server in an empty directory that replicates s by a stream of its log.
func (s *Server) Standby(ctx context.Context, dir string) (*Server, error) {
	attr, err := unprivileged(dir)
	if err != nil {
		return nil, err
	}
	backup := exec.CommandContext(ctx, filepath.Join(s.programs, "pg_basebackup"), "-h", s.dir, "-U", "bench",
		"-D", filepath.Join(dir, "data"), "--write-recovery-conf", "--checkpoint=fast", "--no-sync")
	backup.SysProcAttr, backup.Dir = attr, dir
	if out, err := backup.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("postgres: pg_basebackup: %w: %s", err, out)
	}
	return run(s.programs, dir, attr, s.settings...)
}

// Synchronous waits for a number of standbys, and makes every commit wait until one of them has
// synced it, too.
func (s *Server) Synchronous(ctx context.Context, standbys int) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	for streaming := 0; streaming < standbys; {
		if err := s.Pool.QueryRow(ctx, `SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'`).
			Scan(&streaming); err != nil {
			return fmt.Errorf("postgres: %d of %d standbys replicate: %w", streaming, standbys, err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
	if _, err := s.Pool.Exec(ctx, `ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (*)'`); err != nil {
		return err
	}
	_, err := s.Pool.Exec(ctx, `SELECT pg_reload_conf()`)
	return err
}

// open connects, waits until the server answers, and makes the schema.
func (s *Server) open(ctx context.Context, schema string) error {
	cfg, err := pgxpool.ParseConfig(fmt.Sprintf("host=%s user=bench dbname=postgres pool_max_conns=%d",
		s.dir, maxConns))
	if err != nil {
		return err
	}
	if s.Pool, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return err
	}
	waiting, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	for err = s.Pool.Ping(waiting); err != nil; err = s.Pool.Ping(waiting) {
		select {
		case <-waiting.Done():
			return err
		case <-time.After(20 * time.Millisecond):
		}
	}
	_, err = s.Pool.Exec(ctx, schema)
	return err
}

// Close closes the pool and stops the server.
func (s *Server) Close() error {
	if s.Pool != nil {
		s.Pool.Close()
	}
	// SIGINT is a fast shutdown.
	return errors.Join(s.process.Process.Signal(syscall.SIGINT), s.process.Wait())
}

// unprivileged changes the owner of the directory to the user that runs the server: PostgreSQL
// does not run as root.
func unprivileged(dir string) (*syscall.SysProcAttr, error) {
	attr := &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGINT}
	if os.Getuid() != 0 {
		return attr, nil
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
	attr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return attr, os.Chown(dir, uid, gid)
}

// CPU adds up the processor time of the server's processes; those that have ended count as the
// first one's children. It is 0 if /proc cannot be read.
func (s *Server) CPU() (sum time.Duration) {
	first := s.process.Process.Pid
	all, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range all {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		// After the name, in brackets: the state, the parent, …, and from the 14th field on
		// the time of the process, and of its children that have ended, in hundredths.
		_, rest, _ := strings.Cut(string(text), ") ")
		fields := strings.Fields(rest)
		if len(fields) < 15 {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		parent, _ := strconv.Atoi(fields[1])
		if pid != first && parent != first {
			continue
		}
		for _, f := range fields[11:15] {
			ticks, _ := strconv.Atoi(f)
			sum += time.Duration(ticks) * 10 * time.Millisecond
		}
	}
	return sum
}
