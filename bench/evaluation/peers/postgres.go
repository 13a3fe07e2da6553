package peers

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

// Servers of Debian's PostgreSQL with the default settings: every commit is synced.

var errNoPostgres = errors.New("PostgreSQL is not available (Debian: apt-get install postgresql-15)")

// withoutPostgres, in the environment, makes measurements skip PostgreSQL even if it is installed.
const withoutPostgres = "PERCOLATOR_BENCH_WITHOUT_POSTGRES"

// postgresBin returns the directory of the server's programs.
func postgresBin() (string, error) {
	if os.Getenv(withoutPostgres) != "" {
		return "", fmt.Errorf("%w: %s is set", errNoPostgres, withoutPostgres)
	}
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
	cfg, err := pgxpool.ParseConfig("host=" + dir + " user=bench dbname=postgres pool_max_conns=90")
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

// cpu adds up the server's processes; those that have ended count as the first one's children. It
// is 0 if /proc cannot be read.
func (s *postgres) cpu() (sum time.Duration) {
	first := s.server.Process.Pid
	all, _ := filepath.Glob("/proc/[0-9]*/stat")
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
			ticks, _ := strconv.Atoi(f)
			sum += time.Duration(ticks) * 10 * time.Millisecond
		}
	}
	return sum
}
