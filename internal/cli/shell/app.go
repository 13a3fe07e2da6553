package shell

import (
	"context"
	"flag"
	"io"
	"os"

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
