// Command pauses measures how long callers wait while a cluster of processes changes under
// them, and fails if one of them waits longer than a bound.
//
//	go run ./bench/pauses -builds bin                    every scene
//	go run ./bench/pauses -builds bin -sync-delay 5ms    adds 5 ms to every sync of a node; needs strace
//	go run ./bench/pauses -builds base,bin -rounds 3     compares two builds in turns
//
// A build is a folder with the binary percolator. The callers are in this process. Each reads
// and writes rows of its own, half of them two rows per transaction. A pause is the duration of
// one Transact with all its runs.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/bench/turns"
	"github.com/percolator-go/percolator/test/cluster"
)

type options struct {
	callers   int
	bound     time.Duration
	syncDelay time.Duration
	logs      string
}

var column = percolator.Column{Table: "bench", Name: "c"}

func main() { turns.Main("pauses", run) }

func run(ctx context.Context) (err error) {
	var o options
	plan := turns.Plan{Columns: []string{"ms longest", "ms p99.9", "ms p50", "/s"}}
	only := plan.Flags(1)
	builds := flag.String("builds", "bin", "comma-separated folders with the binary percolator")
	flag.IntVar(&o.callers, "callers", 32, "number of concurrent callers")
	flag.DurationVar(&o.bound, "bound", 2*time.Second, "longest pause allowed")
	flag.DurationVar(&o.syncDelay, "sync-delay", 0, "delay added to every sync of a node; needs strace")
	flag.StringVar(&o.logs, "logs", "", "folder for the nodes' logs, at level debug; empty: remove them")
	flag.Parse()
	if flag.NArg() > 0 || o.callers < 1 || o.bound <= 0 {
		return errors.New("-callers and -bound must be positive, and no arguments are accepted")
	}
	folders, names, err := turns.Builds(*builds, "percolator")
	if err != nil {
		return err
	}
	var chosen []scene
	for _, s := range scenes {
		if strings.Contains(s.name, *only) {
			chosen, plan.Workloads = append(chosen, s), append(plan.Workloads, s.name)
		}
	}
	var long error
	plan.Variants = names
	plan.Measure = func(ctx context.Context, i, build int) ([]float64, error) {
		f, during, err := measure(ctx, o, chosen[i], filepath.Join(folders[build], "percolator"))
		if f.At(1) > o.bound {
			long = errors.Join(long, fmt.Errorf("%s, %s: a caller waited %v; the bound is %v",
				chosen[i].name, names[build], f.At(1), o.bound))
		}
		fmt.Printf("%s, %s: the longest pause began %s\n", chosen[i].name, names[build], during)
		return append(f.Millis(1, 0.999, 0.5), f.PerSecond), err
	}
	return errors.Join(plan.Run(ctx, os.Stdout), long)
}

// measure runs the scene on a fresh cluster, under the callers' load.
// during says when the longest pause began.
func measure(ctx context.Context, o options, s scene, binary string) (f turns.Figure, during string, err error) {
	cfg := s.cluster
	cfg.Binary, cfg.SyncDelay = binary, o.syncDelay
	if o.logs != "" {
		cfg.Args = []string{"--log-level", "debug"}
	}
	err = turns.WithCluster(ctx, cfg, func(c *cluster.Cluster, dir string) (err error) {
		db, err := c.Dial(ctx)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, db.Close(), keepLogs(c, o.logs, s.name)) }()
		st := &stage{c: c, db: db}
		if err := st.prepare(ctx); err != nil {
			return err
		}
		if _, err := turns.Repeat(ctx, o.callers, 0, turns.Warmup, st.transact); err != nil {
			return err
		}
		g, loaded := errgroup.WithContext(ctx)
		loaded, stop := context.WithCancel(loaded)
		st.begin("the load")
		g.Go(func() error { return dirty(loaded, dir, s.dirties) })
		g.Go(func() error { return s.play(loaded, st) })
		g.Go(func() (err error) {
			defer stop()
			f, err = turns.Repeat(loaded, o.callers, 0, s.lasts, st.transact)
			return err
		})
		err = g.Wait()
		during = st.during
		return err
	})
	return f, during, err
}

// keepLogs copies the nodes' logs into a folder.
func keepLogs(c *cluster.Cluster, folder, scene string) error {
	if folder == "" {
		return nil
	}
	var errs []error
	for _, p := range c.Nodes() {
		text, err := os.ReadFile(p.Log())
		name := fmt.Sprintf("%s-%s", strings.ReplaceAll(scene, " ", "-"), filepath.Base(p.Log()))
		errs = append(errs, err, os.WriteFile(filepath.Join(folder, name), text, 0o600))
	}
	return errors.Join(errs...)
}

// stage is the cluster of a scene.
type stage struct {
	c  *cluster.Cluster
	db *percolator.DB

	mu      sync.Mutex
	step    string    // the last one begun
	at      time.Time // when it began
	longest time.Duration
	during  string // the longest transaction: when it began, relative to which step
}

// begin records the start of a step of the scene.
func (s *stage) begin(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.step, s.at = fmt.Sprintf(format, args...), time.Now()
}

// patience is the timeout of one transaction.
const patience = 30 * time.Second

// transact reads and writes one row of the caller, or two.
func (s *stage) transact(ctx context.Context, caller, i int) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	rows := []string{rowOf(caller, i)}
	if caller%2 == 1 {
		rows = append(rows, rowOf(caller, i+1))
	}
	began := time.Now()
	err := s.db.Transact(ctx, func(ctx context.Context, tx *percolator.Tx) error {
		for _, row := range rows {
			if _, _, err := tx.Get(ctx, row, column); err != nil {
				return err
			}
			tx.Set(row, column, make([]byte, 100))
		}
		return nil
	})
	s.took(began)
	return err
}

// took records a transaction that has just ended if it is the longest since the first step.
func (s *stage) took(began time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if took := time.Since(began); s.step != "" && took > s.longest {
		s.longest = took
		s.during = fmt.Sprintf("%v after %q", began.Sub(s.at).Round(time.Millisecond), s.step)
	}
}

// rowOf returns one of the caller's rows, which are spread over the whole table.
func rowOf(caller, i int) string {
	return fmt.Sprintf("%03d/%d", (i*389+caller*7)%1000, caller)
}
