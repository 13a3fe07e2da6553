package cli

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/cli/shell"
)

// Generation of docs/reference/commands.md and errors.md from the code.

// TestReferenceOfCommands: docs/reference/commands.md equals the description of the command tree.
// `make generate` writes it (UPDATE=1 in the environment).
func TestReferenceOfCommands(t *testing.T) {
	var b strings.Builder
	b.WriteString(commandsHead)
	all := commands(t)
	common := commonFlags(all)
	flagTable(&b, common)
	for _, cmd := range all[1:] {
		describeCommand(&b, cmd, common)
	}
	checkReference(t, "commands.md", b.String())
}

const commandsHead = `# Commands and flags

The list is made from the code by ` + "`make generate`" + `; ` + "`percolator COMMAND --help`" + ` says the same. Each flag
can also stand in the environment, in capitals and with underscores (` + "`--http-host`" + ` as
` + "`PERCOLATOR_HTTP_HOST`" + `), or in the YAML file of ` + "`--config`" + ` (` + "`http-host: …`" + `); nested keys are joined by
dashes. Flags win over the environment, that over the file. What to do with the commands is told in
[command-line.md](command-line.md) and [operating](../operating/README.md).

## Flags of many commands

All commands take ` + "`--config`" + ` and, where they print what was asked for, ` + "`--output`" + `; those that talk to a node
take the others of these. They are left out below.

`

// commonFlags are the flags that at least ten commands share with the same meaning.
func commonFlags(all []*cobra.Command) *pflag.FlagSet {
	const many = 10
	common, seen := pflag.NewFlagSet("", pflag.ContinueOnError), map[string]int{}
	common.AddFlagSet(all[0].PersistentFlags())
	for _, cmd := range all {
		cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			if seen[f.Name+f.Usage]++; seen[f.Name+f.Usage] == many {
				common.AddFlag(f)
			}
		})
	}
	return common
}

// describeCommand writes the section of a command: usage, description, flags, examples.
func describeCommand(b *strings.Builder, cmd *cobra.Command, common *pflag.FlagSet) {
	fmt.Fprintf(b, "\n## %s\n\n", strings.TrimPrefix(cmd.CommandPath(), "percolator "))
	text := cmd.Long
	if text == "" {
		text = cmd.Short
	}
	if cmd.HasSubCommands() {
		fmt.Fprintf(b, "%s\n", text)
		return
	}
	fmt.Fprintf(b, "```\n%s\n```\n\n```text\n%s\n```\n", cmd.UseLine(), strings.TrimSpace(text))
	own := pflag.NewFlagSet("", pflag.ContinueOnError)
	cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		if shared := common.Lookup(f.Name); shared == nil || shared.Usage != f.Usage {
			own.AddFlag(f)
		}
	})
	if own.HasAvailableFlags() {
		b.WriteString("\n")
		flagTable(b, own)
	}
	b.WriteString("\n```sh\n")
	for line := range strings.Lines(strings.Trim(cmd.Example, "\n")) {
		b.WriteString(strings.TrimPrefix(line, "  "))
	}
	b.WriteString("\n```\n")
}

// flagTable writes a row for each visible flag.
func flagTable(b *strings.Builder, flags *pflag.FlagSet) {
	b.WriteString("| flag | default | meaning |\n|---|---|---|\n")
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		kind, usage := pflag.UnquoteUsage(f)
		if kind != "" {
			name += " " + kind
		}
		value := f.DefValue
		switch value {
		case "", "[]", "false":
			value = ""
		default:
			value = "`" + value + "`"
		}
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", name, value, strings.ReplaceAll(usage, "|", "\\|"))
	})
}

const errorsHead = `# Errors

The list is made from the code by ` + "`make generate`" + `. ` + "`errors.Is`" + ` finds these in whatever the library
returns; the command line ends with the exit code and gives the advice after ` + "`next:`" + `, unless a command
knows better.

| error | meaning | exit code | advice |
|---|---|---|---|
`

// TestReferenceOfErrors: docs/reference/errors.md has every error of package percolator with its
// documentation and the command line's text and exit code.
func TestReferenceOfErrors(t *testing.T) {
	values := map[string]error{
		"ErrConflict": percolator.ErrConflict, "ErrLocked": percolator.ErrLocked,
		"ErrCommitUnknown": percolator.ErrCommitUnknown, "ErrNoTable": percolator.ErrNoTable,
		"ErrSnapshotTooOld": percolator.ErrSnapshotTooOld, "ErrTooLarge": percolator.ErrTooLarge,
		"ErrInvalid": percolator.ErrInvalid, "ErrOverloaded": percolator.ErrOverloaded,
		"ErrUnavailable": percolator.ErrUnavailable, "ErrDiskFull": percolator.ErrDiskFull,
		"ErrNotifyOnly": percolator.ErrNotifyOnly, "ErrManagedTx": percolator.ErrManagedTx,
		"ErrTxDone": percolator.ErrTxDone, "ErrClosed": percolator.ErrClosed,
		"ErrPermission": percolator.ErrPermission,
	}
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", "..", "errors.go"), nil,
		parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString(errorsHead)
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		name := spec.Names[0].Name
		value, ok := values[name]
		if !ok {
			t.Errorf("%s is not in the map of this test", name)
			return false
		}
		delete(values, name)
		meaning := strings.Join(strings.Fields(spec.Doc.Text()), " ")
		for _, verb := range []string{" reports that ", " reports ", " is "} {
			meaning = strings.TrimPrefix(meaning, name+verb)
		}
		code, advice := (&shell.Connector{}).Classify(value)
		fmt.Fprintf(&b, "| `%s` | %s | %d | %s |\n", name, strings.ToUpper(meaning[:1])+meaning[1:],
			code, advice)
		return false
	})
	for name := range values {
		t.Errorf("there is no %s", name)
	}
	checkReference(t, "errors.md", b.String())
}

// checkReference compares a file of docs/reference with the generated text.
func checkReference(t *testing.T, name, want string) {
	t.Helper()
	path := filepath.Join("..", "..", "docs", "reference", name)
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		t.Errorf("%s is not up to date (%v): run make generate", path, err)
	}
}
