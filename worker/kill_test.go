package worker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/leaktest"
	"github.com/percolator-go/percolator/test/cluster"
	"github.com/percolator-go/percolator/test/cluster/clustertest"
	"github.com/percolator-go/percolator/worker"
)

// workerOf carries the nodes' addresses to a process that runs a worker.
const workerOf = "PERCOLATOR_TEST_WORKER"

func TestMain(m *testing.M) {
	if addrs, ok := os.LookupEnv(workerOf); ok {
		cfg := worker.Config{Client: percolator.ClientConfig{Insecure: true}}
		if err := worker.Run(context.Background(), strings.Split(addrs, ","), totalling, cfg); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	cluster.Main(nil)
	leaktest.Main(m)
}

var total = percolator.Column{Table: "totals", Name: "count"}

// totalling registers an observer that counts each row twice, in one transaction over two tablets:
// in the row and in one of a few hundred totals.
func totalling(r *percolator.Registry) {
	r.Table(percolator.TableSpec{Name: total.Table})
	r.Strong("count", input, func(ctx context.Context, tx *percolator.Tx, n percolator.Notification) error {
		add := func(row string, c percolator.Column) error {
			v, _, err := tx.Get(ctx, row, c)
			tx.Set(row, c, append(v, '+'))
			return err
		}
		if err := add(n.Row, count); err != nil {
			return err
		}
		return add(fmt.Sprint(len(n.Row)%3, n.Row[len(n.Row)-2:]), total)
	}, percolator.Concurrency(16))
}

// workerProcess is a worker that can be killed.
type workerProcess struct {
	t     testing.TB
	addrs []string
	log   bytes.Buffer
	cmd   *exec.Cmd
}

func (p *workerProcess) start() {
	p.t.Helper()
	p.cmd = exec.Command(os.Args[0])
	p.cmd.Env = append(os.Environ(), workerOf+"="+strings.Join(p.addrs, ","))
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
}

func (p *workerProcess) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait() // reports the signal
}

// TestCountsExactlyOnceUnderKill9 kills workers and nodes by SIGKILL while rows are written: each
// row is counted once, in both tablets.
func TestCountsExactlyOnceUnderKill9(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	c := clustertest.Start(ctx, t, cluster.Config{Nodes: 3})
	db, err := c.Dial(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	for _, spec := range []percolator.TableSpec{{Name: input.Table, SplitKeys: []string{"row/5"}}, {Name: total.Table}} {
		if err := db.CreateTable(ctx, spec); err != nil {
			t.Fatal(err)
		}
	}
	clustertest.Replicated(ctx, t, db, 4)
	workers := make([]*workerProcess, 2)
	for i := range workers {
		workers[i] = &workerProcess{t: t, addrs: c.Addrs()}
		workers[i].start()
		defer func() {
			workers[i].kill()
			if t.Failed() {
				t.Logf("worker %d:\n%s", i, &workers[i].log)
			}
		}()
	}
	eventually(t, "the observer is linked", func() bool {
		all, err := handle.Client(db).Transport().Observers(ctx)
		return err == nil && len(all) == 1 && all[0].GetLinked()
	})
	w := &rowWriter{db: db}
	for round := range 3 {
		w.write(ctx, t, 200)
		workers[round%2].kill()
		w.write(ctx, t, 200)
		workers[round%2].start()
		if round > 0 {
			node := c.Node(round)
			if err := node.Kill(); err != nil {
				t.Fatal(err)
			}
			w.write(ctx, t, 100)
			if err := node.Start(); err != nil {
				t.Fatal(err)
			}
			if err := c.Ready(ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
	rows := rowsIn(t, db)
	began := time.Now()
	eventually(t, "every row is counted", func() bool { return sum(counts(t, db)) >= rows })
	t.Logf("counted %v after the last write", time.Since(began))
	if err := db.WaitIdle(ctx); err != nil {
		t.Fatal(err)
	}
	if got := counts(t, db); got["+"] != rows || len(got) != 1 {
		t.Errorf("counts %v, want %d rows that were counted once", got, rows)
	}
	if got := totalOf(t, db); got != rows {
		t.Errorf("the totals are %d, want %d", got, rows)
	}
	t.Log(rows, "rows")
}

// rowWriter writes rows, each once.
type rowWriter struct {
	db      *percolator.DB
	written atomic.Int64
}

// write writes the given number of rows, a few at once. A write of unknown outcome is not repeated.
func (w *rowWriter) write(ctx context.Context, t testing.TB, rows int) {
	t.Helper()
	var writing errgroup.Group
	writing.SetLimit(4)
	for range rows {
		writing.Go(func() error {
			n := w.written.Add(1)
			err := w.db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
				tx.Set(fmt.Sprintf("row/%d/%d", n%10, n), input, []byte("x"))
				return nil
			})
			if errors.Is(err, percolator.ErrCommitUnknown) {
				return nil
			}
			return err
		})
	}
	if err := writing.Wait(); err != nil {
		t.Fatal(err)
	}
}

// rowsIn returns the number of written rows, including those whose write had an unknown outcome.
func rowsIn(t testing.TB, db *percolator.DB) (rows int) {
	t.Helper()
	each(t, db, percolator.Rows(input.Table), input, func(percolator.Cell) { rows++ })
	return rows
}

func totalOf(t testing.TB, db *percolator.DB) (sum int) {
	t.Helper()
	each(t, db, percolator.Rows(total.Table), total, func(c percolator.Cell) { sum += len(c.Value) })
	return sum
}

func sum(counts map[string]int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}
