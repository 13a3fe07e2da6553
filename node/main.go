package node

import (
	"context"
	"flag"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/cli"
	"github.com/percolator-go/percolator/internal/memory"
	"github.com/percolator-go/percolator/internal/version"
)

// Main runs the whole command line of a program that links observers (§2.4), then ends
// the process with its exit code, so deferred calls of main do not run: call it last.
// observers registers the program's observers and tables; it may be nil. Options add
// commands and flags of the program's own, and what runs beside its node, so that an
// application is one binary. Main keeps no state but the channel of signals, which the
// command line reads.
func Main(observers func(r *percolator.Registry), opts ...MainOption) {
	// The standard library wants room for signals: it drops what a receiver is not ready
	// for.
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	app := &cli.App{
		Name:      filepath.Base(os.Args[0]),
		Version:   Version(),
		Program:   version.Program(),
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
	for _, opt := range opts {
		opt(&mainOptions{app})
	}
	os.Exit(app.Run(context.Background(), os.Args[1:]))
}

// MainOption adds something to the command line of Main.
type MainOption func(*mainOptions)

type mainOptions struct{ app *cli.App }

// OnStart has fn run, on a goroutine of its own, beside the node of the commands start and
// dev: it is called when the node serves. Its tables and observers are there, unless meta has
// not answered for ten seconds; then an operation may fail with ErrNoTable. It may return
// nil at once, or stay, as a server does, until ctx ends: that is when the node is about
// to be drained, which waits for fn to return, for half of the drain's timeout at most. An
// error ends the node and the process.
func OnStart(fn func(ctx context.Context, n *Node) error) MainOption {
	return func(o *mainOptions) {
		o.app.OnStart = append(o.app.OnStart, func(ctx context.Context, n cli.RunningNode) error {
			return fn(ctx, n.(*Node))
		})
	}
}

// Flags adds flags to the commands start and dev; as theirs, they can also be given in the
// environment (PERCOLATOR_…) and in the configuration file. define is called for each
// command, and must give a flag the same default each time. The values are there when
// observers are registered and when OnStart's functions run. A name that percolator uses
// panics.
func Flags(define func(flags *flag.FlagSet)) MainOption {
	return func(o *mainOptions) {
		before := o.app.Flags
		o.app.Flags = func(flags *flag.FlagSet) {
			if before != nil {
				before(flags)
			}
			define(flags)
		}
	}
}

// Invocation is one call of a command of the program's own.
type Invocation struct {
	Args           []string // without flags
	Stdin          io.Reader
	Stdout, Stderr io.Writer

	call *cli.Invocation
}

// DB connects to the cluster by the flags that every client command has (--addr, --certs,
// --timeout, …); later calls return the same handle. It is closed when the command ends.
func (i *Invocation) DB(ctx context.Context) (*percolator.DB, error) { return i.call.DB(ctx) }

// Usage returns an error that says what is wrong with the arguments or flags: returned by
// the command, it ends the process with code 2 and points at the help.
func (i *Invocation) Usage(format string, args ...any) error {
	return i.call.Usage(format, args...)
}

// Command adds a command. use is its name and arguments, such as "crawl DIR [HOST...]",
// from which it is known how many there may be; short is a line of help. flags, if given,
// define flags of its own. The context of run ends with a signal. An error is printed, and
// the process ends with code 1, or 3 if the error wraps percolator.ErrUnavailable. A
// name that is taken panics.
func Command(use, short string, run func(ctx context.Context, call *Invocation) error,
	flags ...func(flags *flag.FlagSet)) MainOption {
	return func(o *mainOptions) {
		o.app.Commands = append(o.app.Commands, cli.Command{
			Use: use, Short: short,
			Flags: func(set *flag.FlagSet) {
				for _, define := range flags {
					define(set)
				}
			},
			Run: func(ctx context.Context, call *cli.Invocation) error {
				return run(ctx, &Invocation{
					Args: call.Args, Stdin: call.Stdin, Stdout: call.Stdout, Stderr: call.Stderr,
					call: call,
				})
			},
		})
	}
}

// Default makes a command the one that runs when a command line names none.
func Default(command string) MainOption {
	return func(o *mainOptions) { o.app.Default = command }
}
