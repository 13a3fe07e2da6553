package cells

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/cli/shell"
	"github.com/percolator-go/percolator/internal/inspect"
	"github.com/percolator-go/percolator/internal/pbjson"
)

// The commands for tables, the expiry of their cells and their columns use the library. Deletion of a
// column needs the same role and grant as delete, and is audited in the same way.

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

// never is the age of cells that do not expire.
const never = "never"

// expiryFlag is --expire-after.
type expiryFlag struct{ ages []string }

func addExpiry(cmd *cobra.Command) *expiryFlag {
	f := &expiryFlag{}
	cmd.Flags().StringArrayVar(&f.ages, "expire-after", nil,
		"AGE (30d, 12h, never) at which cells are deleted, or COLUMN=AGE for one column; repeatable")
	return f
}

// parse returns the expiry. The last = of a value ends the column's name.
func (f *expiryFlag) parse(cmd *cobra.Command, in *shell.InputFlags) (e percolator.Expiry, err error) {
	for _, one := range f.ages {
		at := strings.LastIndexByte(one, '=')
		age, ok := shell.ParseAge(one[at+1:])
		if one[at+1:] == never {
			age, ok = 0, true
		} else if age < time.Second {
			ok = false
		}
		if !ok {
			return e, shell.Usagef(cmd, "--expire-after %s: give an age of at least 1s, such as 30d, or never, for all columns or as COLUMN=AGE",
				one)
		}
		if at < 0 {
			e.After = age
			continue
		}
		column, err := in.Bytes(one[:at])
		if err != nil {
			return e, err
		}
		if e.Columns == nil {
			e.Columns = map[string]time.Duration{}
		}
		e.Columns[column] = age
	}
	return e, nil
}

// tableSet replaces the whole expiry: the command line is the complete new setting.
func tableSet(d *shell.Deps) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "set NAME --expire-after AGE...",
		Short: "Change after which age a table's cells expire",
		Long: `Replace the expiry of a table's cells by what is given: AGE for all columns, COLUMN=AGE for one.
never ends it. Cells that are older are then deleted in transactions of the cluster's own; observers see
deletions, and snapshots keep what they have seen. A cell is deleted up to a twentieth of its age late, and
at most an hour, if the deletions keep up; ` + "`doctor`" + ` and metrics report their lag.`,
		Example: "table set events --expire-after 90d --expire-after ip=30d\n" +
			"table set events --expire-after never",
	}
	in, expiry := shell.AddInput(cmd), addExpiry(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(expiry.ages) == 0 {
			return shell.Usagef(cmd, "give --expire-after")
		}
		expire, err := expiry.parse(cmd, in)
		if err != nil {
			return err
		}
		return d.Conn.Run(cmd, func(ctx context.Context, s *shell.Session) error {
			return d.Out.Done(s.DB.SetExpiry(ctx, args[0], expire), "table %s is changed", args[0])
		})
	}
	return d.WithClient(cmd)
}

// expiryOut is the age of one column, or of all others, in JSON.
type expiryOut struct {
	Column  *pbjson.Bytes `json:"column,omitempty"` // nil: all others
	AfterMs uint64        `json:"after_ms"`         // 0: never
}

func expiryOuts(e *pb.TableExpiry) (out []expiryOut) {
	for _, c := range e.GetColumns() {
		name := pbjson.Bytes(c.Column)
		out = append(out, expiryOut{&name, c.AfterMs})
	}
	if e.GetAfterMs() != 0 {
		out = append(out, expiryOut{nil, e.AfterMs})
	}
	return out
}

// expiryText lists the ages as the flag takes them.
func expiryText(e *pb.TableExpiry) string {
	var out []string
	if e.GetAfterMs() != 0 {
		out = append(out, ageText(e.AfterMs))
	}
	for _, c := range e.GetColumns() {
		out = append(out, inspect.Printable(string(c.Column))+"="+ageText(c.AfterMs))
	}
	return strings.Join(out, ", ")
}

// ageText formats an age, in days where they are whole.
func ageText(ms uint64) string {
	age := time.Duration(ms) * time.Millisecond
	switch day := 24 * time.Hour; {
	case ms == 0:
		return never
	case age%day == 0:
		return strconv.FormatInt(int64(age/day), 10) + "d"
	}
	return age.String()
}

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
