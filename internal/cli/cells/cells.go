package cells

import (
	"context"
	"fmt"
	"io"
	"iter"
	"slices"

	"github.com/spf13/cobra"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/cli/shell"
	"github.com/percolator-go/percolator/internal/coded"
	"github.com/percolator-go/percolator/internal/inspect"
)

// The commands that read and write cells use the library: reads in one snapshot, writes in one
// transaction.

// GetCommand returns the command that reads cells of a row. It prints the value of a single named
// column as is, so that a shell can use it (escaped at a terminal), and everything else as a table.
func GetCommand(d *shell.Deps) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "get TABLE ROW [COLUMN...]",
		Short: "Read cells of a row",
		Long: `Read cells of one row in one snapshot. One column: its value as it is, and a
newline. Several columns, or none for all of the row: a table. The command fails if a cell that is named
does not exist.`,
		Example: "get bank bob balance\n" +
			"get bank --escape go 'row\\x00' -o json\n" +
			"get bank bob --at 5m",
	}
	shell.AddInputArgs(cmd)
	at := shell.AddAt(cmd)
	return d.ClientCommand(cmd, func(ctx context.Context, s *shell.Session, args []string) error {
		snapshot, err := s.OpenSnapshot(ctx, *at)
		if err != nil {
			return err
		}
		defer func() { _ = snapshot.Close() }()
		return get(ctx, snapshot, d.Out, args[0], args[1], args[2:])
	})
}

// get prints the cells that exist before it fails for those that do not.
func get(ctx context.Context, s *percolator.Snapshot, out *shell.Printer, table, row string,
	columns []string) error {
	cells, err := readRow(ctx, s, table, row, columns)
	if err != nil {
		return err
	}
	if len(columns) == 1 && !out.JSON() && len(cells) == 1 {
		to := out.Raw // a file or a pipe gets the value unescaped
		if out.AtTerminal(to) {
			to = out.Stdout
		}
		_, err := fmt.Fprintf(to, "%s\n", cells[0].Value)
		return err
	}
	if err := printCells(out, cells, inspect.ValueWidth); err != nil {
		return err
	}
	if len(cells) == 0 || len(cells) < len(columns) {
		what := fmt.Sprintf("contains %d of the %d requested cells", len(cells), len(columns))
		if len(columns) == 0 { // the whole row was requested
			what = "contains no cells"
		} else if all, err := readRow(ctx, s, table, row, nil); err == nil && len(all) > 0 {
			var names []string
			for _, c := range all {
				names = append(names, c.Column.Name)
			}
			what += "; its columns are " + shell.ColumnNames(names)
		}
		return shell.WithHint(
			coded.Errorf("", "%w: row %s of table %s %s", shell.ErrNoValue, inspect.Printable(row), table, what),
			"`history TABLE ROW` shows the row's former contents",
			inspect.Operand{What: "TABLE", Value: table}, inspect.Operand{What: "ROW", Value: row})
	}
	return nil
}

// readRow reads the named columns in one message, or scans the whole row. A row never spans two
// tablets.
func readRow(ctx context.Context, s *percolator.Snapshot, table, row string,
	columns []string) ([]percolator.Cell, error) {
	if len(columns) > 0 {
		keys := make([]percolator.CellKey, len(columns))
		for i, c := range shell.ColumnsOf(table, columns) {
			keys[i] = percolator.CellKey{Row: row, Column: c}
		}
		return s.GetMulti(ctx, keys...)
	}
	var cells []percolator.Cell
	for cell, err := range s.Scan(ctx, percolator.Rows(table).From(row).Before(row+"\x00")) {
		if err != nil {
			return nil, err
		}
		cells = append(cells, cell)
	}
	return cells, nil
}

// printCells prints cells. A table shows at most width bytes of each value; 0 shows all.
func printCells(out *shell.Printer, cells []percolator.Cell, width int) error {
	if len(cells) == 0 {
		return nil
	}
	list := out.Listing("ROW, COLUMN, COMMITTED AT, VALUE")
	for _, c := range cells {
		list.Add(c, inspect.Printable(c.Row), inspect.Printable(c.Column.Name), uint64(c.CommitTS),
			inspect.Shortened(string(c.Value), width))
	}
	return list.End()
}

