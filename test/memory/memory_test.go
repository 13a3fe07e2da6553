package memory_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/test/cluster"
)

func TestMain(m *testing.M) {
	cluster.Main(nil)
	os.Exit(m.Run())
}

const (
	callers    = 32
	valueBytes = 10 << 10
	rows       = 80_000 // 0.8 GB
)

// TestLimit writes values of 10 KB, one per transaction, from 32 callers: first 0.8 GB of new
// rows, then random overwrites. The node runs with its default settings in a cgroup with a limit
// of MEMORY bytes, 1 GiB if that is not a number, none if it is "none"; it must survive, and serve
// afterwards. The test prints the peak memory of the process, and its rate.
func TestLimit(t *testing.T) {
	limit := os.Getenv("MEMORY")
	if limit == "" {
		t.Skip("set MEMORY: it writes gigabytes for minutes")
	}
	cfg := cluster.Config{Nodes: 1, Dir: t.TempDir(), Memory: 1 << 30}
	if n, err := strconv.ParseInt(limit, 10, 64); err == nil && n > 1 {
		cfg.Memory = n
	} else if limit == "none" {
		cfg.Memory = 0
	}
	if flags := os.Getenv("FLAGS"); flags != "" {
		cfg.Args = strings.Fields(flags)
	}
	during := time.Minute
	if d, err := time.ParseDuration(os.Getenv("DURATION")); err == nil {
		during = d
	}
	ctx := t.Context()
	c, err := cluster.New(cfg)
	if errors.Is(err, cluster.ErrUnable) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	switch err := c.Start(ctx); {
	case errors.Is(err, cluster.ErrUnable):
		t.Skip(err)
	case err != nil:
		t.Fatal(err)
	}
	if err := c.Ready(ctx); err != nil {
		t.Fatal(err)
	}
	db, err := c.Dial(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	if err := db.CreateTable(ctx, percolator.TableSpec{Name: "t"}); err != nil {
		t.Fatal(err)
	}
	node := c.Node(0)
	var next atomic.Int64
	fill := func() (int, bool) {
		n := int(next.Add(1))
		return n, n <= rows
	}
	write(ctx, t, db, node, "filled", fill)
	overwrite, cancel := context.WithTimeout(ctx, during)
	defer cancel()
	write(ctx, t, db, node, "overwritten", func() (int, bool) {
		return 1 + rand.IntN(rows), overwrite.Err() == nil
	})
	err = db.Transact(ctx, func(ctx context.Context, tx *percolator.Tx) error {
		_, ok, err := tx.Get(ctx, row(1), column)
		if err == nil && !ok {
			err = errors.New("the first row is gone")
		}
		return err
	})
	if err != nil {
		t.Errorf("after the load: %v", err)
	}
	t.Logf("log: %s", logged(t, cfg.Dir, "node: memory"))
}

var column = percolator.Column{Table: "t", Name: "c"}

func row(n int) string { return fmt.Sprintf("%08d", n) }

// write makes all callers write rows until none is left, and prints rate and memory.
func write(ctx context.Context, t *testing.T, db *percolator.DB, node *cluster.Process, what string,
	next func() (row int, ok bool)) {
	t.Helper()
	value := make([]byte, valueBytes)
	for i := range value {
		value[i] = byte(rand.Uint32())
	}
	began := time.Now()
	var count atomic.Int64
	var first error
	var once sync.Once
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for {
				n, ok := next()
				if !ok || !node.Running() {
					return
				}
				err := db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
					tx.Set(row(n), column, value)
					return nil
				})
				if err != nil {
					once.Do(func() { first = err })
					return
				}
				count.Add(1)
			}
		})
	}
	written := make(chan struct{})
	go func() {
		all.Wait()
		close(written)
	}()
	peak := watch(node, written)
	if err := node.Died(); err != nil {
		t.Fatalf("KILLED: %v, while rows were %s, after %v and %d rows", err, what,
			time.Since(began).Round(time.Second), count.Load())
	}
	if first != nil {
		t.Fatalf("rows %s: %v", what, first)
	}
	t.Logf("%d rows %s, %.0f a second; at most %d MiB resident, %d MiB without mapped files",
		count.Load(), what,
		float64(count.Load())/time.Since(began).Seconds(), peak.resident>>20, peak.anonymous>>20)
}

// usage is the memory of a process in bytes: resident, and without the pages of mapped files,
// which the kernel can reclaim.
type usage struct{ resident, anonymous int64 }

// watch samples the memory of the process ten times a second and returns the peak.
func watch(p *cluster.Process, until <-chan struct{}) (peak usage) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-until:
			return peak
		case <-tick.C: // an ended process has no figures
			resident, _ := p.Memory("VmRSS")
			anonymous, _ := p.Memory("RssAnon")
			peak.resident, peak.anonymous = max(peak.resident, resident), max(peak.anonymous, anonymous)
		}
	}
}

// logged returns the first line of the node's log with the text.
func logged(t *testing.T, dir, text string) string {
	t.Helper()
	b, err := os.ReadFile(dir + "/node-0.log")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if strings.Contains(line, text) {
			return strings.TrimSpace(line)
		}
	}
	return "no line with " + strconv.Quote(text)
}
