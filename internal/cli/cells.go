package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/mvcc"
)

// The commands that read and write cells go through the library: reads in one snapshot,
// writes in one transaction.

// valueWidth is how much of a value a table shows, in bytes.
const valueWidth = 60

// errNoValue is returned when a cell or row that was asked for does not exist.
var errNoValue = errors.New("no value")

// getCommand prints a single value bare, so that a shell can use it; everything else goes
// into a table.
func getCommand(d *deps) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "get TABLE ROW [COLUMN...]",
		Short: "Read cells of a row",
		Long: `Read cells of one row in one snapshot. One column: its value as it is, and a
newline. Several columns, or none for all of the row: a table. A cell that does not exist is a
failure if it was asked for by name.`,
		Example: "get bank bob balance\n" +
			"get bank --escape go 'row\\x00' -o json\n" +
			"get bank bob --at 5m",
	}
	in, at := addInput(cmd), addAt(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		names, err := in.all(args[1:])
		if err != nil {
			return err
		}
		return d.conn.run(cmd, func(ctx context.Context, s *session) error {
			snapshot, err := openSnapshot(ctx, s.db, s.out, *at)
			if err != nil {
				return err
			}
			defer func() { _ = snapshot.Close() }()
			return get(ctx, snapshot, d.out, args[0], names[0], names[1:])
		})
	}
	return d.withClient(cmd)
}

// addAt adds --at, which reads an earlier snapshot within the history that is kept.
func addAt(cmd *cobra.Command) *string {
	return cmd.Flags().String("at", "",
		"read as of a timestamp, a time (2026-01-31T12:00:00Z), an age (5m, 1d) or now")
}

// openSnapshot opens the snapshot that --at names; an empty at means now.
func openSnapshot(ctx context.Context, db *percolator.DB, out *printer,
	at string) (*percolator.Snapshot, error) {
	parsed, err := parseAt(nil, at)
	if err != nil {
		return nil, err
	}
	if parsed == (atTime{}) || parsed.isAge && parsed.age == 0 {
		return db.Snapshot(ctx)
	}
	ts, err := parsed.resolve(out, func() (mvcc.Timestamp, error) { return oracleNow(ctx, db) })
	if err != nil {
		return nil, err
	}
	return db.SnapshotAt(ctx, percolator.Timestamp(ts))
}

// oracleNow returns a fresh timestamp.
func oracleNow(ctx context.Context, db *percolator.DB) (mvcc.Timestamp, error) {
	now, err := db.Snapshot(ctx)
	if err != nil {
		return 0, err
	}
	return mvcc.Timestamp(now.Timestamp()), now.Close()
}

// aheadNoted is how far timestamps may be ahead of this machine's clock without a note: what
// synchronized clocks, and the oracle under load, differ by.
const aheadNoted = 200 * time.Millisecond

// noteAhead says that a state as of a time by the clock may lack what was committed before
// that time, if the timestamp, a fresh one, is ahead of the clock: commits have later
// timestamps than the time at which they were made.
func (p *printer) noteAhead(at atTime, now mvcc.Timestamp, clock time.Time) {
	ahead := time.Duration(now.Millis()-clock.UnixMilli()) * time.Millisecond
	if !at.byClock || ahead <= aheadNoted {
		return
	}
	p.note("--at: the cluster's timestamps are %v ahead of this machine's clock, as after a restart: "+
		"commits made up to that long before the given time may be missing; a timestamp, as set "+
		"prints it and `history` shows it, is exact", ahead)
}

// get prints the cells that exist before it fails for those that do not.
func get(ctx context.Context, s *percolator.Snapshot, out *printer, table, row string,
	columns []string) error {
	cells, err := readRow(ctx, s, table, row, columns)
	if err != nil {
		return err
	}
	if len(columns) == 1 && !out.json() && len(cells) == 1 {
		to := out.raw // a file or a pipe gets the value as it is
		if out.atTerminal(to) {
			to = out.stdout
		}
		_, err := fmt.Fprintf(to, "%s\n", cells[0].Value)
		return err
	}
	if err := printCells(out, cells, valueWidth); err != nil {
		return err
	}
	if len(cells) == 0 || len(cells) < len(columns) {
		what := fmt.Sprintf("holds %d of the %d cells asked for", len(cells), len(columns))
		if len(columns) == 0 { // the whole row was asked for: there is nothing to count
			what = "holds no cells"
		} else if all, err := readRow(ctx, s, table, row, nil); err == nil && len(all) > 0 {
			var names []string
			for _, c := range all {
				names = append(names, c.Column.Name)
			}
			what += "; its columns are " + columnNames(names)
		}
		return withHint(
			fmt.Errorf("%w: row %s of table %s %s", errNoValue, printable(row), table, what),
			"`history TABLE ROW` shows what the row ever held",
			operand{"TABLE", table}, operand{"ROW", row})
	}
	return nil
}