// SetCommand returns the command that writes cells. It does not read, so it conflicts only with
// concurrent writers of the same cells.
func SetCommand(d *shell.Deps) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "set TABLE ROW COLUMN VALUE [COLUMN VALUE...]",
		Short:   "Write cells of a row in one transaction",
		Example: "set bank bob balance 10\nset bank bob photo -",
		Long: `Write cells of one row in one transaction, and print its commit timestamp. A
single VALUE of - is read from standard input, as it is.`,
	}
	in := shell.AddInput(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args)%2 != 0 {
			return shell.Usagef(cmd, "the last column has no value: usage is %s", cmd.UseLine())
		}
		row, err := in.Bytes(args[1])
		if err != nil {
			return err
		}
		writes, err := parseWrites(cmd, in, args[2:], d.App.Stdin)
		if err != nil {
			return err
		}
		return transact(d, cmd, func(_ context.Context, tx *percolator.Tx) error {
			for _, w := range writes {
				tx.Set(row, percolator.Column{Table: args[0], Name: w.column}, w.value)
			}
			return nil
		})
	}
	return d.WithClient(cmd)
}

// cellWrite is a column and its new value.
type cellWrite struct {
	column string
	value  []byte
}

// parseWrites pairs columns with values. It does not check limits: the client and the tablet
// do, with typed errors. A column given twice is refused, since one of its values would
// be lost.
func parseWrites(cmd *cobra.Command, f *shell.InputFlags, args []string,
	stdin io.Reader) ([]cellWrite, error) {
	var writes []cellWrite
	given := map[string]bool{}
	for i := 0; i < len(args); i += 2 {
		column, err := f.Bytes(args[i])
		if err != nil {
			return nil, err
		}
		if given[column] {
			return nil, shell.Usagef(cmd, "column %s is set twice",
				inspect.Printable(column))
		}
		given[column] = true
		if len(args) == 2 && args[i+1] == "-" {
			// Larger than any limit, so that the node reports the exceeded one.
			value, err := io.ReadAll(io.LimitReader(stdin, 8<<20))
			if err != nil {
				return nil, coded.Errorf("", "read standard input: %w", err)
			}
			return []cellWrite{{column: column, value: value}}, nil
		}
		value, err := f.Bytes(args[i+1])
		if err != nil {
			return nil, err
		}
		writes = append(writes, cellWrite{column: column, value: []byte(value)})
	}
	return writes, nil
}

// DeleteCommand returns the command that deletes the named columns. Deleting a whole row needs --all,
// so that omitting the columns by mistake does not delete it.
func DeleteCommand(d *shell.Deps) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "delete TABLE ROW {COLUMN... | --all}",
		Short:   "Delete cells of a row in one transaction",
		Example: "delete bank bob balance\ndelete bank bob --all",
	}
	shell.AddInputArgs(cmd)
	all := cmd.Flags().Bool("all", false, "delete every column of the row")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		table, row, columns := args[0], args[1], args[2:]
		if *all == (len(columns) > 0) {
			return shell.Usagef(cmd, "name columns, or pass --all for every column of the row")
		}
		return transact(d, cmd, func(ctx context.Context, tx *percolator.Tx) error {
			for _, c := range shell.ColumnsOf(table, columns) {
				tx.Delete(row, c)
			}
			if !*all {
				return nil
			}
			return tx.DeleteRow(ctx, table, row)
		})
	}
	return d.WithClient(cmd)
}

// transact runs one transaction and prints its commit timestamp.
func transact(d *shell.Deps, cmd *cobra.Command, fn func(context.Context, *percolator.Tx) error) error {
	return d.Conn.Run(cmd, func(ctx context.Context, s *shell.Session) error {
		var at percolator.Timestamp
		if err := s.DB.Transact(ctx, fn, percolator.CommittedAt(&at),
			percolator.Name("cli")); err != nil {
			return err
		}
		return d.Out.Answer(struct {
			CommitTS percolator.Timestamp `json:"commit_ts"`
		}{at}, "committed at %d", uint64(at))
	})
}

