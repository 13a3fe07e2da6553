package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/config"
	"github.com/percolator-go/percolator/internal/rpc"
	"github.com/percolator-go/percolator/internal/txn"
)

// Exit codes (invariant 1).
const (
	ExitDone        = 0
	ExitFailed      = 1
	ExitUsage       = 2
	ExitUnavailable = 3
)

// App is what a command line needs from outside. Start is a must; Env fills in the rest.
type App struct {
	// Name is what the program is called in its own texts.
	Name    string
	Version string
	// Observers registers what this program links; nil: none.
	Observers func(*percolator.Registry)
	// Start opens a node. It returns when the node serves.
	Start func(ctx context.Context, cfg config.Config) (RunningNode, error)
	// Connect reaches a running node.
	Connect func(ctx context.Context, addrs []string, cfg rpc.ClientConfig) (txn.Transport, error)
	// Environ is the environment as os.Environ has it.
	Environ []string
	Stdin   io.Reader
	Stdout  io.Writer
	Stderr  io.Writer
	// terminal decides whether a stream is a terminal; nil: those that are character devices.
	terminal func(stream any) bool
	// Signals delivers SIGINT and SIGTERM: the first drains a node, a later one forces.
	// nil: none come.
	Signals <-chan os.Signal
}

// RunningNode is the part of a node that the command line uses.
type RunningNode interface {
	// Addr is the address that serves remote clients, HTTPAddr the HTTP one, empty if
	// there is none.
	Addr() string
	HTTPAddr() string
	// Drain finishes what is under way, as far as ctx allows.
	Drain(ctx context.Context) error
	Close(ctx context.Context) error
}

// Run executes one command line, without the program's name, and returns its exit code.
func (a *App) Run(ctx context.Context, args []string) int {
	if a.Connect == nil {
		a.Connect = func(ctx context.Context, addrs []string, cfg rpc.ClientConfig) (txn.Transport, error) {
			c, err := rpc.Dial(ctx, addrs, cfg)
			if err != nil {
				return nil, err // not c: a nil *rpc.Client is no nil Transport
			}
			return c, nil
		}
	}
	r := newRun(a)
	root := r.root()
	root.SetArgs(args)
	root.SetIn(a.Stdin)
	root.SetOut(r.Stdout)
	root.SetErr(r.Stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		err = r.noTopic
	}
	if err == nil {
		return ExitDone
	}
	if !r.entered && !errors.As(err, new(*usageError)) {
		err = &usageError{err: err} // cobra's own: unknown command, wrong flag
	}
	return r.report(cmd, err)
}

// run is one execution of a command line.
type run struct {
	*App
	// Stdout and Stderr hide App's: what is written here reaches a terminal as text only.
	Stdout, Stderr io.Writer
	// connected: a node has answered. What fails from then on is not that there is none.
	connected bool
	// entered: the arguments were accepted and a command has begun.
	entered bool
	noTopic error  // help was asked for on a command that does not exist
	config  string // --config
	output  string // -o
	timeout timeoutFlag
	client  clientFlags
	input   inputFlags
}

// newRun returns an execution that has not begun.
func newRun(a *App) *run {
	return &run{App: a, Stdout: textWriter{a.Stdout}, Stderr: textWriter{a.Stderr}}
}

