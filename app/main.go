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
	"github.com/percolator-go/percolator/internal/processors"
	"github.com/percolator-go/percolator/internal/version"
	"github.com/percolator-go/percolator/node"
)

// Main runs the command line of a program, then exits the process with its exit code.
// Deferred calls of main do not run. register registers the program's observers and tables;
// it may be nil.
func Main(register func(r *percolator.Registry), opts ...Option) {
	// The first signal drains the node, another one at least 50 ms later stops it; more are
	// dropped.
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
		opt(line)
	}
	os.Exit(cli.Run(context.Background(), line, os.Args[1:]))
}

// start opens a node. Before, it sets the Go runtime's memory limit to a part of the node's memory
// budget, unless GOMEMLIMIT is set, and raises GOMAXPROCS as processors.AddSpare does.
func start(ctx context.Context, cfg node.Config) (shell.RunningNode, error) {
	memory.Hold(memory.Find(cfg.Memory))
	processors.AddSpare()
	n, err := node.Open(ctx, cfg)
	if err != nil {
		return nil, err // not n: a nil *Node in a RunningNode is not nil
	}
	return n, nil
}

// Option adds to the command line of Main.
type Option func(*shell.App)

// OnStart runs fn on its own goroutine once the node of the commands start and dev serves. The node's
// tables and observers exist by then, unless meta did not answer within 10 s: then operations may fail
// with ErrNoTable. fn may return nil at once, or run, like a server, until ctx is canceled. ctx is
// canceled before the node is drained; the drain waits for fn for at most half of its timeout. An
// error of fn stops the node and ends the process.
func OnStart(fn func(ctx context.Context, n *node.Node) error) Option {
	return func(line *shell.App) {
		line.OnStart = append(line.OnStart, func(ctx context.Context, n shell.RunningNode) error {
			return fn(ctx, n.(*node.Node))
		})
	}
}

// Flags adds flags to the commands start and dev. Like theirs, they can also be set in the
// environment (PERCOLATOR_…) and in the configuration file. define is called once per command and
// must use the same defaults each time. Values are parsed before observers are registered and
// before functions of OnStart run. A flag of percolator with the same name is renamed to
// percolator-NAME.
func Flags(define func(flags *flag.FlagSet)) Option {
	return func(line *shell.App) {
		before := line.Flags
		line.Flags = func(flags *flag.FlagSet) {
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

// Usage returns an error for invalid arguments or flags. If a command returns it, the process prints a
// pointer to the help and exits with code 2.
func (i *Invocation) Usage(format string, args ...any) error {
	return i.call.Usage(format, args...)
}

// Command adds a command. use is its name and arguments, such as "crawl DIR [HOST...]", and
// determines the number of arguments; short is a line of help; flags define its flags. A signal
// cancels the context of run. If run returns an error, the process prints it and exits with code 1,
// or 3 if the cluster could not serve it, as after percolator.ErrUnavailable,
// percolator.ErrOverloaded and context.DeadlineExceeded.
//
// Help lists the program's commands in a separate group. If percolator has a command of the same
// name, in this release or a later one, the program's replaces it, and percolator's becomes a
// subcommand of "percolator", as in "reports percolator status". Advice printed by percolator does not
// consider this, so avoid the names of existing commands. Main panics if two commands of the program
// have the same name, or one is named "percolator" or "help".
func Command(use, short string, run func(ctx context.Context, call *Invocation) error,
	flags ...func(flags *flag.FlagSet)) Option {
	return func(line *shell.App) {
		line.Commands = append(line.Commands, shell.Command{
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
	return func(line *shell.App) { line.Default = command }
}
