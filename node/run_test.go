package node_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/ports"
	"github.com/percolator-go/percolator/node"
)

// TestRun: a node serves remote clients until its context ends, and again on the same directory,
// which shows that the first was closed.
func TestRun(t *testing.T) {
	port, err := ports.Run(1)
	if err != nil {
		t.Fatal(err)
	}
	cfg := node.DefaultConfig()
	cfg.Dir, cfg.Listen, cfg.Insecure = t.TempDir(), ports.Local(port), true
	cfg.HTTP, cfg.Peer, cfg.Gossip = "", "", ""
	cell := percolator.Column{Table: "people", Name: "name"}
	cfg.Observers = func(r *percolator.Registry) { r.Table(percolator.TableSpec{Name: cell.Table}) }
	for _, name := range []string{"", "ann"} { // written by the previous run
		runs(t, cfg, func(ctx context.Context, db *percolator.DB) error {
			return db.Transact(ctx, func(ctx context.Context, tx *percolator.Tx) error {
				if value, _, err := tx.Get(ctx, "1", cell); err != nil || string(value) != name {
					t.Errorf("the name is %q, want %q (%v)", value, name, err)
				}
				tx.Set("1", cell, []byte("ann"))
				return nil
			})
		})
	}
}

// runs runs a node, calls fn with a remote client of it, and stops the node.
func runs(t *testing.T, cfg node.Config, fn func(context.Context, *percolator.DB) error) {
	t.Helper()
	ctx, end := context.WithCancel(t.Context())
	defer end()
	ended := make(chan error, 1)
	go func() { ended <- node.Run(ctx, cfg) }() // ends with ctx
	awaitTrue(t.Context(), t, "the node serves", func() bool {
		if len(ended) > 0 {
			t.Fatalf("Run returned %v", <-ended)
		}
		db, err := percolator.Dial(ctx, []string{cfg.Listen}, percolator.ClientConfig{Insecure: true})
		if err != nil {
			return false
		}
		defer func() { _ = db.Close() }()
		if err := fn(ctx, db); err != nil {
			t.Error(err)
		}
		return true
	})
	end()
	if err := <-ended; err != nil {
		t.Errorf("Run returned %v, want nil once its context ends", err)
	}
}

// waitsToJoin is a log that cancels a context once a node logs that it waits.
type waitsToJoin struct{ end context.CancelFunc }

func (w waitsToJoin) Write(line []byte) (int, error) {
	if strings.Contains(string(line), "join") {
		w.end()
	}
	return len(line), nil
}

// TestRunEndsBeforeItServes: the end of the context is no error while a node waits to join.
func TestRunEndsBeforeItServes(t *testing.T) {
	nobody, err := ports.Addr()
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	defer end()
	cfg := node.DefaultConfig()
	cfg.Dir, cfg.Listen, cfg.HTTP, cfg.Insecure = t.TempDir(), "127.0.0.1:0", "", true
	cfg.Join = []string{nobody}
	cfg.Logger = slog.New(slog.NewTextHandler(waitsToJoin{end}, nil))
	if err := node.Run(ctx, cfg); err != nil {
		t.Errorf("Run returned %v, want nil", err)
	}
	if err := node.Run(t.Context(), node.Config{}); err == nil {
		t.Error("Run returned nil for a configuration without anything")
	}
}
