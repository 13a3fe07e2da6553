package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/inspect"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// The commands about notifications walk the notify group of the tablets, as scanners do,
// and mark single rows as changed. observer replay (backfill.go) is about all rows.

// errNoObserver is returned for names that are not in the catalogue.
var errNoObserver = errors.New("no such observer")

// notifyCommand holds the commands about notifications.
func notifyCommand(d *deps) *cobra.Command {
	return group("notify", "List and replay notifications",
		"notify ls --parked\nnotify replay count --all-parked", notifyList(d),
		notifyReplay(d))
}

// notifyLister is one run of notify ls.
type notifyLister struct {
	limit    int
	parked   bool
	observer string
	row      *string // nil: all
	names    *names
	now      mvcc.Timestamp
}

// notifyList shows the notify group: what a scanner would find, and what it passes over
// because it is parked.
func notifyList(d *deps) *cobra.Command {
	l := &notifyLister{}
	cmd := &cobra.Command{
		Use: "ls [OBSERVER [ROW]]",
		Short: "List the notifications that wait for their observer, and those that were given " +
			"up (parked)",
		Long: `List notifications: rows whose observed column has changed and whose observer has
not run for it yet, as they are stored. A run that fails is tried again; after too many failures
its notification is parked with the last error, until ` + "`notify replay`" + ` or a newer
change. SINCE is how long ago the cell changed, or was parked. A table may stand in the place of
OBSERVER: all of its observers.`,
		Example: "notify ls\n" +
			"notify ls count --parked\n" +
			"notify ls count bob -o json",
	}
	addLimit(cmd, &l.limit, 1, "most entries")
	cmd.Flags().BoolVar(&l.parked, "parked", false, "only those that were given up")
	cmd.Flags().StringVar(&l.observer, "observer", "", "only this observer's")
	in := addInput(cmd)
	return d.client(cmd, func(ctx context.Context, s *session, args []string) error {
		for _, text := range args[min(1, len(args)):] {
			row, err := in.bytes(text)
			if err != nil {
				return err
			}
			l.row = &row
		}
		return l.run(ctx, s, cmd, args)
	})
}

// notifyJSON is a notification in JSON.
type notifyJSON struct {
	Cell     *inspect.Cell `json:"cell"`
	Observer string        `json:"observer"`
	entryJSON
}

// run walks the notify group column by column, as it is stored: the observed column comes
// first in its keys.
func (l *notifyLister) run(ctx context.Context, s *session, cmd *cobra.Command,
	args []string) error {
	names, catalogue, err := s.schema(ctx)
	if err != nil {
		return err
	}
	table := ""
	if len(args) > 0 {
		if inspect.FindObserver(catalogue, args[0]) != nil {
			if l.observer != "" && l.observer != args[0] {
				return usagef(cmd, "both %s and --observer %s: name one observer", printable(args[0]),
					printable(l.observer))
			}
			l.observer = args[0]
		} else if _, err := names.table(args[0]); err == nil {
			table = args[0]
		} else {
			return withHint(fmt.Errorf("there is neither an observer nor a table %s",
				printable(args[0])), knownObservers)
		}
	}
	if l.observer != "" && inspect.FindObserver(catalogue, l.observer) == nil {
		return noObserver(l.observer)
	}
	l.names = names
	if l.now, err = s.now(ctx); err != nil {
		return err
	}
	list := s.out.listing("TABLE, ROW, COLUMN, OBSERVER, CHANGED AT, FAILED RUNS, STATE, SINCE, "+
		"LAST ERROR", 5)
	for _, o := range catalogue.GetObservers() {
		if table != "" && o.TableName != table || l.observer != "" && o.Name != l.observer {
			continue
		}
		for e, err := range s.client.WalkColumn(ctx, mvcc.GroupNotify, mvcc.TableID(o.Table),
			string(o.Column)) {
			if err != nil {
				return err
			}
			if l.parked && e.GetNotify().GetParkedTs() == 0 ||
				l.row != nil && string(e.GetCell().GetRow()) != *l.row {
				continue
			}
			if list.entries == l.limit {
				s.out.cut(l.limit)
				return list.end()
			}
			out := notifyJSON{inspect.NewCell(e.Cell, names.byID), o.Name, newEntryJSON(e.GetNotify())}
			list.add(out, l.line(o.Name, e)...)
		}
	}
	return list.end()
}

