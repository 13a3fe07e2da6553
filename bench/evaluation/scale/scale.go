// Package scale measures how a node behaves as its data grows: the rate of a bulk load beside a plain
// one, and at 1, 10 and 100 times the data: reads and transactions, disk bytes, a start after kill -9,
// a back-fill and an expiry.
package scale

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/bench/evaluation/harness"
	"github.com/percolator-go/percolator/bench/turns"
	"github.com/percolator-go/percolator/node"
	"github.com/percolator-go/percolator/test/disk"
)

// Measurements returns the measurement.
func Measurements() []harness.Measurement {
	return []harness.Measurement{{
		Name: "scale", Title: "Scale of data", Budget: 10 * time.Minute, Run: run,
	}}
}

const (
	valueBytes = 100
	callers    = 64
	// before is the rate of a plain load before the bulk load existed, in rows/s.
	before = 31000
	// Limits of the time for which a back-fill and an expiry are measured; the job that deletes
	// expired cells pauses for at least as long as it works.
	backfilling = 4 * time.Minute
	expiring    = 2 * time.Minute
)

// sizes are those of a run, in rows.
type sizes struct {
	plain  int // of a plain load
	grown  []int
	window time.Duration
}

func run(ctx context.Context, r *harness.Run) error {
	s := sizes{plain: 200_000, grown: []int{100_000, 1_000_000, 10_000_000}, window: 5 * time.Second}
	if r.Smoke {
		s = sizes{plain: 2000, grown: []int{1000, 2000, 4000}, window: 300 * time.Millisecond}
	}
	for range r.Rounds {
		if err := harness.InDir(r.Dir, func(dir string) error { return loads(ctx, r, dir, s) }); err != nil {
			return err
		}
	}
	r.Axes("size", "rows", "operations/s", true, false)
	// Each size once: the largest takes minutes.
	rates := map[string][]float64{}
	for _, rows := range s.grown {
		err := harness.InDir(r.Dir, func(dir string) error { return grown(ctx, r, dir, rows, s.window, rates) })
		if err != nil {
			return fmt.Errorf("%d rows: %w", rows, err)
		}
	}
	r.Note("Rows have one value of %d bytes; %d callers read a random row, or read and write one. Each size is measured once, in one process with the node.",
		valueBytes, callers)
	r.Note("kill -9 ends a process after two-row writes for %v; its next start counts until all acknowledged writes were read. "+
		"A back-fill is measured for at most %v, an expiry for at most %v.", s.window, backfilling, expiring)
	return nil
}

var column = percolator.Column{Table: "rows", Name: "v"}

const rowFormat = "row%012d"

func row(i int) string { return fmt.Sprintf(rowFormat, i) }

// storeOf returns the store's directory below a measurement's.
func storeOf(dir string) string { return filepath.Join(dir, "node") }

// withNode calls fn with a node on a store in dir and a table.
func withNode(ctx context.Context, dir string, observers func(*percolator.Registry), fn func(*node.Node) error) (err error) {
	cfg := node.DefaultConfig()
	cfg.Dir, cfg.Listen, cfg.HTTP, cfg.Insecure, cfg.Observers = storeOf(dir), "127.0.0.1:0", "", true, observers
	n, err := node.Open(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.Close(context.WithoutCancel(ctx))) }()
	if err := n.DB().CreateTable(ctx, percolator.TableSpec{Name: column.Table}); err != nil {
		return err
	}
	return fn(n)
}

// load loads rows by the command, and returns how long it took.
func load(ctx context.Context, r *harness.Run, n *node.Node, dir string, rows int, flags ...string) (time.Duration, error) {
	name := filepath.Join(dir, "rows.jsonl")
	f, err := os.Create(name)
	if err != nil {
		return 0, err
	}
	defer func() { _ = os.Remove(name) }() // the folder is removed too
	out, value := bufio.NewWriterSize(f, 1<<20), strings.Repeat("x", valueBytes)
	for i := range rows {
		_, _ = fmt.Fprintf(out, "{\"row\":%q,\"columns\":{\"v\":%q}}\n", row(i), value) // Flush reports
	}
	if err := errors.Join(out.Flush(), f.Close()); err != nil {
		return 0, err
	}
	began := time.Now()
	args := append([]string{"load", column.Table, name, "--quiet", "--insecure", "--addr", n.Addr()}, flags...)
	if text, err := exec.CommandContext(ctx, filepath.Join(r.Binary, "percolator"), args...).CombinedOutput(); err != nil {
		return 0, fmt.Errorf("load: %w: %s", err, text)
	}
	return time.Since(began), nil
}

