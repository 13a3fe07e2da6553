package peers

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/bench/evaluation/harness"
	scratch "github.com/percolator-go/percolator/bench/evaluation/postgres"
	"github.com/percolator-go/percolator/bench/turns"
	"github.com/percolator-go/percolator/node"
	"github.com/percolator-go/percolator/recipes/closure"
)

// Checks whether a user may read a document, through nested teams and nested folders: by a closure,
// which one read answers; by OpenFGA, which walks the relations; and by a recursive query in
// PostgreSQL. The closure's node and PostgreSQL are servers reached through a local socket; OpenFGA
// runs in this process and is called without one, on its memory store and on PostgreSQL. Its caches of
// results are off, as by default. All kinds must give the same answers.

// access is who may read what: edges from users to teams, to folders, to documents.
type access struct {
	edges  [][2]string
	users  []string
	checks [][2]string // a user and a document
}

// makeAccess makes 100 users, each in 2 of 50 teams; each team sees 3 of 200 folders, and each of
// 2,000 documents is in one folder. Every second team is a member of an earlier team, and every
// folder after the first ten is in an earlier folder.
func makeAccess() (a access) {
	random := rand.New(rand.NewPCG(1, 1))
	edge := func(from string, i int, to string, j int) {
		a.edges = append(a.edges, [2]string{fmt.Sprint(from, i), fmt.Sprint(to, j)})
	}
	for i := range 100 {
		a.users = append(a.users, fmt.Sprint("user", i))
		edge("user", i, "team", random.IntN(50))
		edge("user", i, "team", random.IntN(50))
	}
	for i := range 50 {
		if i%2 == 1 {
			edge("team", i, "team", random.IntN(i))
		}
		for range 3 {
			edge("team", i, "folder", random.IntN(200))
		}
	}
	for i := 10; i < 200; i++ {
		edge("folder", random.IntN(i), "folder", i)
	}
	for i := range 2000 {
		edge("folder", random.IntN(200), "document", i)
	}
	slices.SortFunc(a.edges, func(a, b [2]string) int { return slices.Compare(a[:], b[:]) })
	a.edges = slices.Compact(a.edges)
	for range 2000 {
		a.checks = append(a.checks, [2]string{
			a.users[random.IntN(len(a.users))], fmt.Sprint("document", random.IntN(2000)),
		})
	}
	return a
}

const closureKind = "recipes/closure"

// checker answers checks.
type checker interface {
	check(ctx context.Context, user, document string) (bool, error)
	close(ctx context.Context) error
}

type checkerKind struct {
	name string
	open func(ctx context.Context, dir string, a access) (checker, error)
}

var checkers = []checkerKind{
	{closureKind, openClosure},
	{"OpenFGA, memory store", openFGAInMemory},
	{"OpenFGA, PostgreSQL store", openFGAInPostgres},
	{"PostgreSQL, from the user", func(ctx context.Context, dir string, a access) (checker, error) {
		return openRecursive(ctx, dir, a, `WITH RECURSIVE reached (node) AS (
			SELECT $1::text UNION SELECT target FROM edges JOIN reached ON source = node)
			SELECT EXISTS (SELECT FROM reached WHERE node = $2)`)
	}},
	{"PostgreSQL, from the document", func(ctx context.Context, dir string, a access) (checker, error) {
		return openRecursive(ctx, dir, a, `WITH RECURSIVE reached (node) AS (
			SELECT $2::text UNION SELECT source FROM edges JOIN reached ON target = node)
			SELECT EXISTS (SELECT FROM reached WHERE node = $1)`)
	}},
}

// throughClosure is a node in this process, and a client of it through a socket.
type throughClosure struct {
	node    *node.Node
	db      *percolator.DB
	closure *closure.Closure
}

func openClosure(ctx context.Context, dir string, a access) (checker, error) {
	c := closure.New(closure.Config{Name: "access"})
	cfg := node.DefaultConfig()
	cfg.Dir, cfg.Listen, cfg.HTTP, cfg.Insecure = dir, "127.0.0.1:0", "", true
	cfg.Observers = func(r *percolator.Registry) { c.Register(r) }
	n, err := node.Open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	s := &throughClosure{node: n, closure: c}
	if s.db, err = percolator.Dial(ctx, []string{n.Addr()}, percolator.ClientConfig{Insecure: true}); err != nil {
		return nil, errors.Join(err, n.Close(ctx))
	}
	err = s.db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
		for _, user := range a.users {
			c.Mark(tx, user, user)
		}
		c.AddEdges(tx, a.edges...)
		return nil
	})
	return s, errors.Join(err, s.db.WaitIdle(ctx))
}

