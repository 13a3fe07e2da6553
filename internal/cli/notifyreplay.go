package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// notifyReplay makes an observer run once more for rows that are named, whatever it has
// acknowledged for them.
func (r *run) notifyReplay() *cobra.Command {
	var allParked bool
	cmd := &cobra.Command{
		Use:   "replay OBSERVER {ROW | --all-parked}",
		Short: "Run an observer once more for a row, or for all rows that it gave up",
		Long: `Mark a row as changed for an observer, once, whatever it has acknowledged: it runs for it again, and a parked
notification begins anew with no failures counted. --all-parked does so for every parked notification of the observer.
` + "`observer replay`" + ` is for all rows.`,
		Example: r.example("notify replay count bob", "notify replay count --all-parked"),
		Args:    argsBetween(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if allParked == (len(args) > 1) {
				return usagef(cmd, "name a ROW, or give --all-parked")
			}
			rows, err := r.input.all(args[1:])
			if err != nil {
				return err
			}
			return r.talkLong(cmd, func(ctx context.Context, s *session) error {
				return r.replayNotifications(ctx, s, args[0], rows)
			})
		},
	}
	cmd.Flags().BoolVar(&allParked, "all-parked", false, "all notifications that were given up")
	return r.withInput(r.withClient(cmd))
}

// replayNotifications marks one row, or what is parked if rows is empty.
func (r *run) replayNotifications(ctx context.Context, s *session, observer string, rows []string) error {
	catalogue, err := s.transport.Catalogue(ctx)
	if err != nil {
		return err
	}
	// A name that is unknown, or on its way out, is found here and not by a tablet: the
	// tablet knows columns only.
	o := findObserver(catalogue, observer)
	switch {
	case o == nil:
		return r.noObserver(observer)
	case o.Retired:
		return &hintError{err: fmt.Errorf("observer %s is being retired", printable(observer)), hint: "start a program that registers it, then replay"}
	}
	marked := uint64(1)
	if len(rows) > 0 {
		err = r.replayRow(ctx, s, o, rows[0])
	} else if marked, err = s.client.ReplayParked(ctx, observer); err != nil {
		err = fmt.Errorf("after %d notifications: %w", marked, err)
	}
	if err != nil {
		return err
	}
	if r.output == outputJSON {
		return r.object(struct {
			Observer string `json:"observer"`
			Replayed uint64 `json:"replayed"`
		}{observer, marked})
	}
	return r.print("%d rows will be run again by %s", marked, printable(observer))
}

// replayRow marks one row. A strong observer runs for changes of a cell: where there was
// never one, the name is more likely wrong than meant.
func (r *run) replayRow(ctx context.Context, s *session, o *pb.ObserverInfo, row string) error {
	cell := mvcc.Cell{Table: mvcc.TableID(o.Table), Row: row, Column: string(o.Column)}
	if !o.Weak {
		entries, err := rowHistory(ctx, s, cell.Table, row, 0, cell)
		if err != nil {
			return err
		}
		if newestWrite(entries, wire.CellPB(cell)) == nil {
			return &hintError{
				err:  fmt.Errorf("%w: row %s was never written in column %s of table %s", errNoValue, printable(row), printable(cell.Column), printable(o.TableName)),
				hint: r.rowsThatExist(o.TableName),
			}
		}
	}
	return s.client.Replay(ctx, 0, []mvcc.Cell{cell})
}
