package cells

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/cli/shell"
	"github.com/percolator-go/percolator/internal/inspect"
)

// Deletion of a column uses the library, like delete: it needs the same role and grant, and is audited
// in the same way.

// deleteChunk is the number of rows between two reports of progress.
const deleteChunk = 1000

// ColumnCommand groups the commands for columns.
func ColumnCommand(d *shell.Deps) *cobra.Command {
	return shell.Group("column", "Delete a column of many rows",
		"column delete bank photo --yes",
		columnDelete(d))
}

// columnDelete returns the command that deletes a column in many transactions. Running it again after
// a failure continues, because deleted cells are not found again.
func columnDelete(d *shell.Deps) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "delete TABLE COLUMN --yes",
		Short: "Delete a column of all rows, or of a range",
		Long: `Delete the cells of one column in a range of rows, in transactions of up to 1,000 cells.
Other columns remain. Values are not read. Observers of the column run for each deleted cell, as after
delete; rows written behind the command's position keep their cells.

There is no time limit unless --timeout is given. The same command continues after an interruption.
--yes confirms. At a terminal it may be omitted: the command then asks for the table's name.`,
		Example: "column delete bank photo --yes\ncolumn delete bank photo --prefix old/ --yes",
	}
	in, within := shell.AddInputArgs(cmd), shell.AddRange(cmd)
	quiet := cmd.Flags().Bool("quiet", false, "do not print progress")
	d.Confirmed(cmd, "deleting a column of table %s removes its cells")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		rows, _, err := within.Rows(args[0], in)
		if err != nil {
			return err
		}
		name := args[1]
		return d.Conn.RunLong(cmd, func(ctx context.Context, s *shell.Session) error {
			meter := s.Out.NewMeter("column "+inspect.Printable(name), shell.Tally{}, *quiet)
			done, err := deleteColumn(ctx, s.DB, rows, percolator.Column{Table: args[0], Name: name}, meter)
			if err != nil {
				return shell.WithHint(fmt.Errorf("%w, after %d deleted cells", err, done.Cells),
					"run the same command again to continue")
			}
			return d.Out.Answer(struct {
				Cells int `json:"cells"`
			}{done.Cells}, "deleted %d cells", done.Cells)
		})
	}
	return d.WithClient(cmd)
}

// deleteColumn deletes the column of the rows and reports its progress.
func deleteColumn(ctx context.Context, db *percolator.DB, rows percolator.RowRange, col percolator.Column,
	meter *shell.Meter) (all percolator.Deleted, err error) {
	for !all.Done {
		d, err := db.DeleteColumnRange(ctx, rows.Limit(deleteChunk), col)
		all.Rows, all.Cells, all.Done = all.Rows+d.Rows, all.Cells+d.Cells, d.Done
		if err != nil {
			return all, err
		}
		meter.Show(shell.Tally{Rows: int64(all.Rows)})
		rows = rows.From(d.Next)
	}
	return all, nil
}