// line is an entry's line in the table.
func (l *notifyLister) line(observer string, e *pb.WalkEntry) []any {
	n := e.GetNotify()
	state, since := "waiting", n.GetTs()
	if n.GetReplay() {
		state = "replay"
	}
	if n.GetParkedTs() != 0 {
		state, since = fmt.Sprintf("parked @ %d", n.GetParkedTs()), n.GetParkedTs()
	}
	fault := ""
	if n.GetError() != "" {
		fault = shortened(firstLine(n.GetError()), valueWidth)
	}
	return []any{
		l.names.byID(e.GetCell().GetTable()), shortened(string(e.GetCell().GetRow()), valueWidth/2),
		columnText(e.Cell), printable(observer), n.GetTs(), n.GetAttempts(),
		state,
		ago(mvcc.Timestamp(since), l.now), fault,
	}
}

// noObserver returns the error for a name that the catalogue does not have.
func noObserver(name string) error {
	return withHint(fmt.Errorf("%w: %s", errNoObserver, printable(name)), knownObservers)
}

// firstLine cuts a panic's stack off its message.
func firstLine(text string) string {
	line, _, more := strings.Cut(text, "\n")
	if more {
		line += " …"
	}
	return line
}

// notifyReplay has an observer run again for one row or all parked ones, whatever it has
// acknowledged.
func notifyReplay(d *deps) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "replay OBSERVER {ROW | --all-parked}",
		Short: "Run an observer once more for a row, or for all rows that it gave up",
		Long: `Mark a row as changed for an observer, once, whatever it has acknowledged: it
runs for it again, and a parked notification begins anew with no failures counted. --all-parked
does so for every parked notification of the observer. ` + "`observer replay`" + ` is for all
rows.`,
		Example: "notify replay count bob\nnotify replay count --all-parked",
	}
	in := addInput(cmd)
	allParked := cmd.Flags().Bool("all-parked", false, "all notifications that were given up")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *allParked == (len(args) > 1) {
			return usagef(cmd, "name a ROW, or give --all-parked")
		}
		rows, err := in.all(args[1:])
		if err != nil {
			return err
		}
		return d.conn.runLong(cmd, func(ctx context.Context, s *session) error {
			return replayNotifications(ctx, s, args[0], rows)
		})
	}
	return d.withClient(cmd)
}

// replayNotifications marks one row, or what is parked if rows is empty.
func replayNotifications(ctx context.Context, s *session, observer string,
	rows []string) error {
	catalogue, err := s.transport.Catalogue(ctx)
	if err != nil {
		return err
	}
	// Check the name here: tablets know only columns, not observers.
	o := inspect.FindObserver(catalogue, observer)
	switch {
	case o == nil:
		return noObserver(observer)
	case o.Retired:
		return withHint(fmt.Errorf("observer %s is being retired", printable(observer)),
			"start a program that registers it, then replay")
	}
	marked := uint64(1)
	if len(rows) > 0 {
		err = replayRow(ctx, s, o, rows[0])
	} else if marked, err = replayParked(ctx, s, observer); err != nil {
		err = fmt.Errorf("after %d notifications: %w", marked, err)
	}
	if err != nil {
		return err
	}
	return s.out.answer(struct {
		Observer string `json:"observer"`
		Replayed uint64 `json:"replayed"`
	}{observer, marked}, "%d rows will be run again by %s", marked, printable(observer))
}

// replayParked marks what is parked, and shows how far it has come of what was parked when it
// began.
func replayParked(ctx context.Context, s *session, observer string) (marked uint64, err error) {
	t := tally{}
	all, err := s.transport.Observers(ctx)
	for _, o := range all { // without an answer there is no total
		if err == nil && o.GetInfo().GetName() == observer {
			t.Total = int64(o.Parked)
		}
	}
	m := s.out.newMeter("replay of "+printable(observer), tally{}, false)
	marked, err = s.client.ReplayParked(ctx, observer, func(replayed uint64) {
		t.Rows = int64(replayed)
		m.show(t)
	})
	if err == nil {
		m.end(t, "done")
	}
	return marked, err
}

// replayRow marks one row. It refuses a row whose observed cell was never written: the
// name is probably wrong. The cell of a weak observer is never written.
func replayRow(ctx context.Context, s *session, o *pb.ObserverInfo,
	row string) error {
	cell := mvcc.Cell{Table: mvcc.TableID(o.Table), Row: row, Column: string(o.Column)}
	if !o.Weak {
		entries, err := inspect.Row(ctx, s.client, cell.Table, row, 0, cell)
		if err != nil {
			return err
		}
		if inspect.NewestWrite(entries, wire.CellPB(cell)) == nil {
			return withHint(fmt.Errorf("%w: row %s was never written in column %s of table %s",
				errNoValue, printable(row), printable(cell.Column), printable(o.TableName)),
				rowsThatExist, operand{"TABLE", o.TableName})
		}
	}
	return s.client.Replay(ctx, 0, []mvcc.Cell{cell})
}
