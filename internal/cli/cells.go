package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/mvcc"
)

// valueWidth is how much of a value a table shows, in bytes.
const valueWidth = 60

// errNoValue: a cell that get was asked for does not exist.
var errNoValue = errors.New("no value")

// withInput gives the command the flags for byte strings in arguments.
func (r *run) withInput(cmd *cobra.Command) *cobra.Command {
	r.input.register(cmd.Flags())
	return cmd
}

// getCommand prints a single value bare, so that a shell can use it; everything else goes
// into a table.
func (r *run) getCommand() *cobra.Command {
	var at string
	cmd := &cobra.Command{
		Use:   "get TABLE ROW [COLUMN...]",
		Short: "Read cells of a row",
		Long: `Read cells of one row in one snapshot. One column: its value as it is, and a newline. Several columns, or none for
all of the row: a table. A cell that does not exist is a failure if it was asked for by name.`,
		Example: r.example("get bank bob balance", `get bank --escape go 'row\x00' -o json`, "get bank bob --at 5m"),
		Args:    argsBetween(2, -1),
		RunE: func(cmd *cobra.Command, args []string) error {
			names, err := r.input.all(args[1:])
			if err != nil {
				return err
			}
			return r.talk(cmd, func(ctx context.Context, s *session) error {
				snapshot, err := openSnapshot(ctx, s.db, at)
				if err != nil {
					return err
				}
				defer func() { _ = snapshot.Close() }()
				return r.get(ctx, snapshot, args[0], names[0], names[1:])
			})
		},
	}
	addAt(cmd, &at)
	return r.withInput(r.withClient(cmd))
}

// addAt gives the command --at: time travel inside the history that is kept.
func addAt(cmd *cobra.Command, at *string) {
	cmd.Flags().StringVar(at, "at", "", "read as of a timestamp, a time (2026-01-31T12:00:00Z) or so long ago (5m)")
}

// openSnapshot understands --at; empty is now.
func openSnapshot(ctx context.Context, db *percolator.DB, at string) (*percolator.Snapshot, error) {
	if at == "" {
		return db.Snapshot(ctx)
	}
	if ts, err := strconv.ParseUint(at, 10, 64); err == nil {
		return db.SnapshotAt(ctx, percolator.Timestamp(ts))
	}
	if t, err := time.Parse(time.RFC3339Nano, at); err == nil {
		return db.SnapshotAt(ctx, percolator.Timestamp(mvcc.TimestampAt(t.UnixMilli())))
	}
	ago, err := time.ParseDuration(at)
	if err != nil || ago < 0 {
		return nil, usagef(nil, "--at %s: neither a timestamp, nor a time such as 2026-01-31T12:00:00Z, nor a duration such as 5m", at)
	}
	// The oracle's clock counts, not this machine's: go back from a timestamp of now.
	now, err := db.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	then := mvcc.TimestampAt(mvcc.Timestamp(now.Timestamp()).Millis() - ago.Milliseconds())
	if err := now.Close(); err != nil {
		return nil, err
	}
	return db.SnapshotAt(ctx, percolator.Timestamp(then))
}

// get prints what is there before it fails for what is not: half an answer is better than none.
func (r *run) get(ctx context.Context, s *percolator.Snapshot, table, row string, columns []string) error {
	cells, err := readRow(ctx, s, table, row, columns)
	if err != nil {
		return err
	}
	if len(columns) == 1 && r.output == outputTable && len(cells) == 1 {
		out := r.App.Stdout // a file or a pipe gets the value as it is
		if r.atTerminal(out) {
			out = r.Stdout
		}
		_, err := fmt.Fprintf(out, "%s\n", cells[0].Value)
		return err
	}
	if err := r.cells(cells, false); err != nil {
		return err
	}
	if len(cells) == 0 || len(cells) < len(columns) {
		what := fmt.Sprintf("holds %d of the %d cells asked for", len(cells), len(columns))
		if len(columns) == 0 { // the whole row was asked for: there is nothing to count
			what = "holds no cells"
		}
		return &hintError{
			err:  fmt.Errorf("%w: row %s of table %s %s", errNoValue, printable(row), table, what),
			hint: r.suggest("history", "", operand{"TABLE", table}, operand{"ROW", row}) + " shows what the row ever held",
		}
	}
	return nil
}

