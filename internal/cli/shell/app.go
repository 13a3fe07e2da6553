package shell

import (
	"context"
	"errors"
	"flag"
	"io"
	"os"

	"github.com/spf13/cobra"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/rpc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/node/config"
)

// Exit codes.
const (
	ExitDone        = 0
	ExitFailed      = 1
	ExitUsage       = 2
	ExitUnavailable = 3
)

// App contains the dependencies of a command line. Start is required.
type App struct {
	// Name is the program's name in help and messages.
	Name string
	// Version is the version of percolator, Program that of another module's program that links it.
	Version, Program string
	// Observers registers the observers that this program links; it may be nil.
	Observers func(*percolator.Registry)
	// Commands are the program's own; Default is the one to run if a command line names none. Flags
	// defines flags of start and dev. OnStart are the functions that run with their node.
	Commands []Command
	Default  string
	Flags    func(*flag.FlagSet)
	OnStart  []func(context.Context, RunningNode) error
	// Start opens a node and returns once it serves.
	Start func(ctx context.Context, cfg config.Config) (RunningNode, error)
	// Connect connects to a running node; nil means rpc.Dial.
	Connect func(ctx context.Context, addrs []string, cfg rpc.ClientConfig) (txn.Transport, error)
	// Environ is the environment, in the form of os.Environ.
	Environ []string
	Stdin   io.Reader
	Stdout  io.Writer
	Stderr  io.Writer
	// Terminal reports whether a stream is a terminal; nil means that every character device is
	// one.
	Terminal func(stream any) bool
	// Signals delivers SIGINT and SIGTERM: the first drains a node, the second stops it at
	// once. It may be nil.
	Signals <-chan os.Signal
}

// RunningNode is the part of a node that the command line uses.
type RunningNode interface {
	// Addr returns the address for remote clients, HTTPAddr that of HTTP; empty if there is none.
	Addr() string
	HTTPAddr() string
	// Drain finishes running work until ctx ends.
	Drain(ctx context.Context) error
	Close(ctx context.Context) error
}

// Deps are the dependencies shared by the commands of one command line.
type Deps struct {
	App  *App
	Out  *Printer
	Conn *Connector
}

// NewDeps returns the shared dependencies for one command line of the program.
func NewDeps(a *App) *Deps {
	out := newPrinter(a)
	return &Deps{App: a, Out: out, Conn: &Connector{app: a, out: out}}
}

// NeedsSubcommand is the action of commands that only group others. It always fails.
func NeedsSubcommand(cmd *cobra.Command, _ []string) error {
	return &UsageError{cause{errors.New("a subcommand is needed")}, cmd, true}
}

// Group returns a command that only groups others.
func Group(use, short, example string, subs ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Example: example, RunE: NeedsSubcommand,
	}
	cmd.AddCommand(subs...)
	return cmd
}

// Before makes the command call fn before anything that it already calls before it runs.
func Before(cmd *cobra.Command, fn func(*cobra.Command, []string) error) {
	then := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if err := fn(cmd, args); err != nil || then == nil {
			return err
		}
		return then(cmd, args)
	}
}

// WithOutput adds -o to the command.
func (d *Deps) WithOutput(cmd *cobra.Command) *cobra.Command {
	d.Out.register(cmd.Flags())
	return cmd
}

// WithClient adds the flags of commands that connect to a node.
func (d *Deps) WithClient(cmd *cobra.Command) *cobra.Command {
	d.Conn.register(cmd.Flags())
	return d.WithOutput(cmd)
}

// ClientCommand makes the command connect and then run fn, both together within --timeout.
func (d *Deps) ClientCommand(cmd *cobra.Command,
	fn func(context.Context, *Session, []string) error) *cobra.Command {
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return d.Conn.Run(cmd, func(ctx context.Context, s *Session) error {
			return fn(ctx, s, args)
		})
	}
	return d.WithClient(cmd)
}
