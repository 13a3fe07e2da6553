package app

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
	"github.com/percolator-go/percolator/internal/cli/shell"
	"github.com/percolator-go/percolator/internal/memory"
	"github.com/percolator-go/percolator/internal/version"
	"github.com/percolator-go/percolator/node"
)

// Main runs the command line of a program, then exits the process with its exit code.
// Deferred calls of main do not run. register registers the program's observers and tables;
// it may be nil.
func Main(register func(r *percolator.Registry), opts ...Option) {
	// A signal is dropped while the channel is full: one drains the node, a second stops it.
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	line := &shell.App{
		Name:      filepath.Base(os.Args[0]),
		Version:   node.Version(),
		Program:   version.Program(),
		Observers: register,
		Start:     start,
		Environ:   os.Environ(),
		Stdin:     os.Stdin,
		Stdout:    os.Stdout,
		Stderr:    os.Stderr,
		Signals:   signals,
	}
	for _, opt := range opts {
		opt(&options{line})
	}
	os.Exit(cli.Run(context.Background(), line, os.Args[1:]))
}

// start opens a node. The runtime's memory limit is set before, since the sizes of the store
// follow from the same bound.
func start(ctx context.Context, cfg node.Config) (shell.RunningNode, error) {
	memory.Hold(memory.Find(cfg.Memory))
	n, err := node.Open(ctx, cfg)
	if err != nil {
		return nil, err // not n: a nil *Node in a RunningNode is not nil
	}
	return n, nil
}

// Option adds to the command line of Main.
type Option func(*options)

type options struct{ line *shell.App }

// OnStart runs fn on a goroutine of its own beside the node of the commands start and dev,
// once the node serves. The node's tables and observers exist by then, unless meta has not
// answered within ten seconds: an operation may then fail with ErrNoTable. fn may return nil
// at once, or run, as a server does, until ctx is canceled. That happens before the node is
// drained; the drain waits for fn to return, for at most half of its timeout. An error of fn
// ends the node and the process.
func OnStart(fn func(ctx context.Context, n *node.Node) error) Option {
	return func(o *options) {
		o.line.OnStart = append(o.line.OnStart, func(ctx context.Context, n shell.RunningNode) error {
			return fn(ctx, n.(*node.Node))
		})
	}
}

// Flags adds flags to the commands start and dev. Like theirs, they can also be set in the
// environment (PERCOLATOR_…) and in the configuration file. define is called once for each
// command and must give a flag the same default each time. Values are parsed before
// observers are registered and before functions of OnStart run. A flag of percolator with the
// same name is then called percolator-NAME.
func Flags(define func(flags *flag.FlagSet)) Option {
	return func(o *options) {
		before := o.line.Flags
		o.line.Flags = func(flags *flag.FlagSet) {
			if before != nil {
				before(flags)
			}
			define(flags)
		}
	}
}

// Invocation is one execution of a command added by Command.
type Invocation struct {
	Args           []string // without flags
	Stdin          io.Reader
	Stdout, Stderr io.Writer

	call *shell.Invocation
}

// DB connects to the cluster by the flags of every client command (--addr, --certs,
// --timeout, …). Later calls return the same handle, which is closed when the command ends.
func (i *Invocation) DB(ctx context.Context) (*percolator.DB, error) { return i.call.DB(ctx) }

// Usage returns an error about wrong arguments or flags. A command that returns it ends the
// process with code 2 and a pointer to the help.
func (i *Invocation) Usage(format string, args ...any) error {
	return i.call.Usage(format, args...)
}

// Command adds a command. use is its name and its arguments, such as "crawl DIR [HOST...]",
// and fixes the number of arguments; short is a line of help; flags define its flags. The
// context of run is canceled by a signal. An error is printed, and the process exits with
// code 1, or 3 if the error wraps percolator.ErrUnavailable.
//
// The program's commands are a group of their own. A command of percolator with the same name, in
// this release or a later one, does not replace them: it is called as "percolator NAME" below the
// program, as in "reports percolator status". Its other commands and their advice expect their own
// names, so a program should not take one of today's without need. Main panics if two commands of
// the program have the same name, or one is called "percolator" or "help".
func Command(use, short string, run func(ctx context.Context, call *Invocation) error,
	flags ...func(flags *flag.FlagSet)) Option {
	return func(o *options) {
		o.line.Commands = append(o.line.Commands, shell.Command{
			Use: use, Short: short,
			Flags: func(set *flag.FlagSet) {
				for _, define := range flags {
					define(set)
				}
			},
			Run: func(ctx context.Context, call *shell.Invocation) error {
				return run(ctx, &Invocation{
					Args: call.Args, Stdin: call.Stdin, Stdout: call.Stdout, Stderr: call.Stderr,
					call: call,
				})
			},
		})
	}
}

// Default names the command that runs if a command line names none.
func Default(command string) Option {
	return func(o *options) { o.line.Default = command }
}
