package cli

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/percolator-go/percolator/internal/cli/admin"
	"github.com/percolator-go/percolator/internal/cli/bulk"
	"github.com/percolator-go/percolator/internal/cli/cells"
	"github.com/percolator-go/percolator/internal/cli/inspectcmd"
	"github.com/percolator-go/percolator/internal/cli/nodecmd"
	"github.com/percolator-go/percolator/internal/cli/shell"
	"github.com/percolator-go/percolator/internal/rpc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/version"
)

// The command tree, and the execution of one command line.

// Run executes one command line of the program, without the program's name, and returns its exit
// code.
func Run(ctx context.Context, a *shell.App, args []string) int {
	if a.Connect == nil {
		a.Connect = func(ctx context.Context, addrs []string, cfg rpc.ClientConfig) (txn.Transport,
			error) {
			c, err := rpc.Dial(ctx, addrs, cfg)
			if err != nil {
				return nil, err // not c: a nil *rpc.Client in a Transport is not nil
			}
			return c, nil
		}
	}
	c := &commandLine{Deps: shell.NewDeps(a)}
	root := c.root()
	root.SetArgs(withDefault(a, args))
	root.SetIn(a.Stdin)
	root.SetOut(c.Out.Stdout)
	root.SetErr(c.Out.Stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		err = c.noTopic
	}
	if err == nil {
		return shell.ExitDone
	}
	if !c.entered && !errors.As(err, new(*shell.UsageError)) {
		err = shell.NewUsageError(nil, err) // cobra's own: unknown command, wrong flag
	}
	return report(c.Deps, cmd, err)
}

// withDefault inserts the program's default command into a command line that is empty or begins
// with a flag, except those for help and the version.
func withDefault(a *shell.App, args []string) []string {
	if a.Default == "" || len(args) > 0 && (args[0] == "" || args[0][0] != '-' ||
		slices.Contains([]string{"-h", "--help", "-v", "--version"}, args[0])) {
		return args
	}
	return append([]string{a.Default}, args...)
}

// commandLine is one execution of a command line.
type commandLine struct {
	*shell.Deps
	// entered is set once the arguments are accepted and the command runs.
	entered bool
	noTopic error  // help was requested for a command that does not exist
	config  string // --config
}

// root builds the command tree.
func (c *commandLine) root() *cobra.Command {
	d := c.Deps
	root := &cobra.Command{
		Use:   d.App.Name,
		Short: "Distributed transactions and notifications over an ordered store",
		Long: d.App.Name + ` runs and talks to a Percolator repository: tables of cells,
transactions with snapshot isolation over any of them, and observers that run after a cell has
changed.

Every flag can also be given in the environment (--http is PERCOLATOR_HTTP) or in a YAML file
named by --config.`,
		Example: "dev\n" +
			"table create bank\n" +
			"set bank bob balance 10\n" +
			"get bank bob balance",
		Version:           cmp.Or(d.App.Program, d.App.Version),
		SilenceErrors:     true,
		SilenceUsage:      true,
		RunE:              shell.NeedsSubcommand,
		PersistentPreRunE: c.enter,
	}
	// completionCommand replaces cobra's: it also completes tables and observers
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return shell.NewUsageError(cmd, shell.DashHint(shell.ReadableNumber(err)))
	})
	root.PersistentFlags().StringVar(&c.config, "config", "",
		"YAML file with settings; keys are the flags' names")
	for _, group := range []struct {
		id, title string
		cmds      []*cobra.Command
	}{
		{"node", "Run a node:", []*cobra.Command{
			nodecmd.StartCommand(d), nodecmd.DevCommand(d), nodecmd.CertCommand(d), inspectcmd.StatusCommand(d), inspectcmd.DoctorCommand(d), inspectcmd.JobsCommand(d), inspectcmd.TopCommand(d),
			admin.RecoverCommand(d),
		}},
		{"cells", "Read and write:", []*cobra.Command{
			cells.TableCommand(d), cells.GetCommand(d), cells.SetCommand(d), cells.DeleteCommand(d), cells.ScanCommand(d),
			cells.WatchCommand(d), cells.SubscriptionCommand(d), cells.ColumnCommand(d),
			bulk.LoadCommand(d), bulk.ExportCommand(d), bulk.BackupCommand(d), bulk.RestoreCommand(d),
		}},
		{"look", "Look inside, and steer:", []*cobra.Command{
			inspectcmd.HistoryCommand(d), inspectcmd.WhyCommand(d), inspectcmd.TraceCommand(d), admin.ClusterCommand(d), admin.NodeCommand(d),
			admin.TabletCommand(d), inspectcmd.VerifyCommand(d), admin.ObserverCommand(d), admin.NotifyCommand(d), admin.LockCommand(d), admin.ClientCommand(d),
			admin.GrantCommand(d), admin.RevokeCommand(d), admin.GrantsCommand(d), admin.TokenCommand(d), inspectcmd.DebugCommand(d),
		}},
	} {
		root.AddGroup(&cobra.Group{ID: group.id, Title: group.title})
		for _, cmd := range group.cmds {
			cmd.GroupID = group.id
			root.AddCommand(cmd)
		}
	}
	root.AddCommand(versionCommand(d), completionCommand(d))
	if own := shell.OwnCommands(d); len(own) > 0 {
		shell.Shadow(root, own)
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
			c.noTopic = shell.NoArgs(cmd, cmd.Flags().Args())
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
				err = shell.NoArgs(topic, rest)
			}
			return err
		}
	}
}

