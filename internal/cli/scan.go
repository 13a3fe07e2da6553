package cli

import (
	"context"

	"github.com/spf13/cobra"

	percolator "github.com/percolator-go/percolator"
)

// scanChunk is how many cells of a scan are laid out together.
const scanChunk = 1000

// scanFlags are the flags of scan.
type scanFlags struct {
	prefix, from, before, at string
	limit                    int
	reverse, full            bool
}

// scanCommand says so when it has not shown all: one row more than the limit is asked for.
func (r *run) scanCommand() *cobra.Command {
	f := &scanFlags{}
	cmd := &cobra.Command{
		Use:     "scan TABLE [COLUMN...]",
		Short:   "Read rows in order",
		Long:    "Read the cells of a range of rows in row order, in one snapshot. Without columns all of the table's.",
		Example: r.example("scan bank --prefix b --limit 10", "scan bank balance -o json --limit 0"),
		Args:    argsBetween(1, -1),
		RunE: func(cmd *cobra.Command, args []string) error {
			rows, err := r.rowRange(args[0], f)
			if err != nil {
				return err
			}
			names, err := r.input.all(args[1:])
			if err != nil {
				return err
			}
			columns := make([]percolator.Column, len(names))
			for i, name := range names {
				columns[i] = percolator.Column{Table: args[0], Name: name}
			}
			return r.talk(cmd, func(ctx context.Context, s *session) error {
				snapshot, err := openSnapshot(ctx, s.db, f.at)
				if err != nil {
					return err
				}
				defer func() { _ = snapshot.Close() }()
				return r.scan(ctx, snapshot, rows, columns, f)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.prefix, "prefix", "", "only rows that begin so (--escape applies)")
	flags.StringVar(&f.from, "from", "", "only rows from this one on")
	flags.StringVar(&f.before, "before", "", "only rows before this one")
	flags.BoolVar(&f.reverse, "reverse", false, "last row first")
	addLimit(cmd, &f.limit, 0, "most rows; 0: all")
	flags.BoolVar(&f.full, "full", false, "whole values in the table")
	addAt(cmd, &f.at)
	return r.withInput(r.withClient(cmd))
}

// rowRange narrows the table's rows by what was given; the bounds are written as rows are
// (--escape).
func (r *run) rowRange(table string, f *scanFlags) (percolator.RowRange, error) {
	rows := percolator.Rows(table)
	if f.limit > 0 {
		rows = rows.Limit(f.limit + 1)
	}
	bounds, err := r.input.all([]string{f.prefix, f.from, f.before})
	if err != nil {
		return rows, err
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
	if f.reverse {
		rows = rows.Reverse()
	}
	return rows, nil
}

// scan prints as it reads, so that a long scan holds one chunk of cells at a time.
func (r *run) scan(ctx context.Context, s *percolator.Snapshot, rows percolator.RowRange, columns []percolator.Column, f *scanFlags) error {
	chunk := make([]percolator.Cell, 0, scanChunk)
	seen, row, more := 0, "", false
	for cell, err := range s.Scan(ctx, rows, columns...) {
		if err != nil {
			return err
		}
		if seen == 0 || cell.Row != row {
			seen, row = seen+1, cell.Row
		}
		if more = f.limit > 0 && seen > f.limit; more {
			break
		}
		if chunk = append(chunk, cell); len(chunk) == scanChunk {
			if err := r.cells(chunk, f.full); err != nil {
				return err
			}
			chunk = chunk[:0]
		}
	}
	err := r.cells(chunk, f.full)
	if more {
		r.cut(f.limit)
	}
	return err
}
