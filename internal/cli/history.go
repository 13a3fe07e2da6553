package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
)

// errNoAnswer: a tablet answered with something else than what was asked.
var errNoAnswer = errors.New("the node's answer makes no sense")

// historyCommand is the system's debugger: it reads one row in every group, as it is stored.
func (r *run) historyCommand() *cobra.Command {
	view := &historyView{}
	cmd := &cobra.Command{
		Use:     "history TABLE ROW",
		Short:   "Show every version of a row: data, locks, write records, notifications, acknowledgments",
		Example: r.example("history bank bob", "history bank bob --times --full"),
		Long: `Show all that a row holds, laid out as Figure 4 of the Percolator paper does: a block for each column with its data,
lock and write columns (and notify and ack columns where an observer watches it), one line for each timestamp, newest
first. "8: data @ 7" in the write column says: committed at 8, by the transaction that started, and wrote its data, at 7.

It reads what is stored, past locks and without resolving them, and so changes nothing.`,
		Args: argsBetween(2, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			row, err := r.input.bytes(args[1])
			if err != nil {
				return err
			}
			view.row = row
			return r.talk(cmd, func(ctx context.Context, s *session) error {
				return r.history(ctx, s, args[0], view)
			})
		},
	}
	flags := cmd.Flags()
	addLimit(cmd, &view.limit, 1, "most entries")
	flags.BoolVar(&view.full, "full", false, "whole values")
	flags.BoolVar(&view.times, "times", false, "also show the timestamps' physical part, in UTC")
	return r.withInput(r.withClient(cmd))
}

// history asks the row's tablet, and meta for the observers whose notify and ack columns
// belong to the picture.
func (r *run) history(ctx context.Context, s *session, table string, view *historyView) error {
	names, err := loadNames(ctx, s)
	if err != nil {
		return err
	}
	id, err := names.table(table)
	if err != nil {
		return err
	}
	catalogue, err := s.transport.Catalogue(ctx)
	if err != nil {
		return err
	}
	entries, err := rowHistory(ctx, s, id, view.row, view.limit+1)
	if err != nil {
		return err
	}
	if len(entries) > view.limit {
		entries = entries[:view.limit]
		defer r.cut(view.limit) // after the entries
	} else if bounded(entries) {
		defer r.cutRow()
	}
	view.names, view.observed, view.entries = names, observedColumns(catalogue, id), entries
	if r.output == outputJSON {
		for _, e := range view.entries {
			if err := r.object(historyObject(e, names)); err != nil {
				return err
			}
		}
	} else if err := view.write(r.Stdout); err != nil {
		return err
	}
	if len(view.entries) == 0 {
		return &hintError{
			err:  fmt.Errorf("%w: table %s holds nothing in row %s", errNoValue, table, printable(view.row)),
			hint: r.rowsThatExist(table),
		}
	}
	return nil
}

// rowsThatExist is advice for a row that was not found.
func (r *run) rowsThatExist(table string) string {
	return r.suggest("scan", "--limit 10", operand{"TABLE", table}) + " shows rows that exist; --escape go or --hex writes any bytes"
}

// bounded reports whether a tablet may have more of the row than it has answered,
// whatever --limit is.
func bounded(entries []*pb.HistoryEntry) bool {
	groups, bytes := map[uint32]int{}, 0
	for _, e := range entries {
		groups[e.Group]++
		bytes += len(e.Value)
		if groups[e.Group] > mvcc.MaxHistory {
			return true
		}
	}
	return bytes >= mvcc.HistoryBytes
}

// cutRow says so.
func (r *run) cutRow() {
	r.note("all that a node shows of one row, which are %d entries of a kind and %d MiB of values; it may have more",
		mvcc.MaxHistory, mvcc.HistoryBytes>>20)
}

// observedColumns maps the observers of one table to the columns that they observe.
func observedColumns(c *pb.Catalogue, table mvcc.TableID) map[string]string {
	observed := map[string]string{}
	for _, o := range c.GetObservers() {
		if o.Table == uint32(table) && !o.Retired {
			observed[o.Name] = string(o.Column)
		}
	}
	return observed
}