// maxNames is how many columns a message names.
const maxNames = 20

// columnNames lists columns for a message.
func columnNames(names []string) string {
	var list []string
	for i, name := range names {
		if i == maxNames {
			list = append(list, fmt.Sprintf("%d more", len(names)-maxNames))
			break
		}
		list = append(list, printable(name))
	}
	return strings.Join(list, ", ")
}

// readRow reads the named columns in one message, or scans all of the row: one row never
// spans two tablets.
func readRow(ctx context.Context, s *percolator.Snapshot, table, row string,
	columns []string) ([]percolator.Cell, error) {
	if len(columns) > 0 {
		keys := make([]percolator.CellKey, len(columns))
		for i, c := range columnsOf(table, columns) {
			keys[i] = percolator.CellKey{Row: row, Column: c}
		}
		return s.GetMulti(ctx, keys...)
	}
	var cells []percolator.Cell
	for cell, err := range s.Scan(ctx, oneRow(table, row)) {
		if err != nil {
			return nil, err
		}
		cells = append(cells, cell)
	}
	return cells, nil
}

// oneRow is the range that holds one row.
func oneRow(table, row string) percolator.RowRange {
	return percolator.Rows(table).From(row).Before(row + "\x00")
}

// columnsOf returns the named columns of a table.
func columnsOf(table string, names []string) []percolator.Column {
	columns := make([]percolator.Column, len(names))
	for i, name := range names {
		columns[i] = percolator.Column{Table: table, Name: name}
	}
	return columns
}

// printCells prints cells. A table shows at most width bytes of each value; 0 shows all.
func printCells(out *printer, cells []percolator.Cell, width int) error {
	if len(cells) == 0 {
		return nil
	}
	list := out.listing("ROW, COLUMN, COMMITTED AT, VALUE")
	for _, c := range cells {
		list.add(c, printable(c.Row), printable(c.Column.Name), uint64(c.CommitTS),
			shortened(string(c.Value), width))
	}
	return list.end()
}

// setCommand writes without reading, so it conflicts only with concurrent writers of the
// same cells.
func setCommand(d *deps) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "set TABLE ROW COLUMN VALUE [COLUMN VALUE...]",
		Short:   "Write cells of a row in one transaction",
		Example: "set bank bob balance 10\nset bank bob photo -",
		Long: `Write cells of one row in one transaction, and print its commit timestamp. A
single VALUE of - is read from standard input, as it is.`,
	}
	in := addInput(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args)%2 != 0 {
			return usagef(cmd, "the last column has no value: usage is %s", cmd.UseLine())
		}
		row, err := in.bytes(args[1])
		if err != nil {
			return err
		}
		writes, err := in.writes(cmd, args[2:], d.app.Stdin)
		if err != nil {
			return err
		}
		return d.transact(cmd, func(_ context.Context, tx *percolator.Tx) error {
			for _, w := range writes {
				tx.Set(row, percolator.Column{Table: args[0], Name: w.column}, w.value)
			}
			return nil
		})
	}
	return d.withClient(cmd)
}

// writes pairs columns with values. It does not check limits: the client and the tablet
// do, with typed errors. A column given twice is refused, since one of its values would
// be lost.
func (f *inputFlags) writes(cmd *cobra.Command, args []string,
	stdin io.Reader) ([]columnChange, error) {
	var writes []columnChange
	given := map[string]bool{}
	for i := 0; i < len(args); i += 2 {
		column, err := f.bytes(args[i])
		if err != nil {
			return nil, err
		}
		if given[column] {
			return nil, usagef(cmd, "column %s is given twice: give it one value",
				printable(column))
		}
		given[column] = true
		if len(args) == 2 && args[i+1] == "-" {
			// Larger than any limit, so that the node reports which one is exceeded.
			value, err := io.ReadAll(io.LimitReader(stdin, 8<<20))
			if err != nil {
				return nil, fmt.Errorf("standard input: %w", err)
			}
			return []columnChange{{column: column, value: value}}, nil
		}
		value, err := f.bytes(args[i+1])
		if err != nil {
			return nil, err
		}
		writes = append(writes, columnChange{column: column, value: []byte(value)})
	}
	return writes, nil
}

// deleteCommand deletes the named columns. Deleting all of a row needs --all, so that
// leaving the columns out by mistake does not empty it.
func deleteCommand(d *deps) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "delete TABLE ROW {COLUMN... | --all}",
		Short:   "Delete cells of a row in one transaction",
		Example: "delete bank bob balance\ndelete bank bob --all",
	}
	in := addInput(cmd)
	all := cmd.Flags().Bool("all", false, "delete every column of the row")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		names, err := in.all(args[1:])
		if err != nil {
			return err
		}
		table, row, columns := args[0], names[0], names[1:]
		if *all == (len(columns) > 0) {
			return usagef(cmd, "name columns, or give --all for every column of the row")
		}
		return d.transact(cmd, func(ctx context.Context, tx *percolator.Tx) error {
			for _, c := range columnsOf(table, columns) {
				tx.Delete(row, c)
			}
			if !*all {
				return nil
			}
			return tx.DeleteRow(ctx, table, row)
		})
	}
	return d.withClient(cmd)
}

