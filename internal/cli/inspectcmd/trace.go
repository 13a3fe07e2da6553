package inspectcmd

import (
	"context"
	"errors"
	"math"

	"github.com/spf13/cobra"

	"github.com/percolator-go/percolator/internal/cli/shell"
	"github.com/percolator-go/percolator/internal/coded"
	"github.com/percolator-go/percolator/internal/inspect"
)

// `trace` shows the chain that package inspect finds; traceview.go lays it out.

// TraceCommand returns the command that shows the chain of transactions that led to a change.
func TraceCommand(d *shell.Deps) *cobra.Command {
	t := &inspect.Chain{}
	cmd := &cobra.Command{
		Use:   "trace TABLE ROW [COLUMN]",
		Short: "Show the chain of a change: what wrote it, and which observers ran for it",
		Long: `Show the chain that the newest change of a row or cell (or that as of --at) belongs to: the transaction that began it,
the runs of observers that its writes set off, what those wrote, and so on, with the time of each and the time between
them. Pending runs are shown with their state (waiting, failing, parked) and last error.

It follows what is stored: write records, acknowledgments, notifications, rollbacks of runs that conflicted. What a
transaction wrote is looked for in the row in which it is known to have written, and with --search in all rows of the
named tables, which reads each of them once for every transaction, as scan would. Runs of weak observers acknowledge
nothing: they are shown while they wait. Collected versions are not shown.

With -o json each step is an object; "state" is one of ` + inspect.States + `.`,
		Example: "trace bank bob\n" +
			"trace bank bob balance --at 5m --search totals -o json",
	}
	shell.AddInputArgs(cmd)
	at := shell.AddAt(cmd)
	shell.AddLimit(cmd, &t.Limit, 1, "maximum number of steps")
	cmd.Flags().IntVar(&t.Depth, "depth", 16, "maximum length of a chain of runs, in each direction")
	tables := cmd.Flags().StringArray("search", nil,
		"also look in all rows of this table for what a transaction wrote; repeatable")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if t.Depth < 1 {
			return shell.Usagef(cmd, "--depth %d: give at least 1", t.Depth)
		}
		return d.Conn.Run(cmd, func(ctx context.Context, s *shell.Session) error {
			newest := uint64(math.MaxUint64)
			if *at != "" {
				snapshot, err := shell.OpenSnapshot(ctx, s.DB, s.Out, *at)
				if err != nil {
					return err
				}
				newest = uint64(snapshot.StartTS())
				if err := snapshot.Close(); err != nil {
					return err
				}
			}
			return trace(ctx, s, t, args[0], *tables, args[1:], newest)
		})
	}
	return d.WithClient(cmd)
}

// trace looks the names up, follows the chain and prints it. path is the row and, if there is
// one, the column.
func trace(ctx context.Context, s *shell.Session, t *inspect.Chain, table string, search, path []string,
	newest uint64) error {
	names, catalogue, err := s.Schema(ctx)
	if err != nil {
		return err
	}
	if t.Table, err = names.Table(table); err != nil {
		return err
	}
	for _, name := range search {
		id, err := names.Table(name)
		if err != nil {
			return err
		}
		t.Search = append(t.Search, id)
	}
	t.Client, t.Names, t.Catalogue = s.Client, names, catalogue
	var column *string
	if len(path) > 1 {
		column = &path[1]
	}
	err = t.Trace(ctx, path[0], column, newest)
	if errors.Is(err, inspect.ErrNoChange) {
		return shell.WithHint(coded.Errorf("",
			"%w: no committed change of row %s matches the request and is still kept",
			shell.ErrNoValue, inspect.Printable(path[0])), inspect.AdviceRows, inspect.Operand{What: "TABLE", Value: table})
	}
	if err != nil {
		return err
	}
	return (&chainView{t, s.Out, table}).print()
}
