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

// Main is the whole command line of a program that links the observers (§2.4): it runs
// what the arguments say and ends the process with their exit code. observers may be nil.
// Call it last in main.
func Main(observers func(r *percolator.Registry)) {
	// The standard library wants room for signals: it drops what a receiver is not ready for.
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	app := &cli.App{
		Name:      filepath.Base(os.Args[0]),
		Version:   Version(),
		Observers: observers,
		Start: func(ctx context.Context, cfg Config) (cli.RunningNode, error) {
			memory.Hold(memory.Find(cfg.Memory))
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
