package cli

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/rpc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/version"
	"github.com/percolator-go/percolator/node/config"
)

// This file has the App that a program passes in, the command tree, and the execution of
// one command line.

// Exit codes (invariant 1).
const (
	ExitDone        = 0
	ExitFailed      = 1
	ExitUsage       = 2
	ExitUnavailable = 3
)

// App is what a command line needs from outside. Start is required.
type App struct {
	// Name is the program's name in help and messages.
	Name string
	// Version is percolator's, Program that of a program of another module that links it.
	Version, Program string
	// Observers registers the observers that this program links; it may be nil.
	Observers func(*percolator.Registry)
	// Commands are the program's own; Default is the one that runs where a command line
	// names none. Flags defines flags of start and dev. OnStart run beside their node.
	Commands []Command
	Default  string
	Flags    func(*flag.FlagSet)
	OnStart  []func(context.Context, RunningNode) error
	// Start opens a node and returns once it serves.
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
	// Signals delivers SIGINT and SIGTERM: the first drains a node, the second stops it at
	// once. It may be nil.
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
		a.Connect = func(ctx context.Context, addrs []string, cfg rpc.ClientConfig) (txn.Transport,
			error) {
			c, err := rpc.Dial(ctx, addrs, cfg)
			if err != nil {
				return nil, err // not c: a nil *rpc.Client is no nil Transport
			}
			return c, nil
		}
	}
	c := &commandLine{deps: newDeps(a)}
	root := c.root()
	root.SetArgs(a.withDefault(args))
	root.SetIn(a.Stdin)
	root.SetOut(c.out.stdout)
	root.SetErr(c.out.stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		err = c.noTopic
	}
	if err == nil {
		return ExitDone
	}
	if !c.entered && !errors.As(err, new(*usageError)) {
		err = &usageError{err: err} // cobra's own: unknown command, wrong flag
	}
	return c.report(cmd, err)
}

// deps is what the commands of one command line share.
type deps struct {
	app  *App
	out  *printer
	conn *connector
}

func newDeps(a *App) *deps {
	out := newPrinter(a)
	return &deps{app: a, out: out, conn: &connector{app: a, out: out}}
}

// commandLine is one execution of a command line.
type commandLine struct {
	*deps
	// entered is set when the arguments were accepted and a command has begun.
	entered bool
	noTopic error  // why help was refused: there is no such command
	config  string // --config
}

// root builds the command tree.
func (c *commandLine) root() *cobra.Command {
	d := c.deps
	root := &cobra.Command{
		Use:   d.app.Name,
		Short: "Distributed transactions and notifications over an ordered store",
		Long: d.app.Name + ` runs and talks to a Percolator repository: tables of cells,
transactions with snapshot isolation over any of them, and observers that run after a cell has
changed.

Every flag can also be given in the environment (--http is PERCOLATOR_HTTP) or in a YAML file
named by --config.`,
		Example: "dev\n" +
			"table create bank\n" +
			"set bank bob balance 10\n" +
			"get bank bob balance",
		Version:           cmp.Or(d.app.Program, d.app.Version),
		SilenceErrors:     true,
		SilenceUsage:      true,
		RunE:              needsSubcommand,
		PersistentPreRunE: c.enter,
	}
	// completionCommand replaces it: that completes tables and observers too
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return &usageError{cmd: cmd, err: dashHint(err)}
	})
	root.PersistentFlags().StringVar(&c.config, "config", "",
		"YAML file with settings; keys are the flags' names")
	for _, group := range []struct {
		id, title string
		cmds      []*cobra.Command
	}{
		{"node", "Run a node:", []*cobra.Command{
			startCommand(d), devCommand(d), certCommand(d), statusCommand(d), doctorCommand(d), jobsCommand(d), topCommand(d),
			recoverCommand(d),
		}},
		{"cells", "Read and write:", []*cobra.Command{
			tableCommand(d), getCommand(d), setCommand(d), deleteCommand(d), scanCommand(d),
			loadCommand(d), exportCommand(d), backupCommand(d), restoreCommand(d),
		}},
		{"look", "Look inside, and steer:", []*cobra.Command{
			historyCommand(d), whyCommand(d), traceCommand(d), clusterCommand(d), nodeCommand(d),
			tabletCommand(d), verifyCommand(d), observerCommand(d), notifyCommand(d), lockCommand(d), clientCommand(d),
			grantCommand(d), revokeCommand(d), grantsCommand(d), tokenCommand(d), debugCommand(d),
		}},
	} {
		root.AddGroup(&cobra.Group{ID: group.id, Title: group.title})
		for _, cmd := range group.cmds {
			cmd.GroupID = group.id
			root.AddCommand(cmd)
		}
	}
	root.AddCommand(versionCommand(d), completionCommand(d))
	if own := ownCommands(d, root); len(own) > 0 {
		root.AddGroup(&cobra.Group{ID: "own", Title: "Of this program:"})
		for _, cmd := range own {
			cmd.GroupID = "own"
			root.AddCommand(cmd)
		}
	}
	c.refuseTopics(root)
	c.finish(root)
	return root
}