// loads compares a plain load and a bulk load, on a node each.
func loads(ctx context.Context, r *harness.Run, dir string, s sizes) error {
	rates := map[string]float64{}
	for _, flags := range [][]string{nil, {"--bulk"}} {
		kind, rows := "load", s.plain
		if flags != nil {
			kind, rows = "load --bulk", 5*s.plain
		}
		err := harness.InDir(dir, func(dir string) error {
			return withNode(ctx, dir, nil, func(n *node.Node) error {
				took, err := load(ctx, r, n, dir, rows, flags...)
				if err != nil {
					return err
				}
				rates[kind] = float64(rows) / took.Seconds()
				r.Value("load of rows", kind, "rows/s", rates[kind])
				return count(ctx, n.DB(), rows)
			})
		})
		if err != nil {
			return err
		}
	}
	r.Ratio("load of rows", "load --bulk / load", rates["load --bulk"]/rates["load"], "")
	r.Ratio("load of rows", "load --bulk / 31,000 rows/s of an earlier load", rates["load --bulk"]/before, "≥ 5")
	return nil
}

// count checks the number of rows.
func count(ctx context.Context, db *percolator.DB, want int) error {
	return db.View(ctx, func(ctx context.Context, s *percolator.Snapshot) error {
		n := 0
		for _, err := range s.Scan(ctx, percolator.Rows(column.Table), column) {
			if err != nil {
				return err
			}
			n++
		}
		if n != want {
			return fmt.Errorf("the table has %d rows, not %d", n, want)
		}
		return nil
	})
}

// grown measures a table of rows. rates has the rates of the smaller tables by kind; grown appends
// its own.
func grown(ctx context.Context, r *harness.Run, dir string, rows int, window time.Duration, rates map[string][]float64) error {
	name := fmt.Sprintf("%d rows", rows)
	err := withNode(ctx, dir, nil, func(n *node.Node) error {
		took, err := load(ctx, r, n, dir, rows, "--bulk")
		if err != nil {
			return err
		}
		r.Value("growth", name, "rows/s loaded", float64(rows)/took.Seconds())
		for _, kind := range []string{"reads/s", "transactions/s"} {
			f, err := turns.Repeat(ctx, callers, window/2, window, func(ctx context.Context, _, _ int) error {
				return n.DB().Transact(ctx, func(ctx context.Context, tx *percolator.Tx) error {
					row := row(rand.IntN(rows))
					v, ok, err := tx.Get(ctx, row, column)
					if err == nil && !ok {
						err = fmt.Errorf("%s is missing", row)
					}
					if kind == "transactions/s" {
						tx.Set(row, column, v)
					}
					return err
				})
			})
			if err != nil {
				return err
			}
			r.Value("growth", name, kind, f.PerSecond)
			r.Point("size", kind, float64(rows), f.PerSecond)
			rates[kind] = append(rates[kind], f.PerSecond)
			if n := len(rates[kind]); n > 1 {
				r.Ratio(kind+" / those of the smallest", name, f.PerSecond/rates[kind][0], "≥ 0.7")
				r.Ratio(kind+" / those of the previous size", name, f.PerSecond/rates[kind][n-2], "")
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	bytes, _, err := disk.Usage(storeOf(dir))
	if err != nil {
		return err
	}
	r.Value("growth", name, "disk bytes/user byte", float64(bytes)/float64(rows*(valueBytes+len(row(0))+len(column.Name))))
	if err := killed(ctx, r, dir, name, rows, window); err != nil {
		return err
	}
	if err := backfill(ctx, r, dir, name, rows); err != nil {
		return err
	}
	return withNode(ctx, dir, nil, func(n *node.Node) error { return expire(ctx, r, n.DB(), name, rows) })
}
