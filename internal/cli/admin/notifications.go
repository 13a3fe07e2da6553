package admin

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/cli/shell"
	"github.com/percolator-go/percolator/internal/coded"
	"github.com/percolator-go/percolator/internal/inspect"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// The commands for notifications walk the notify group of the tablets, as scanners do, and mark single
// rows as changed. observer replay (backfill.go) marks all rows.

// NotifyCommand groups the commands for notifications.
func NotifyCommand(d *shell.Deps) *cobra.Command {
	return shell.Group("notify", "List and replay notifications",
		"notify ls --parked\nnotify replay count --all-parked", notifyList(d),
		notifyReplay(d))
}

// notifyLister is one run of notify ls.
type notifyLister struct {
	limit    int
	parked   bool
	observer string
	row      *string // nil: all
	names    *inspect.Names
	now      mvcc.Timestamp
}

// notifyList lists the notify group, including the parked notifications that scanners skip.
func notifyList(d *shell.Deps) *cobra.Command {
	l := &notifyLister{}
	cmd := &cobra.Command{
		Use:   "ls [OBSERVER [ROW]]",
		Short: "List pending and parked notifications",
		Long: `List notifications: rows whose observed column has changed and whose observer has
not run for it yet, as they are stored. A failed run is retried; after too many failures
its notification is parked with the last error, until ` + "`notify replay`" + ` or a newer
change. SINCE is the time since the cell changed, or was parked. OBSERVER may be the name of a
table: all of its observers.`,
		Example: "notify ls\n" +
			"notify ls count --parked\n" +
			"notify ls count bob -o json",
	}
	shell.AddLimit(cmd, &l.limit, 1, "maximum number of entries")
	cmd.Flags().BoolVar(&l.parked, "parked", false, "only parked notifications")
	cmd.Flags().StringVar(&l.observer, "observer", "", "only this observer's")
	shell.AddInputArgs(cmd)
	return d.ClientCommand(cmd, func(ctx context.Context, s *shell.Session, args []string) error {
		if len(args) > 1 {
			l.row = &args[1]
		}
		return l.run(ctx, s, cmd, args)
	})
}

// notifyJSON is a notification in JSON.
type notifyJSON struct {
	Cell     *inspect.Cell `json:"cell"`
	Observer string        `json:"observer"`
	*inspect.Notification
}

// run walks the notify group observer by observer, in the order of the catalogue, each in the order
// of rows.
func (l *notifyLister) run(ctx context.Context, s *shell.Session, cmd *cobra.Command,
	args []string) error {
	names, catalogue, err := s.Schema(ctx)
	if err != nil {
		return err
	}
	table := ""
	if len(args) > 0 {
		if inspect.FindObserver(catalogue, args[0]) != nil {
			if l.observer != "" && l.observer != args[0] {
				return shell.Usagef(cmd, "both %s and --observer %s: name one observer", inspect.Printable(args[0]),
					inspect.Printable(l.observer))
			}
			l.observer = args[0]
		} else if _, err := names.Table(args[0]); err == nil {
			table = args[0]
		} else {
			return shell.WithHint(fmt.Errorf("there is neither an observer nor a table %s",
				inspect.Printable(args[0])), shell.KnownObservers)
		}
	}
	if l.observer != "" && inspect.FindObserver(catalogue, l.observer) == nil {
		return shell.WithObservers(inspect.NoObserver(l.observer))
	}
	l.names = names
	if l.now, err = s.Client.Timestamp(ctx); err != nil {
		return err
	}
	list := s.Out.Listing("TABLE, ROW, COLUMN, OBSERVER, CHANGED AT, FAILED RUNS, STATE, SINCE, "+
		"LAST ERROR", 5)
	for _, o := range catalogue.GetObservers() {
		if table != "" && o.TableName != table || l.observer != "" && o.Name != l.observer {
			continue
		}
		for e, err := range s.Client.WalkColumn(ctx, mvcc.GroupNotify, wire.NotifyColumn(o)) {
			if err != nil {
				return err
			}
			if l.parked && e.GetNotify().GetParkedTs() == 0 ||
				l.row != nil && string(e.GetCell().GetRow()) != *l.row {
				continue
			}
			if list.Entries == l.limit {
				s.Out.NoteCut(l.limit)
				return list.End()
			}
			cell := wire.CellPB(wire.ColumnOf(o).Cell(string(e.Cell.GetRow())))
			out := notifyJSON{inspect.NewCell(cell, names), o.Name, inspect.NewNotification(e.GetNotify())}
			list.Add(out, l.line(o.Name, cell, e.GetNotify())...)
		}
	}
	return list.End()
}

