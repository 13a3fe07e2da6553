package cells

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/cli/shell"
	"github.com/percolator-go/percolator/internal/inspect"
	"github.com/percolator-go/percolator/internal/pbjson"
)

// The commands for tables use the library.

// TableCommand groups the commands for tables.
func TableCommand(d *shell.Deps) *cobra.Command {
	return shell.Group("table", "Create, change, drop and list tables",
		"table create bank\ntable ls",
		tableCreate(d), tableSet(d), tableDrop(d), tableList(d))
}

// tableCreate is idempotent, as CreateTable is, so that a script may run it twice.
func tableCreate(d *shell.Deps) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "create NAME [--split ROW]...",
		Short: "Create a table, or add missing splits to an existing one",
		Long: `Create a table. An existing table keeps its rows and gains missing splits.

With many splits the tablets are created in groups, and ` + "`jobs`" + ` shows the progress. There is no time
limit unless --timeout is given; the command fails if no tablet can be created for 30 seconds. After a
failure the same command creates the remaining tablets; until then they count towards
split-max-tablets. ` + "`table drop`" + ` discards them.

With --expire-after, cells are deleted once they are that old, in all columns or in COLUMN; see
` + "`table set`" + `, which changes that of an existing table.`,
		Example: "table create bank\ntable create bank --split g --split p\n" +
			"table create events --expire-after 90d --expire-after ip=30d",
	}
	in, expiry := shell.AddInput(cmd), addExpiry(cmd)
	splits := cmd.Flags().StringArray("split", nil, "a row at which a tablet begins; repeatable")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		keys, err := in.All(*splits)
		if err != nil {
			return err
		}
		expire, err := expiry.parse(cmd, in)
		if err != nil {
			return err
		}
		run := d.Conn.Run
		if len(keys) > 0 && !cmd.Flags().Changed("timeout") {
			run = d.Conn.RunLong
		}
		return run(cmd, func(ctx context.Context, s *shell.Session) error {
			spec := percolator.TableSpec{Name: args[0], SplitKeys: keys, Expiry: expire}
			return d.Out.Done(s.DB.CreateTable(ctx, spec), "table %s is ready", args[0])
		})
	}
	return d.WithClient(cmd)
}

// tableDrop needs confirmation, because it cannot be undone. --if-exists makes it idempotent.
func tableDrop(d *shell.Deps) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "drop NAME --yes",
		Short: "Drop a table and its contents",
		Long: `Drop a table with all its rows and their history; only a backup can restore it.
--yes confirms. At a terminal it may be omitted: the command then asks for the
table's name.`,
		Example: "table drop bank --yes\ntable drop bank --if-exists --yes",
	}
	ifExists := cmd.Flags().Bool("if-exists", false, "succeed if the table does not exist")
	d.Confirmed(cmd, "dropping table %s permanently removes all its rows")
	return d.ClientCommand(cmd, func(ctx context.Context, s *shell.Session, args []string) error {
		// Only for the note: an error does not prevent the drop, which may be allowed without this
		// permission.
		granted, _ := s.Admin.Grants(ctx, &pb.GrantsRequest{Table: args[0]})
		err := s.DB.DropTable(ctx, args[0])
		if err != nil && !(*ifExists && errors.Is(err, percolator.ErrNoTable)) {
			return err
		}
		if n := len(granted.GetGrants()); n > 0 && err == nil {
			d.Out.Note("the %[2]d grants of table %[1]s are dropped with it: a new table "+
				"of this name is open to all clients, until %[3]s restricts it", inspect.Printable(args[0]), n,
				d.Out.Advice("`grant`"))
		}
		return d.Out.Done(nil, "table %s is dropped", args[0])
	})
}

// tableList lists tables with the splits requested by table create and tablet split. `tablet ls`
// lists the current tablets.
func tableList(d *shell.Deps) *cobra.Command {
	return d.ClientCommand(&cobra.Command{
		Use:     "ls",
		Short:   "List the tables",
		Example: "table ls",
	}, func(ctx context.Context, s *shell.Session, _ []string) error {
		tables, err := s.Client.Tables(ctx)
		if err != nil {
			return err
		}
		list := d.Out.Listing("TABLE, EXPIRES AFTER, SPLITS")
		for _, t := range tables {
			splits, keys := make([]pbjson.Bytes, len(t.SplitKeys)), make([]string, len(t.SplitKeys))
			for i, key := range t.SplitKeys {
				splits[i], keys[i] = pbjson.Bytes(key), string(key)
			}
			from, shown := t.Restoring.GetSource(), shell.JoinRows(keys)
			if from != "" {
				shown += " (being restored from " + inspect.Printable(from) + ": run the restore again " +
					"to finish it)"
			}
			list.Add(struct {
				Name      string         `json:"name"`
				Splits    []pbjson.Bytes `json:"split_keys"`
				Expiry    []expiryOut    `json:"expiry,omitempty"`
				Restoring string         `json:"restoring,omitempty"`
			}{t.Name, splits, expiryOuts(t.Expiry), from}, inspect.Printable(t.Name), expiryText(t.Expiry),
				strings.TrimSpace(shown))
		}
		return list.End()
	})
}