// refuseTopics makes help fail for commands that do not exist. Cobra would show the help
// of the closest parent.
func (c *commandLine) refuseTopics(root *cobra.Command) {
	show := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		if cmd.HasSubCommands() {
			c.noTopic = noArgs(cmd, cmd.Flags().Args())
		}
		if c.noTopic == nil {
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

// enter runs before every command and fills in the flags that the command line left out.
func (c *commandLine) enter(cmd *cobra.Command, _ []string) error {
	if isCompletion(cmd) {
		c.entered = true
		return nil
	}
	if err := c.fill(cmd); err != nil {
		return &usageError{cmd: cmd, err: err}
	}
	if err := c.out.check(cmd); err != nil {
		return &usageError{cmd: cmd, err: err}
	}
	c.entered = true
	return nil
}

// isCompletion reports whether a shell runs the command to complete a line. That reads no
// settings, and must not fail because of them.
func isCompletion(cmd *cobra.Command) bool {
	return cmd.Name() == cobra.ShellCompRequestCmd || cmd.Name() == cobra.ShellCompNoDescRequestCmd
}

// needsSubcommand is the action of commands that only group others.
func needsSubcommand(cmd *cobra.Command, _ []string) error {
	return &usageError{cmd: cmd, err: errors.New("a subcommand is needed"), help: true}
}

// group returns a command that only holds others.
func group(use, short, example string, subs ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Example: example, RunE: needsSubcommand,
	}
	cmd.AddCommand(subs...)
	return cmd
}

// finish sets what follows from the usage lines of cmd and its subcommands: the number of
// arguments, and how they are completed. It also puts this program's name in front of
// examples, and makes list an alias of ls.
func (c *commandLine) finish(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		c.finish(sub)
	}
	if cmd.Args == nil {
		cmd.Args = usageArgs(cmd.Use)
	}
	if cmd.Name() == "ls" {
		cmd.Aliases = []string{"list"}
	}
	// An indented example is complete: it may begin with another program.
	if cmd.Example != "" && cmd.Example[0] != ' ' {
		front := "  " + c.app.Name + " "
		cmd.Example = front + strings.ReplaceAll(cmd.Example, "\n", "\n"+front)
	}
	c.completeArguments(cmd)
}

// withOutput gives the command -o.
func (d *deps) withOutput(cmd *cobra.Command) *cobra.Command {
	d.out.register(cmd.Flags())
	return cmd
}

// withClient gives the command the flags of every command that talks to a node.
func (d *deps) withClient(cmd *cobra.Command) *cobra.Command {
	d.conn.register(cmd.Flags())
	return d.withOutput(cmd)
}

// client makes a command that connects, within --timeout, and then runs fn.
func (d *deps) client(cmd *cobra.Command,
	fn func(context.Context, *session, []string) error) *cobra.Command {
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return d.conn.run(cmd, func(ctx context.Context, s *session) error {
			return fn(ctx, s, args)
		})
	}
	return d.withClient(cmd)
}

// versionCommand prints the version of this program and asks no node; `status` shows a
// node's.
func versionCommand(d *deps) *cobra.Command {
	return d.withOutput(&cobra.Command{
		Use:     "version",
		Short:   "Print the version, and the versions of clusters that it works with",
		Example: "version\nversion -o json",
		RunE: func(*cobra.Command, []string) error {
			known := version.Known()
			answer := struct {
				Name    string         `json:"name"`
				Version string         `json:"version"`
				Program string         `json:"program_version,omitempty"`
				Oldest  version.Number `json:"oldest_cluster_version"`
				Newest  version.Number `json:"newest_cluster_version"`
			}{d.app.Name, d.app.Version, d.app.Program, known.Oldest, known.Newest}
			if d.app.Program != "" {
				return d.out.answer(answer, "%s %s, with percolator %s, for clusters at version %s",
					d.app.Name, d.app.Program, d.app.Version, known)
			}
			return d.out.answer(answer, "%s %s, for clusters at version %s", d.app.Name,
				d.app.Version, known)
		},
	})
}
