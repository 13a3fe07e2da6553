package inspectcmd

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/percolator-go/percolator/internal/cli/shell"
	"github.com/percolator-go/percolator/internal/inspect"
)

// `why` answers the commonest question about observers. Package inspect answers it; here the
// answer is printed.

// WhyCommand returns the command that explains why an observer did or did not run for a row. It
// changes nothing: an expired lock is reported, not resolved.
func WhyCommand(d *shell.Deps) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "why OBSERVER ROW",
		Short: "Say why an observer did or did not run for a row",
		Long: `Explain why an observer did or did not run for a row, what to do about it, and on what
evidence: the observer's state, the newest change of the
observed cell, the acknowledgment of the last run, the notification, locks in the way with what
has become of their transactions, and the node's queues. Where a node still remembers the last run, it
also says which columns that has read and written ("effects").

The argument order of earlier versions, TABLE ROW OBSERVER, is also accepted.

It only reads. With -o json it is one object; "verdict" is one of:
` + strings.NewReplacer(", parked", ",\nparked", ", failing", ",\nfailing").Replace(inspect.Verdicts()) + ".",
		Example: "why count bob\nwhy count bob -o json",
	}
	in := shell.AddInput(cmd)
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 3 {
			return nil
		}
		return shell.UsageArgs(cmd.Use)(cmd, args)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		table, observer := "", args[0]
		if len(args) == 3 {
			table, observer = args[0], args[2]
		}
		row, err := in.Bytes(args[1])
		if err != nil {
			return err
		}
		return d.Conn.Run(cmd, func(ctx context.Context, s *shell.Session) error {
			why, err := inspect.Explain(ctx, s.Client, s.Out.Commands, table, row, observer)
			if err != nil {
				return shell.WithObservers(err)
			}
			return printWhy(s.Out, why)
		})
	}
	return d.WithClient(cmd)
}

// printWhy prints the verdict, then the evidence.
func printWhy(out *shell.Printer, why *inspect.Why) error {
	if out.JSON() {
		return out.Object(why)
	}
	lines := []string{why.Sentence, ""}
	if why.Next != "" {
		lines = []string{why.Sentence, "  next: " + why.Next, ""}
	}
	for _, line := range lines {
		if err := out.Print("%s", line); err != nil {
			return err
		}
	}
	g := &shell.Grid{}
	for _, fact := range why.Evidence() {
		g.Add(fact[0], fact[1])
	}
	return out.Table(g)
}
