package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	percolator "github.com/percolator-go/percolator"
)

// tableCommand holds the commands about tables.
func (r *run) tableCommand() *cobra.Command {
	return group("table", "Create, drop and list tables", r.example("table create bank", "table ls"), r.tableCreate(), r.tableDrop(), r.tableList())
}

// tableCreate is idempotent, as CreateTable is, so that a script may run twice.
func (r *run) tableCreate() *cobra.Command {
	var splits []string
	cmd := &cobra.Command{
		Use:     "create NAME [--split ROW]...",
		Short:   "Create a table; an existing one stays, and gets the splits it lacks",
		Example: r.example("table create bank", "table create bank --split g --split p"),
		Args:    argsBetween(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			keys, err := r.input.all(splits)
			if err != nil {
				return err
			}
			return r.talk(cmd, func(ctx context.Context, s *session) error {
				if err := s.db.CreateTable(ctx, percolator.TableSpec{Name: args[0], SplitKeys: keys}); err != nil {
					return err
				}
				return r.done("table %s is there", args[0])
			})
		},
	}
	cmd.Flags().StringArrayVar(&splits, "split", nil, "a row at which a tablet begins; repeatable")
	return r.withInput(r.withClient(cmd))
}

// tableDrop can't be undone, so it wants to be meant. --if-exists makes it idempotent.
func (r *run) tableDrop() *cobra.Command {
	var ifExists, yes bool
	cmd := &cobra.Command{
		Use:   "drop NAME --yes",
		Short: "Drop a table and all it holds",
		Long: `Drop a table with all its rows and their history; there is no way back but a backup. --yes says that it is meant. At a
terminal it may be left out: the command then asks for the table's name once more.`,
		Example: r.example("table drop bank --yes", "table drop bank --if-exists --yes"),
		Args:    argsBetween(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cost := fmt.Sprintf("dropping table %s removes all its rows for good", printable(args[0]))
			if err := r.confirm(cmd, yes, args[0], cost); err != nil {
				return err
			}
			return r.talk(cmd, func(ctx context.Context, s *session) error {
				err := s.db.DropTable(ctx, args[0])
				if ifExists && errors.Is(err, percolator.ErrNoTable) {
					err = nil
				}
				if err != nil {
					return err
				}
				return r.done("table %s is dropped", args[0])
			})
		},
	}
	cmd.Flags().BoolVar(&ifExists, "if-exists", false, "a missing table is no failure")
	cmd.Flags().BoolVar(&yes, "yes", false, "it is meant")
	return r.withClient(cmd)
}

// tableList shows the split keys that tables were created with, not where tablets begin
// now: that is `tablet ls`.
func (r *run) tableList() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List the tables",
		Example: r.example("table ls"),
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return r.talk(cmd, func(ctx context.Context, s *session) error {
				tables, err := s.db.Tables(ctx)
				if err != nil {
					return err
				}
				return r.tables(tables)
			})
		},
	}
	return r.withClient(cmd)
}

// tables prints a table, or an object a line.
func (r *run) tables(tables []percolator.TableSpec) error {
	var g grid
	g.add("TABLE", "SPLITS")
	for _, t := range tables {
		splits := make([]jsonBytes, len(t.SplitKeys))
		for i, key := range t.SplitKeys {
			splits[i] = jsonBytes(key)
		}
		if r.output == outputJSON {
			err := r.object(struct {
				Name   string      `json:"name"`
				Splits []jsonBytes `json:"split_keys"`
			}{t.Name, splits})
			if err != nil {
				return err
			}
			continue
		}
		g.add(printable(t.Name), joinRows(t.SplitKeys))
	}
	if r.output == outputJSON {
		return nil
	}
	return g.write(r.Stdout)
}

// joinRows lists rows, a few at most.
func joinRows(rows []string) string {
	const most = 6
	text := ""
	for i, row := range rows {
		if i == most {
			return fmt.Sprintf("%s … %d in all", text, len(rows))
		}
		if i > 0 {
			text += " "
		}
		text += shortened(row, valueWidth/2)
	}
	return text
}

// done confirms a change that has nothing else to show.
func (r *run) done(format string, args ...any) error {
	if r.output == outputJSON {
		return r.object(struct {
			Done bool `json:"done"`
		}{true})
	}
	return r.print(format, args...)
}
