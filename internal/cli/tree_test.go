package cli

import (
	"context"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/percolator-go/percolator/internal/cli/shell"
	"github.com/percolator-go/percolator/internal/rpc"
	"github.com/percolator-go/percolator/internal/txn"
)

// commands returns all commands from the root down, except cobra's own.
func commands(t *testing.T) []*cobra.Command {
	t.Helper()
	c := &commandLine{Deps: shell.NewDeps(&shell.App{
		Name: "percolator", Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: io.Discard,
		Connect: func(context.Context, []string, rpc.ClientConfig) (txn.Transport, error) {
			return bankCluster(), nil
		},
	})}
	var all []*cobra.Command
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		if cmd.Name() == "help" {
			return
		}
		all = append(all, cmd)
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(c.root())
	if len(all) < 30 {
		t.Fatalf("only %d commands", len(all))
	}
	return all
}

// Every command has a description and an example, and those with output support JSON.
func TestEveryCommandIsDescribed(t *testing.T) {
	for _, cmd := range commands(t) {
		if cmd.Short == "" {
			t.Errorf("%s has no short description", cmd.CommandPath())
		}
		if cmd.Example == "" {
			t.Errorf("%s has no example", cmd.CommandPath())
		}
		for line := range strings.Lines(cmd.Long) {
			if n := utf8.RuneCountInString(line); n > 125 {
				t.Errorf("%s: a line of its description has %d columns", cmd.CommandPath(), n)
			}
		}
		if !cmd.HasSubCommands() && cmd.Flags().Lookup("output") == nil {
			t.Errorf("%s has no -o", cmd.CommandPath())
		}
	}
}

// Examples are accepted command lines: subcommand, flags and number of arguments.
func TestExamplesParse(t *testing.T) {
	checked := 0
	for _, cmd := range commands(t) {
		for line := range strings.Lines(cmd.Example) {
			words := exampleWords(line)
			if len(words) == 0 {
				t.Errorf("%s: no command of ours in %q", cmd.CommandPath(), line)
				continue
			}
			// A separate tree: flags keep their values.
			root := commands(t)[0]
			target, args, err := root.Find(words)
			if err != nil {
				t.Errorf("%s: %q: %v", cmd.CommandPath(), line, err)
				continue
			}
			if err := target.ParseFlags(args); err != nil {
				t.Errorf("%s: %q: %v", cmd.CommandPath(), line, err)
				continue
			}
			if err := target.ValidateArgs(target.Flags().Args()); err != nil {
				t.Errorf("%s: %q: %v", cmd.CommandPath(), line, err)
			}
			checked++
		}
	}
	if checked < 50 {
		t.Errorf("only %d examples", checked)
	}
}

// exampleWords extracts this program's command from an example line, which may have a pipe or a
// redirection around it.
func exampleWords(line string) []string {
	_, rest, found := strings.Cut(line, "percolator ")
	if !found {
		return nil
	}
	var words []string
	for w := range strings.FieldsSeq(strings.TrimSuffix(strings.TrimSpace(rest), ")")) {
		if strings.ContainsAny(w[:1], "|<>") {
			break
		}
		words = append(words, strings.Trim(w, `'"`))
	}
	return words
}