func (s *throughClosure) check(ctx context.Context, user, document string) (ok bool, err error) {
	snapshot, err := s.db.Snapshot(ctx)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, snapshot.Close()) }()
	return s.closure.Has(ctx, snapshot, user, document)
}

func (s *throughClosure) close(ctx context.Context) error {
	return errors.Join(s.db.Close(), s.node.Close(ctx))
}

// recursive asks PostgreSQL.
type recursive struct {
	*postgres
	query string
}

func openRecursive(ctx context.Context, dir string, a access, query string) (checker, error) {
	s, err := startPostgres(ctx, dir, `
		CREATE TABLE edges (source text, target text, PRIMARY KEY (source, target));
		CREATE INDEX ON edges (target, source);`)
	if err != nil {
		return nil, err
	}
	rows := make([][]any, len(a.edges))
	for i, e := range a.edges {
		rows[i] = []any{e[0], e[1]}
	}
	_, err = s.pool.CopyFrom(ctx, pgx.Identifier{"edges"}, []string{"source", "target"},
		pgx.CopyFromRows(rows))
	if err == nil {
		_, err = s.pool.Exec(ctx, "ANALYZE edges")
	}
	return &recursive{s, query}, err
}

func (s *recursive) check(ctx context.Context, user, document string) (ok bool, err error) {
	err = s.pool.QueryRow(ctx, s.query, user, document).Scan(&ok)
	return ok, err
}

// runClosure measures the checks of each kind with one caller and with 16, in turns.
func runClosure(ctx context.Context, r *harness.Run) error {
	a, d := makeAccess(), time.Second
	if r.Smoke {
		d, a.checks = 50*time.Millisecond, a.checks[:100]
	}
	for range r.Rounds {
		allowed, of := -1, turns.Figure{}
		for _, kind := range checkers {
			count, f, err := measureChecker(ctx, r, kind, a, d)
			if errors.Is(err, scratch.ErrMissing) {
				r.Logf("skipped %s: %v", kind.name, err)
				continue
			}
			if err != nil {
				return fmt.Errorf("%s: %w", kind.name, err)
			}
			if allowed >= 0 && count != allowed {
				return fmt.Errorf("%s allows %d of %d checks, but %s allows %d", kind.name, count, len(a.checks),
					checkers[0].name, allowed)
			}
			if allowed = count; kind.name == closureKind {
				of = f
			} else {
				r.Ratio(closureTable, "checks/s of 16: "+closureKind+" / "+kind.name, of.PerSecond/f.PerSecond, "")
			}
		}
	}
	r.Note("%d users, %d edges, %d different checks. OpenFGA is called in process, the others through a socket; its memory store is not durable.",
		len(a.users), len(a.edges), len(a.checks))
	return nil
}

const closureTable = "checks"

// measureChecker returns how many of the checks are allowed, and the figure with 16 callers.
func measureChecker(ctx context.Context, r *harness.Run, kind checkerKind, a access, d time.Duration) (allowed int, many turns.Figure, err error) {
	err = harness.InDir(r.Dir, func(dir string) error {
		began := time.Now()
		c, err := kind.open(ctx, dir, a)
		if err != nil {
			return err
		}
		r.Value(closureTable, kind.name, "s to load", time.Since(began).Seconds())
		if allowed, err = answers(ctx, c, a); err != nil {
			return errors.Join(err, c.close(ctx))
		}
		check := func(ctx context.Context, caller, i int) error {
			p := a.checks[(137*caller+i)%len(a.checks)]
			_, err := c.check(ctx, p[0], p[1])
			return err
		}
		alone, err1 := turns.Repeat(ctx, 1, 0, d, check)
		var err2 error
		many, err2 = turns.Repeat(ctx, 16, 0, d, check)
		r.Value(closureTable, kind.name, "ms p50", alone.Millis(0.5)[0])
		r.Value(closureTable, kind.name, "ms p99", alone.Millis(0.99)[0])
		r.Value(closureTable, kind.name, "/s of 16 callers", many.PerSecond)
		return errors.Join(err1, err2, c.close(ctx))
	})
	return allowed, many, err
}

// answers returns how many checks are allowed.
func answers(ctx context.Context, c checker, a access) (allowed int, err error) {
	for _, p := range a.checks {
		ok, err := c.check(ctx, p[0], p[1])
		if err != nil {
			return 0, err
		}
		if ok {
			allowed++
		}
	}
	return allowed, nil
}
