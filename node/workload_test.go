package node_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/percolator-go/percolator/internal/nodeparts"
	"github.com/percolator-go/percolator/node"
	"github.com/percolator-go/percolator/test/workload"
)

// open starts a node in the directory, in memory if dir is empty, and closes it with the test.
func open(t testing.TB, dir string, change func(*node.Config)) *node.Node {
	t.Helper()
	return openWith(t, dir, nodeparts.Parts{}, change)
}

// openWith is open with some parts of the node replaced.
func openWith(t testing.TB, dir string, parts nodeparts.Parts, change func(*node.Config)) *node.Node {
	t.Helper()
	cfg := node.DefaultConfig()
	cfg.Dir, cfg.Listen, cfg.HTTP, cfg.Insecure = dir, "127.0.0.1:0", "", true
	cfg.Store.InMemory = dir == ""
	cfg.Logger = slog.New(slog.NewTextHandler(os.Stderr,
		&slog.HandlerOptions{Level: slog.LevelWarn}))
	if change != nil {
		change(&cfg)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	n, err := nodeparts.Open[node.Node](ctx, cfg, parts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := n.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return n
}

// TestWorkloads checks the guarantees of package workload on a node, in one tablet (one-phase
// commits) and in several.
func TestWorkloads(t *testing.T) {
	t.Parallel()
	for _, tablets := range []int{1, 4} {
		t.Run(fmt.Sprintf("%d tablets", tablets), func(t *testing.T) {
			ctx := context.Background()
			db := open(t, t.TempDir(), nil).DB()
			if err := workload.Prepare(ctx, db, tablets); err != nil {
				t.Fatal(err)
			}
			if err := workload.OpenBank(ctx, db); err != nil {
				t.Fatal(err)
			}
			l := workload.Load{Workers: 8, Duration: time.Second, Seed: 1}
			for _, w := range workload.All() {
				t.Run(w.Name, func(t *testing.T) {
					l.Tally = &workload.Tally{}
					if err := w.Run(ctx, db, l); err != nil {
						t.Error(err)
					}
					if f := l.Tally.Figures(); f.Done == 0 { // a workload excuses operations that fail
						t.Errorf("no operation was done: %+v", f)
					}
				})
			}
			for range 2 {
				happened, err := workload.WriteSkew(ctx, db)
				if err != nil {
					t.Fatal(err)
				}
				if !happened {
					t.Error("write skew was refused: this is not snapshot isolation")
				}
			}
		})
	}
}