// transact runs one transaction and prints its commit timestamp.
func (d *deps) transact(cmd *cobra.Command, fn func(context.Context, *percolator.Tx) error) error {
	return d.conn.run(cmd, func(ctx context.Context, s *session) error {
		var at percolator.Timestamp
		if err := s.db.Transact(ctx, fn, percolator.CommittedAt(&at),
			percolator.Name("cli")); err != nil {
			return err
		}
		return d.out.answer(struct {
			CommitTS percolator.Timestamp `json:"commit_ts"`
		}{at}, "committed at %d", uint64(at))
	})
}

// scanChunk is how many cells of a scan are laid out together.
const scanChunk = 1000

// rangeFlags select the rows that scan and export read. Bounds are written like rows
// (--escape).
type rangeFlags struct{ prefix, from, before string }

func addRange(cmd *cobra.Command) *rangeFlags {
	f := &rangeFlags{}
	flags := cmd.Flags()
	flags.StringVar(&f.prefix, "prefix", "", "only rows that begin so (--escape applies)")
	flags.StringVar(&f.from, "from", "", "only rows from this one on")
	flags.StringVar(&f.before, "before", "", "only rows before this one")
	return f
}

// rows narrows the table's rows by what was given; bounds are prefix, from and before,
// decoded.
func (f *rangeFlags) rows(table string, in *inputFlags) (rows percolator.RowRange, bounds []string,
	err error) {
	rows = percolator.Rows(table)
	if bounds, err = in.all([]string{f.prefix, f.from, f.before}); err != nil {
		return rows, nil, err
	}
	if f.prefix != "" {
		rows = rows.Prefix(bounds[0])
	}
	if f.from != "" {
		rows = rows.From(bounds[1])
	}
	if f.before != "" {
		rows = rows.Before(bounds[2])
	}
	return rows, bounds, nil
}

// scanCommand reads one row more than --limit, to know whether it has shown all.
func scanCommand(d *deps) *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:   "scan TABLE [COLUMN...]",
		Short: "Read rows in order",
		Long: "Read the cells of a range of rows in row order, in one snapshot. Without " +
			"columns all of the table's.",
		Example: "scan bank --prefix b --limit 10\n" +
			"scan bank balance -o json --limit 0",
	}
	in, within, at := addInput(cmd), addRange(cmd), addAt(cmd)
	reverse := cmd.Flags().Bool("reverse", false, "last row first")
	full := cmd.Flags().Bool("full", false, "whole values in the table")
	addLimit(cmd, &limit, 0, "most rows; 0: all")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		rows, _, err := within.rows(args[0], in)
		if err != nil {
			return err
		}
		if *reverse {
			rows = rows.Reverse()
		}
		if limit > 0 {
			rows = rows.Limit(limit + 1)
		}
		names, err := in.all(args[1:])
		if err != nil {
			return err
		}
		width := valueWidth
		if *full {
			width = 0
		}
		return d.conn.run(cmd, func(ctx context.Context, s *session) error {
			snapshot, err := openSnapshot(ctx, s.db, s.out, *at)
			if err != nil {
				return err
			}
			defer func() { _ = snapshot.Close() }()
			columns := columnsOf(args[0], names)
			missing, err := printScan(d.out, snapshot.Scan(ctx, rows, columns...), names, limit, width)
			if err == nil && len(missing) > 0 {
				noteMissing(d.out, snapshot.Scan(ctx, rows.Limit(sampleRows)), missing)
			}
			return err
		})
	}
	return d.withClient(cmd)
}

// printScan prints as it reads, so that a long scan holds one chunk of cells at a time. It
// returns those of the named columns that no row has; none if it ended at the limit, for the
// rows behind it may have them.
func printScan(out *printer, cells iter.Seq2[percolator.Cell, error], columns []string,
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
		out.cut(limit)
		return nil, err
	}
	return missing, err
}

// sampleRows is how many rows of a range are looked at, and sampleCells how many of their
// cells, for the columns that there are.
const (
	sampleRows  = 100
	sampleCells = 1000
)

// noteMissing says that no row of a range has the named columns, and which columns the range's
// first cells have. It says nothing of an empty range, or of one that cannot be read.
func noteMissing(out *printer, cells iter.Seq2[percolator.Cell, error], missing []string) {
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
		out.note("none of the rows has a column %s; the first ones have %s", columnNames(missing),
			columnNames(names))
	}
}