// scanChunk is the number of cells of a scan that are formatted together.
const scanChunk = 1000

// ScanCommand returns the command that reads rows. It reads one row more than --limit, to detect
// whether it has shown all.
func ScanCommand(d *shell.Deps) *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:   "scan TABLE [COLUMN...]",
		Short: "Read rows in order",
		Long: "Read the cells of a range of rows in row order, in one snapshot. Without " +
			"columns all of the table's.",
		Example: "scan bank --prefix b --limit 10\n" +
			"scan bank balance -o json --limit 0",
	}
	in, within, at := shell.AddInputArgs(cmd), shell.AddRange(cmd), shell.AddAt(cmd)
	reverse := cmd.Flags().Bool("reverse", false, "last row first")
	full := cmd.Flags().Bool("full", false, "whole values in the table")
	shell.AddLimit(cmd, &limit, 0, "maximum number of rows; 0: all")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		rows, _, err := within.Rows(args[0], in)
		if err != nil {
			return err
		}
		if *reverse {
			rows = rows.Reverse()
		}
		if limit > 0 {
			rows = rows.Limit(limit + 1)
		}
		width := inspect.ValueWidth
		if *full {
			width = 0
		}
		return d.Conn.Run(cmd, func(ctx context.Context, s *shell.Session) error {
			snapshot, err := s.OpenSnapshot(ctx, *at)
			if err != nil {
				return err
			}
			defer func() { _ = snapshot.Close() }()
			columns := shell.ColumnsOf(args[0], args[1:])
			missing, err := printScan(d.Out, snapshot.Scan(ctx, rows, columns...), args[1:], limit, width)
			if err == nil && len(missing) > 0 {
				noteMissing(d.Out, snapshot.Scan(ctx, rows.Limit(sampleRows)), missing)
			}
			return err
		})
	}
	return d.WithClient(cmd)
}

// printScan prints while it reads, so that a long scan holds one chunk of cells at a time. It returns
// the named columns that no row has; none if it ended at the limit, because later rows may have them.
func printScan(out *shell.Printer, cells iter.Seq2[percolator.Cell, error], columns []string,
	limit, width int) (missing []string, err error) {
	missing = slices.Clone(columns)
	chunk := make([]percolator.Cell, 0, scanChunk)
	seen, row := 0, ""
	for cell, err := range cells {
		if err != nil {
			return nil, err
		}
		if seen == 0 || cell.Row != row {
			seen, row = seen+1, cell.Row
		}
		if limit > 0 && seen > limit {
			break
		}
		if len(missing) > 0 {
			missing = slices.DeleteFunc(missing, func(c string) bool { return c == cell.Column.Name })
		}
		if chunk = append(chunk, cell); len(chunk) == scanChunk {
			if err := printCells(out, chunk, width); err != nil {
				return nil, err
			}
			chunk = chunk[:0]
		}
	}
	err = printCells(out, chunk, width)
	if limit > 0 && seen > limit {
		out.NoteCut(limit)
		return nil, err
	}
	return missing, err
}

// sampleRows and sampleCells limit the rows and cells of a range that are read to find the names of
// its columns.
const (
	sampleRows  = 100
	sampleCells = 1000
)

// noteMissing prints that no row of a range has the named columns, and which columns the range's first
// cells have. It prints nothing for an empty or unreadable range.
func noteMissing(out *shell.Printer, cells iter.Seq2[percolator.Cell, error], missing []string) {
	var names []string
	known, looked := map[string]bool{}, 0
	for cell, err := range cells {
		if err != nil {
			return
		}
		if name := cell.Column.Name; !known[name] {
			known[name], names = true, append(names, name)
		}
		if looked++; looked == sampleCells {
			break
		}
	}
	if len(names) > 0 {
		out.Note("none of the rows has a column %s; the first ones have %s", shell.ColumnNames(missing),
			shell.ColumnNames(names))
	}
}
