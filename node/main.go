package node

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/cli"
	"github.com/percolator-go/percolator/internal/memory"
)

// Main runs the whole command line of a program that links observers (§2.4), then ends
// the process with its exit code, so deferred calls of main do not run: call it last.
// observers registers the program's observers; it may be nil. Main keeps no state but the
// channel of signals, which the command line reads.
func Main(observers func(r *percolator.Registry)) {
	// The standard library wants room for signals: it drops what a receiver is not ready
	// for.
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	app := &cli.App{
		Name:      filepath.Base(os.Args[0]),
		Version:   Version(),
		Observers: observers,
		Start: func(ctx context.Context, cfg Config) (cli.RunningNode, error) {
			// Before anything is opened: the store's sizes follow from the same bound.
			memory.Hold(memory.Find(cfg.Memory))
			// The error is tested here because a nil *Node in a RunningNode is not nil.
			n, err := Open(ctx, cfg)
			if err != nil {
				return nil, err
			}
			return n, nil
		},
		Environ: os.Environ(),
		Stdin:   os.Stdin,
		Stdout:  os.Stdout,
		Stderr:  os.Stderr,
		Signals: signals,
	}
	os.Exit(app.Run(context.Background(), os.Args[1:]))
}