// line returns an entry's line in the table.
func (l *notifyLister) line(observer string, cell *pb.Cell, n *pb.Notify) []any {
	state, since := "waiting", n.GetTs()
	if n.GetReplay() {
		state = "replay"
	}
	if n.GetParkedTs() != 0 {
		state, since = fmt.Sprintf("parked @ %d", n.GetParkedTs()), n.GetParkedTs()
	}
	fault := ""
	if n.GetError() != "" {
		fault = inspect.Shortened(inspect.FirstLine(n.GetError()), inspect.ValueWidth)
	}
	return []any{
		l.names.ByID(cell.GetTable()), inspect.Shortened(string(cell.GetRow()), inspect.ValueWidth/2),
		inspect.ColumnText(cell), inspect.Printable(observer), n.GetTs(), n.GetAttempts(),
		state,
		inspect.Ago(mvcc.Timestamp(since), l.now), fault,
	}
}

// notifyReplay runs an observer again for one row or all parked ones, whatever it has acknowledged.
func notifyReplay(d *shell.Deps) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "replay OBSERVER {ROW | --all-parked}",
		Short: "Run an observer again for a row, or for all of its parked rows",
		Long: `Mark a row as changed for an observer, once, whatever it has acknowledged: it
runs for it again, and the failure count of a parked notification is reset. --all-parked
does so for every parked notification of the observer. ` + "`observer replay`" + ` is for all
rows.`,
		Example: "notify replay count bob\nnotify replay count --all-parked",
	}
	shell.AddInputArgs(cmd)
	allParked := cmd.Flags().Bool("all-parked", false, "all parked notifications")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *allParked == (len(args) > 1) {
			return shell.Usagef(cmd, "name a ROW, or give --all-parked")
		}
		return d.Conn.RunLong(cmd, func(ctx context.Context, s *shell.Session) error {
			return replayNotifications(ctx, s, args[0], args[1:])
		})
	}
	return d.WithClient(cmd)
}

// replayNotifications marks one row, or all parked notifications if rows is empty.
func replayNotifications(ctx context.Context, s *shell.Session, observer string,
	rows []string) error {
	catalogue, err := s.Transport.Catalogue(ctx)
	if err != nil {
		return err
	}
	// Check the name here: a tablet has columns, not observers.
	o := inspect.FindObserver(catalogue, observer)
	switch {
	case o == nil:
		return shell.WithObservers(inspect.NoObserver(observer))
	case o.Retired:
		return shell.WithHint(fmt.Errorf("observer %s is being retired", inspect.Printable(observer)),
			"start a program that registers it, then replay")
	}
	marked := uint64(1)
	if len(rows) > 0 {
		err = replayRow(ctx, s, o, rows[0])
	} else if marked, err = replayParked(ctx, s, observer); err != nil {
		err = coded.Errorf("", "stopped after the replay of %d notifications: %w", marked, err)
	}
	if err != nil {
		return err
	}
	return s.Out.Answer(struct {
		Observer string `json:"observer"`
		Replayed uint64 `json:"replayed"`
	}{observer, marked}, "%d rows are queued again for %s", marked, inspect.Printable(observer))
}

// replayParked marks the parked notifications and displays the progress relative to their number at the
// start.
func replayParked(ctx context.Context, s *shell.Session, observer string) (marked uint64, err error) {
	t := shell.Tally{}
	all, err := s.Transport.Observers(ctx)
	for _, o := range all { // if the request failed, the meter shows no total
		if err == nil && o.GetInfo().GetName() == observer {
			t.Total = int64(o.Parked)
		}
	}
	m := s.Out.NewMeter("replay of "+inspect.Printable(observer), shell.Tally{}, false)
	marked, err = s.Client.ReplayParked(ctx, observer, func(replayed uint64) {
		t.Rows = int64(replayed)
		m.Show(t)
	})
	if err == nil {
		m.End(t, "done")
	}
	return marked, err
}

// replayRow marks one row. It refuses a row whose observed cell was never written: the
// name is probably wrong. The cell of a weak observer is never written.
func replayRow(ctx context.Context, s *shell.Session, o *pb.ObserverInfo,
	row string) error {
	cell := wire.ColumnOf(o).Cell(row)
	if !o.Weak {
		entries, err := inspect.Row(ctx, s.Client, cell.Table, row, 0, cell)
		if err != nil {
			return err
		}
		if inspect.NewestWrite(entries, wire.CellPB(cell)) == nil {
			return shell.WithHint(coded.Errorf("", "%w: row %s was never written in column %s of table %s",
				shell.ErrNoValue, inspect.Printable(row), inspect.Printable(cell.Column), inspect.Printable(o.TableName)),
				inspect.AdviceRows, inspect.Operand{What: "TABLE", Value: o.TableName})
		}
	}
	return s.Client.Replay(ctx, 0, []mvcc.Cell{wire.NotifyColumn(o).Cell(row)})
}
