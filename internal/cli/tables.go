package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// The commands about tables go through the library, as a program's own calls would.

// tableCommand holds the commands about tables.
func tableCommand(d *deps) *cobra.Command {
	return group("table", "Create, drop and list tables",
		"table create bank\ntable ls",
		tableCreate(d), tableDrop(d), tableList(d))
}

// tableCreate is idempotent, as CreateTable is, so that a script may run twice.
func tableCreate(d *deps) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "create NAME [--split ROW]...",
		Short: "Create a table; an existing one stays, and gets the splits it lacks",
		Long: `Create a table. An existing one stays as it is, and gets the splits it lacks.

With many splits the tablets are created in groups, and ` + "`jobs`" + ` shows the progress. There is no time
limit unless --timeout is given; the command fails if no tablet can be created for 30 seconds. After a
failure the same command creates the remaining tablets; until then they count towards
split-max-tablets. ` + "`table drop`" + ` discards them.`,
		Example: "table create bank\ntable create bank --split g --split p",
	}
	in := addInput(cmd)
	splits := cmd.Flags().StringArray("split", nil, "a row at which a tablet begins; repeatable")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		keys, err := in.all(*splits)
		if err != nil {
			return err
		}
		run := d.conn.run
		if len(keys) > 0 && !cmd.Flags().Changed("timeout") {
			run = d.conn.runLong
		}
		return run(cmd, func(ctx context.Context, s *session) error {
			spec := percolator.TableSpec{Name: args[0], SplitKeys: keys}
			if err := s.db.CreateTable(ctx, spec); err != nil {
				return err
			}
			return d.out.done("table %s is there", args[0])
		})
	}
	return d.withClient(cmd)
}

// tableDrop needs confirmation, since it can't be undone. --if-exists makes it
// idempotent.
func tableDrop(d *deps) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "drop NAME --yes",
		Short: "Drop a table and all it holds",
		Long: `Drop a table with all its rows and their history; there is no way back but a
backup. --yes says that it is meant. At a terminal it may be left out: the command then asks for
the table's name once more.`,
		Example: "table drop bank --yes\ntable drop bank --if-exists --yes",
	}
	ifExists := cmd.Flags().Bool("if-exists", false, "a missing table is no failure")
	d.confirmed(cmd, "dropping table %s removes all its rows for good")
	return d.client(cmd, func(ctx context.Context, s *session, args []string) error {
		// Asked for the note alone: a drop does not wait for it, and may be allowed without.
		granted, _ := s.admin.Grants(ctx, &pb.GrantsRequest{Table: args[0]})
		err := s.db.DropTable(ctx, args[0])
		if err != nil && !(*ifExists && errors.Is(err, percolator.ErrNoTable)) {
			return err
		}
		if n := len(granted.GetGrants()); n > 0 && err == nil {
			d.out.note("the grants of table %s, %d in all, are dropped with it: a table that is made "+
				"under its name is for all clients, until %s names some", printable(args[0]), n,
				d.out.advice("`grant`"))
		}
		return d.out.done("table %s is dropped", args[0])
	})
}

// tableList shows the split keys that tables were created with, not where tablets begin
// now: that is `tablet ls`.
func tableList(d *deps) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "ls",
		Short:   "List the tables",
		Example: "table ls",
	}
	return d.client(cmd, func(ctx context.Context, s *session, _ []string) error {
		tables, err := s.client.Tables(ctx)
		if err != nil {
			return err
		}
		list := d.out.listing("TABLE, SPLITS")
		for _, t := range tables {
			splits, keys := make([]jsonBytes, len(t.SplitKeys)), make([]string, len(t.SplitKeys))
			for i, key := range t.SplitKeys {
				splits[i], keys[i] = jsonBytes(key), string(key)
			}
			from, shown := t.Restoring.GetSource(), joinRows(keys)
			if from != "" {
				shown += " (being restored from " + printable(from) + ": run the restore again " +
					"to finish it)"
			}
			list.add(struct {
				Name      string      `json:"name"`
				Splits    []jsonBytes `json:"split_keys"`
				Restoring string      `json:"restoring,omitempty"`
			}{t.Name, splits, from}, printable(t.Name), strings.TrimSpace(shown))
		}
		return list.end()
	})
}

// joinRows lists the first few rows.
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
