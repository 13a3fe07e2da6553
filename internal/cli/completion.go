package cli

import (
	"bytes"
	"context"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/percolator-go/percolator/internal/txn"
)

// completionTimeout bounds what a press of the tab key may cost when no node answers.
const completionTimeout = 500 * time.Millisecond

// shells are those that completions can be written for.
var shells = []string{"bash", "zsh", "fish", "powershell"}

// completionCommand prints a script. The script asks this program for everything, so it
// need not be renewed with it.
func (r *run) completionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "completion {" + strings.Join(shells, "|") + "}",
		Short: "Print a script that completes this command in a shell",
		Long: `Print a script that completes this command's subcommands and flags in a shell and, as long as a node answers within
half a second, the names of tables and observers too. PERCOLATOR_ADDR, the configuration file and the flags that are
already on the line say which node is asked; if none answers, nothing is proposed, and nothing is complained about.

bash needs the package bash-completion. With -o json the script is a field of an object.`,
		Example: strings.Join([]string{
			"  source <(" + r.Name + " completion bash)",
			"  " + r.Name + " completion zsh > \"${fpath[1]}/_" + r.Name + "\"",
			"  " + r.Name + " completion fish > ~/.config/fish/completions/" + r.Name + ".fish",
			"  " + r.Name + " completion powershell | Out-String | Invoke-Expression",
		}, "\n"),
		Args:      argsBetween(1, 1),
		ValidArgs: shells,
		RunE: func(cmd *cobra.Command, args []string) error {
			script, err := completionScript(cmd, args[0])
			if err != nil {
				return err
			}
			if r.output == outputJSON {
				return r.object(struct {
					Shell  string `json:"shell"`
					Script string `json:"script"`
				}{args[0], script})
			}
			_, err = io.WriteString(r.App.Stdout, script)
			return err
		},
	}
	return r.withOutput(cmd)
}

// completionScript has cobra write the script for a shell.
func completionScript(cmd *cobra.Command, shell string) (string, error) {
	var script bytes.Buffer
	var err error
	switch root := cmd.Root(); shell {
	case "bash":
		err = root.GenBashCompletionV2(&script, true)
	case "zsh":
		err = root.GenZshCompletion(&script)
	case "fish":
		err = root.GenFishCompletion(&script, true)
	case "powershell":
		err = root.GenPowerShellCompletionWithDesc(&script)
	default:
		err = usagef(cmd, "shell %q: known are %s", shell, strings.Join(shells, ", "))
	}
	return script.String(), err
}

// completeArguments tells cobra how the arguments and flags of all commands are
// completed. The arguments' names in the usage lines decide, so a new command needs
// nothing here.
func (r *run) completeArguments(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		r.completeArguments(sub)
	}
	if words := strings.Fields(cmd.Use); len(words) > 1 && cmd.ValidArgsFunction == nil && len(cmd.ValidArgs) == 0 {
		cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			if len(args) >= len(words)-1 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return r.proposals(cmd, strings.Trim(words[1+len(args)], "[]{}."))
		}
	}
	fixed := map[string][]string{"output": {outputTable, outputJSON}, "escape": escapes}
	cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		if values := fixed[f.Name]; values != nil {
			_ = cmd.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
		}
		if f.Name == "observer" {
			_ = cmd.RegisterFlagCompletionFunc(f.Name, func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
				return r.proposals(cmd, "OBSERVER")
			})
		}
	})
}

// proposals are what an argument of that name can be: everything, the shell picks what
// fits what was typed. A failure proposes nothing: there is no place to report it.
func (r *run) proposals(cmd *cobra.Command, argument string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var found []string
	var err error
	switch argument {
	case "TABLE":
		found, err = r.ask(cmd, tableNames)
	case "OBSERVER":
		found, err = r.ask(cmd, observerNames)
	case "FILE|-", "FILE":
		return nil, cobra.ShellCompDirectiveDefault
	}
	if err != nil {
		found = nil
	}
	slices.Sort(found)
	// What would have to be quoted or escaped on the line is left to whoever types it.
	return slices.DeleteFunc(found, func(name string) bool { return shellQuote(name) != name }), cobra.ShellCompDirectiveNoFileComp
}

// ask puts a question to the node that the flags, the environment or the configuration
// file name, in a bounded time.
func (r *run) ask(cmd *cobra.Command, question func(context.Context, txn.Transport) ([]string, error)) ([]string, error) {
	// Everything of an ordinary command but its complaints: flags, environment, file,
	// certificates, loopback only.
	ctx := cmd.Context()
	if ctx == nil {
		ctx = context.Background() // a completion: nothing has executed this command
	}
	ctx, cancel := context.WithTimeout(ctx, completionTimeout)
	defer cancel()
	if err := r.fill(cmd); err != nil {
		return nil, err
	}
	cfg, err := r.clientConfig(cmd)
	if err != nil {
		return nil, err
	}
	transport, err := r.Connect(ctx, r.client.addrs, cfg)
	if err != nil {
		return nil, err
	}
	names, err := question(ctx, transport)
	_ = transport.Close()
	return names, err
}

// tableNames asks for the tables.
func tableNames(ctx context.Context, t txn.Transport) ([]string, error) {
	tables, err := t.Tables(ctx)
	var names []string
	for _, table := range tables {
		if table.DroppedTs == 0 {
			names = append(names, table.Name)
		}
	}
	return names, err
}

// observerNames asks for the observers.
func observerNames(ctx context.Context, t txn.Transport) ([]string, error) {
	catalogue, err := t.Catalogue(ctx)
	var names []string
	for _, o := range catalogue.GetObservers() {
		names = append(names, o.Name)
	}
	return names, err
}