// enter runs before every command and sets the flags that the command line omits.
func (c *commandLine) enter(cmd *cobra.Command, _ []string) error {
	if !isCompletion(cmd) {
		if err := cmp.Or(c.fill(cmd), c.Out.Check(cmd)); err != nil {
			return shell.NewUsageError(cmd, err)
		}
	}
	c.entered = true
	return nil
}

// isCompletion reports whether a shell runs the command to complete a line. Then invalid settings must
// not make it fail.
func isCompletion(cmd *cobra.Command) bool {
	return cmd.Name() == cobra.ShellCompRequestCmd || cmd.Name() == cobra.ShellCompNoDescRequestCmd
}

// finish derives from the usage lines of cmd and its subcommands the number of arguments and their
// completion. It also prefixes examples with this program's name, and makes list an alias of ls.
func (c *commandLine) finish(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		c.finish(sub)
	}
	if cmd.Args == nil {
		cmd.Args = shell.UsageArgs(cmd.Use)
	}
	if cmd.Name() == "ls" {
		cmd.Aliases = []string{"list"}
	}
	// An indented example is complete: it may begin with another program.
	if cmd.Example != "" && cmd.Example[0] != ' ' {
		front := "  " + c.App.Name + " "
		if parent := cmd.Parent(); parent != nil && parent.Name() == shell.Shadowed && parent.HasParent() {
			front += shell.Shadowed + " "
		}
		cmd.Example = front + strings.ReplaceAll(cmd.Example, "\n", "\n"+front)
	}
	c.completeArguments(cmd)
}

// versionCommand returns the command that prints the version of this program, without connecting;
// `status` shows a node's.
func versionCommand(d *shell.Deps) *cobra.Command {
	return d.WithOutput(&cobra.Command{
		Use:     "version",
		Short:   "Print the version and the supported cluster versions",
		Example: "version\nversion -o json",
		RunE: func(*cobra.Command, []string) error {
			known := version.Known()
			answer := struct {
				Name    string         `json:"name"`
				Version string         `json:"version"`
				Program string         `json:"program_version,omitempty"`
				Oldest  version.Number `json:"oldest_cluster_version"`
				Newest  version.Number `json:"newest_cluster_version"`
			}{d.App.Name, d.App.Version, d.App.Program, known.Oldest, known.Newest}
			if d.App.Program != "" {
				return d.Out.Answer(answer, "%s %s, with percolator %s, for clusters at version %s",
					d.App.Name, d.App.Program, d.App.Version, known)
			}
			return d.Out.Answer(answer, "%s %s, for clusters at version %s", d.App.Name,
				d.App.Version, known)
		},
	})
}
