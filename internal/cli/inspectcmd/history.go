package inspectcmd

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/percolator-go/percolator/internal/cli/shell"
	"github.com/percolator-go/percolator/internal/coded"
	"github.com/percolator-go/percolator/internal/inspect"
	"github.com/percolator-go/percolator/internal/mvcc"
)

// `history` reads one row in every group, as it is stored. This file reads the entries
// and converts them to JSON; package inspect lays them out for people.

// HistoryCommand returns the command that shows all stored entries of a row.
func HistoryCommand(d *shell.Deps) *cobra.Command {
	view, limit := &inspect.Figure4{}, 0
	cmd := &cobra.Command{
		Use: "history TABLE ROW",
		Short: "Show every version of a row: data, locks, write records, notifications, " +
			"acknowledgments",
		Example: "history bank bob\nhistory bank bob --times --full",
		Long: `Show all that a row holds, laid out as Figure 4 of the Percolator paper does: a
block for each column with its data, lock and write columns (and notify and ack columns where an
observer watches it), one line for each timestamp, newest first. "8: data @ 7" in the write
column says: committed at 8, by the transaction that started, and wrote its data, at 7.

It ignores locks and does not resolve them, so it changes nothing.`,
	}
	shell.AddInputArgs(cmd)
	shell.AddLimit(cmd, &limit, 1, "maximum number of entries")
	cmd.Flags().BoolVar(&view.Full, "full", false, "whole values")
	cmd.Flags().BoolVar(&view.Times, "times", false,
		"also show the timestamps' physical part, in UTC")
	return d.ClientCommand(cmd, func(ctx context.Context, s *shell.Session, args []string) error {
		view.Row = args[1]
		return history(ctx, s, args[0], view, limit)
	})
}

// history reads the row from its tablet, and from meta the observers whose notify and ack columns
// are shown with it.
func history(ctx context.Context, s *shell.Session, table string, view *inspect.Figure4, limit int) error {
	names, catalogue, err := s.Schema(ctx)
	if err != nil {
		return err
	}
	id, err := names.Table(table)
	if err != nil {
		return err
	}
	entries, err := inspect.Row(ctx, s.Client, id, view.Row, limit+1)
	if err != nil {
		return err
	}
	if len(entries) > limit {
		entries = entries[:limit]
		defer s.Out.NoteCut(limit) // after the entries
	} else if inspect.Bounded(entries) {
		defer s.Out.Note("the row may have more entries: a node shows at most %d of a kind and "+
			"%d MiB of values of one row",
			mvcc.MaxHistory, mvcc.HistoryBytes>>20)
	}
	view.Names, view.Observed, view.Entries = names, inspect.ObservedColumns(catalogue, id), entries
	if s.Out.JSON() {
		for _, e := range view.Entries {
			if err := s.Out.Object(inspect.NewEntry(e, names)); err != nil {
				return err
			}
		}
	} else if err := printFigure(s.Out, view); err != nil {
		return err
	}
	if len(view.Entries) == 0 {
		return shell.WithHint(coded.Errorf("", "%w: table %s holds nothing in row %s", shell.ErrNoValue, table,
			inspect.Printable(view.Row)),
			inspect.AdviceRows, inspect.Operand{What: "TABLE", Value: table})
	}
	return nil
}

// printFigure prints the tables, with a blank line between them.
func printFigure(out *shell.Printer, view *inspect.Figure4) error {
	for i, t := range view.Tables() {
		var g shell.Grid
		for _, line := range t.Lines {
			g.Add(line...)
		}
		text := g.Text()
		for _, note := range t.Notes {
			text += "  " + note + "\n"
		}
		if i > 0 {
			text = "\n" + text
		}
		if _, err := io.WriteString(out.Stdout, text); err != nil {
			return err
		}
	}
	return nil
}