// readRow reads the named columns in one message, or scans all of the row: one row never
// spans two tablets.
func readRow(ctx context.Context, s *percolator.Snapshot, table, row string, columns []string) ([]percolator.Cell, error) {
	if len(columns) > 0 {
		keys := make([]percolator.CellKey, len(columns))
		for i, c := range columns {
			keys[i] = percolator.CellKey{Row: row, Column: percolator.Column{Table: table, Name: c}}
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

// cells prints cells; full prints whole values in a table too.
func (r *run) cells(cells []percolator.Cell, full bool) error {
	if r.output == outputJSON {
		for _, c := range cells {
			if err := r.object(c); err != nil {
				return err
			}
		}
		return nil
	}
	if len(cells) == 0 {
		return nil
	}
	width := valueWidth
	if full {
		width = 0
	}
	var g grid
	g.add("ROW", "COLUMN", "COMMITTED AT", "VALUE")
	for _, c := range cells {
		g.add(printable(c.Row), printable(c.Column.Name), fmt.Sprint(uint64(c.CommitTS)), shortened(string(c.Value), width))
	}
	return g.write(r.Stdout)
}

// setCommand writes blindly: it reads nothing, so it conflicts only with writers of the
// same cells at the same time.
func (r *run) setCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "set TABLE ROW COLUMN VALUE [COLUMN VALUE...]",
		Short:   "Write cells of a row in one transaction",
		Example: r.example("set bank bob balance 10", "set bank bob photo -"),
		Long: `Write cells of one row in one transaction, and print its commit timestamp. A single VALUE of - is read from standard
input, as it is.`,
		Args: argsBetween(4, -1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args)%2 != 0 {
				return usagef(cmd, "the last column has no value: usage is %s", cmd.UseLine())
			}
			names, err := r.input.all(args[1:3])
			if err != nil {
				return err
			}
			writes, err := r.writes(cmd, args[2:])
			if err != nil {
				return err
			}
			return r.change(cmd, func(tx *percolator.Tx) {
				for _, w := range writes {
					tx.Set(names[0], percolator.Column{Table: args[0], Name: w.column}, w.value)
				}
			})
		},
	}
	return r.withInput(r.withClient(cmd))
}

// columnValue is one COLUMN VALUE pair.
type columnValue struct {
	column string
	value  []byte
}

// writes pairs up the arguments. Limits are not checked here: the client and the tablet
// do, with typed errors. A column that is given twice is refused: one of its values would
// be lost.
func (r *run) writes(cmd *cobra.Command, args []string) ([]columnValue, error) {
	var writes []columnValue
	given := map[string]bool{}
	for i := 0; i < len(args); i += 2 {
		column, err := r.input.bytes(args[i])
		if err != nil {
			return nil, err
		}
		if given[column] {
			return nil, usagef(cmd, "column %s is given twice: give it one value", printable(column))
		}
		given[column] = true
		if len(args) == 2 && args[i+1] == "-" {
			value, err := io.ReadAll(io.LimitReader(r.Stdin, 8<<20)) // above every limit: the node says which
			if err != nil {
				return nil, fmt.Errorf("standard input: %w", err)
			}
			return []columnValue{{column, value}}, nil
		}
		value, err := r.input.bytes(args[i+1])
		if err != nil {
			return nil, err
		}
		writes = append(writes, columnValue{column, []byte(value)})
	}
	return writes, nil
}

// deleteCommand wants columns by name; --all is spelled out, since a forgotten column
// must not empty a row.
func (r *run) deleteCommand() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:     "delete TABLE ROW {COLUMN... | --all}",
		Short:   "Delete cells of a row in one transaction",
		Example: r.example("delete bank bob balance", "delete bank bob --all"),
		Args:    argsBetween(2, -1),
		RunE: func(cmd *cobra.Command, args []string) error {
			names, err := r.input.all(args[1:])
			if err != nil {
				return err
			}
			row, columns := names[0], names[1:]
			if all == (len(columns) > 0) {
				return usagef(cmd, "name columns, or give --all for every column of the row")
			}
			if !all {
				return r.change(cmd, func(tx *percolator.Tx) {
					for _, c := range columns {
						tx.Delete(row, percolator.Column{Table: args[0], Name: c})
					}
				})
			}
			return r.deleteRow(cmd, args[0], row)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "delete every column of the row")
	return r.withInput(r.withClient(cmd))
}

// deleteRow deletes what the transaction's own snapshot shows in the row.
func (r *run) deleteRow(cmd *cobra.Command, table, row string) error {
	return r.transact(cmd, func(ctx context.Context, tx *percolator.Tx) error {
		for cell, err := range tx.Scan(ctx, percolator.Rows(table).From(row).Before(row+"\x00")) {
			if err != nil {
				return err
			}
			tx.Delete(row, cell.Column)
		}
		return nil
	})
}

// change runs writes that read nothing.
func (r *run) change(cmd *cobra.Command, fn func(*percolator.Tx)) error {
	return r.transact(cmd, func(_ context.Context, tx *percolator.Tx) error {
		fn(tx)
		return nil
	})
}

// transact runs one transaction and prints its commit timestamp.
func (r *run) transact(cmd *cobra.Command, fn func(context.Context, *percolator.Tx) error) error {
	return r.talk(cmd, func(ctx context.Context, s *session) error {
		var at percolator.Timestamp
		if err := s.db.Transact(ctx, fn, percolator.CommittedAt(&at), percolator.Name("cli")); err != nil {
			return err
		}
		if r.output == outputJSON {
			return r.object(struct {
				CommitTS percolator.Timestamp `json:"commit_ts"`
			}{at})
		}
		return r.print("committed at %d", uint64(at))
	})
}
