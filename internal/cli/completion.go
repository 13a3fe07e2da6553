package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/percolator-go/percolator/internal/cli/shell"
	"github.com/percolator-go/percolator/internal/inspect"
)

// Shell completion: the script, and the proposals for a press of the tab key.

// completionTimeout limits the wait for a node after a press of the tab key.
const completionTimeout = 500 * time.Millisecond

// shells lists the supported shells.
var shells = []string{"bash", "zsh", "fish", "powershell"}

// completionCommand returns the command that prints a script. The script runs this program for every
// completion, so it need not be updated with it.
func completionCommand(d *shell.Deps) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "completion {" + strings.Join(shells, "|") + "}",
		Short: "Print a script that completes this command in a shell",
		Long: `Print a script that completes this command's subcommands and flags in a shell
and, if a node answers within half a second, the names of tables and observers.
PERCOLATOR_ADDR, the configuration file and the flags already on the line select the
node; if none answers, there are no completions and no error.

bash needs the package bash-completion. With -o json the script is a field of an object.`,
		Example: strings.Join([]string{
			"  source <(" + d.Out.Program + " completion bash)",
			"  " + d.Out.Program + " completion zsh > \"${fpath[1]}/_" + d.Out.Program + "\"",
			"  " + d.Out.Program + " completion fish > ~/.config/fish/completions/" +
				d.Out.Program + ".fish",
			"  " + d.Out.Program + " completion powershell | Out-String | Invoke-Expression",
		}, "\n"),
		ValidArgs: shells,
		RunE: func(cmd *cobra.Command, args []string) error {
			script, err := completionScript(cmd, args[0])
			if err != nil {
				return err
			}
			if d.Out.JSON() {
				return d.Out.Object(struct {
					Shell  string `json:"shell"`
					Script string `json:"script"`
				}{args[0], script})
			}
			_, err = io.WriteString(d.Out.Raw, script)
			return err
		},
	}
	return d.WithOutput(cmd)
}

// completionScript returns cobra's script for a shell.
func completionScript(cmd *cobra.Command, name string) (string, error) {
	var script bytes.Buffer
	var err error
	switch root := cmd.Root(); name {
	case "bash":
		err = root.GenBashCompletionV2(&script, true)
	case "zsh":
		err = root.GenZshCompletion(&script)
	case "fish":
		err = root.GenFishCompletion(&script, true)
	case "powershell":
		err = root.GenPowerShellCompletionWithDesc(&script)
	default:
		err = shell.Usagef(cmd, "unknown shell %q: use %s", name, strings.Join(shells, ", "))
	}
	return script.String(), err
}

// completeArguments registers the completion of the command's arguments and flags with cobra.
// Arguments are completed by their names in the usage line (proposals), flags by the names listed
// here; a new command that uses these names needs no change.
func (c *commandLine) completeArguments(cmd *cobra.Command) {
	if words := strings.Fields(cmd.Use); len(words) > 1 && cmd.ValidArgsFunction == nil &&
		len(cmd.ValidArgs) == 0 {
		cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string,
			_ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			if len(args) >= len(words)-1 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return c.proposals(cmd, strings.Trim(words[1+len(args)], "[]{}."))
		}
	}
	fixed := map[string][]string{"output": {shell.OutputTable, shell.OutputJSON}, "escape": shell.Escapes}
	named := map[string]string{"observer": "OBSERVER", "search": "TABLE"}
	cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		if values := fixed[f.Name]; values != nil {
			_ = cmd.RegisterFlagCompletionFunc(f.Name,
				cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
		}
		if argument := named[f.Name]; argument != "" {
			_ = cmd.RegisterFlagCompletionFunc(f.Name,
				func(cmd *cobra.Command, _ []string,
					_ string) ([]cobra.Completion, cobra.ShellCompDirective) {
					return c.proposals(cmd, argument)
				})
		}
	})
}

// proposals returns the existing tables or observers for an argument that is one, except those
// whose names a shell would have to quote; the shell filters them by the typed prefix. It returns
// nothing on failure, which cannot be reported.
func (c *commandLine) proposals(cmd *cobra.Command,
	argument string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var found []string
	var err error
	switch argument {
	case "TABLE":
		err = c.ask(cmd, func(ctx context.Context, s *shell.Session) error {
			names, err := s.Names(ctx)
			if err == nil {
				found = slices.Collect(maps.Keys(names.IDs))
			}
			return err
		})
	case "OBSERVER":
		err = c.ask(cmd, func(ctx context.Context, s *shell.Session) error {
			catalogue, err := s.Transport.Catalogue(ctx)
			for _, o := range catalogue.GetObservers() {
				found = append(found, o.Name)
			}
			return err
		})
	case "FILE|-", "FILE":
		return nil, cobra.ShellCompDirectiveDefault
	}
	if err != nil {
		found = nil
	}
	slices.Sort(found)
	// Omit names that would have to be quoted.
	return slices.DeleteFunc(found, func(name string) bool {
		return inspect.Quote(name) != name
	}), cobra.ShellCompDirectiveNoFileComp
}

// ask connects to the node of the flags, the environment or the configuration file and calls question,
// within completionTimeout.
func (c *commandLine) ask(cmd *cobra.Command,
	question func(context.Context, *shell.Session) error) error {
	ctx := cmd.Context()
	if ctx == nil {
		ctx = context.Background() // a completion: nothing has executed this command
	}
	ctx, cancel := context.WithTimeout(ctx, completionTimeout)
	defer cancel()
	if err := c.fill(cmd); err != nil {
		return err
	}
	s, err := c.Conn.Connect(ctx, cmd)
	if err != nil {
		return err
	}
	return errors.Join(question(ctx, s), s.Client.Close())
}