// root builds the command tree.
func (r *run) root() *cobra.Command {
	root := &cobra.Command{
		Use:   r.Name,
		Short: "Distributed transactions and notifications over an ordered store",
		Long: r.Name + ` runs and talks to a Percolator repository: tables of cells, transactions with snapshot isolation over
any of them, and observers that run after a cell has changed.

Every flag can also be given in the environment (--http is PERCOLATOR_HTTP) or in a YAML file named by --config.`,
		Version:           r.Version,
		SilenceErrors:     true,
		SilenceUsage:      true,
		Args:              noArgs,
		RunE:              needsSubcommand,
		PersistentPreRunE: r.enter,
	}
	root.Example = r.example("dev", "table create bank", "set bank bob balance 10", "get bank bob balance")
	root.CompletionOptions.DisableDefaultCmd = true // ours has examples, and knows tables and observers
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return &usageError{cmd: cmd, err: err} })
	root.PersistentFlags().StringVar(&r.config, "config", "", "YAML file with settings; keys are the flags' names")
	root.AddGroup(&cobra.Group{ID: "node", Title: "Run a node:"}, &cobra.Group{ID: "cells", Title: "Read and write:"},
		&cobra.Group{ID: "look", Title: "Look inside, and steer:"})
	for _, group := range []struct {
		id   string
		cmds []*cobra.Command
	}{
		{"node", []*cobra.Command{r.startCommand(), r.devCommand(), r.certCommand(), r.statusCommand()}},
		{"cells", []*cobra.Command{r.tableCommand(), r.getCommand(), r.setCommand(), r.deleteCommand(), r.scanCommand(),
			r.loadCommand(), r.exportCommand()}},
		{"look", []*cobra.Command{r.historyCommand(), r.whyCommand(), r.clusterCommand(), r.nodeCommand(), r.tabletCommand(), r.verifyCommand(), r.observerCommand(),
			r.notifyCommand(), r.lockCommand()}},
	} {
		for _, cmd := range group.cmds {
			cmd.GroupID = group.id
			root.AddCommand(cmd)
		}
	}
	root.AddCommand(r.versionCommand(), r.completionCommand())
	r.refuseTopics(root)
	r.completeArguments(root)
	return root
}

// refuseTopics has help refuse commands that do not exist. Cobra shows the help of the
// last one on the way that does.
func (r *run) refuseTopics(root *cobra.Command) {
	show := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		if cmd.HasSubCommands() {
			r.noTopic = noArgs(cmd, cmd.Flags().Args())
		}
		if r.noTopic == nil {
			show(cmd, args)
		}
	})
	root.InitDefaultHelpCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() != "help" {
			continue
		}
		cmd.Args = func(_ *cobra.Command, args []string) error {
			topic, rest, err := root.Find(args)
			if err == nil && topic.HasSubCommands() {
				err = noArgs(topic, rest)
			}
			return err
		}
	}
}

// enter runs before every command: it fills in flags that the command line left out.
func (r *run) enter(cmd *cobra.Command, _ []string) error {
	if isCompletion(cmd) {
		r.entered = true
		return nil
	}
	if err := r.fill(cmd); err != nil {
		return &usageError{cmd: cmd, err: err}
	}
	if err := r.checkOutput(cmd); err != nil {
		return &usageError{cmd: cmd, err: err}
	}
	r.entered = true
	return nil
}

// isCompletion: what a shell runs behind the user's back takes no settings of ours, and
// must not fail over them.
func isCompletion(cmd *cobra.Command) bool {
	return cmd.Name() == cobra.ShellCompRequestCmd || cmd.Name() == cobra.ShellCompNoDescRequestCmd
}

// needsSubcommand is what a command does that only groups others.
func needsSubcommand(cmd *cobra.Command, _ []string) error {
	return &usageError{cmd: cmd, err: errors.New("a subcommand is needed"), help: true}
}

// group is a command that only holds others.
func group(use, short, example string, subs ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Example: example, Args: noArgs, RunE: needsSubcommand}
	cmd.AddCommand(subs...)
	return cmd
}

// example lays command lines out for help, under the name that this program was called by.
func (r *run) example(lines ...string) string {
	for i, line := range lines {
		lines[i] = "  " + r.Name + " " + line
	}
	return strings.Join(lines, "\n")
}

// versionCommand asks no node: it is this program's own version. A node's is in `status`.
func (r *run) versionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: r.example("version", "version -o json"),
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			if r.output == outputJSON {
				return r.object(struct {
					Name    string `json:"name"`
					Version string `json:"version"`
				}{r.Name, r.Version})
			}
			return r.print("%s %s", r.Name, r.Version)
		},
	}
	return r.withOutput(cmd)
}
