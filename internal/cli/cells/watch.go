package cells

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/cli/shell"
	"github.com/percolator-go/percolator/internal/inspect"
)

// advanceEvery is the minimum time between two writes of a subscription's position to the resolved
// timestamps of its feed.
const advanceEvery = time.Second

// WatchCommand returns the command "watch".
func WatchCommand(d *shell.Deps) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "watch TABLE [COLUMN...]",
		Short: "Follow the changes of a range of rows",
		Long: `Print the committed changes of a range of rows as they happen, until interrupted. The first ones are
those after the present, with --initial all present cells, or with --after those after a resolved
timestamp of an earlier run. With -o json each line is a change or a resolved timestamp: all changes up
to it have been printed.

A --subscription is a position that the cluster stores. The command continues after the changes that an
earlier run with it has printed; after a crash it prints the last ones again. History is kept for
it, up to collection-max-hold.`,
		Example: "watch bank --prefix b\n" +
			"watch bank balance -o json --subscription audit",
	}
	in, within := shell.AddInputArgs(cmd), shell.AddRange(cmd)
	full := cmd.Flags().Bool("full", false, "whole values in the table")
	initial := cmd.Flags().Bool("initial", false, "print all present cells first")
	after := cmd.Flags().Uint64("after", 0, "resolved timestamp after which to continue")
	name := cmd.Flags().String("subscription", "", "continue from the stored position of this name, and advance it")
	limit := cmd.Flags().Int("limit", 0, "end after this many changes; 0: go on")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *after != 0 && (*initial || *name != "") {
			return shell.Usagef(cmd, "--after excludes --initial and --subscription")
		}
		rows, _, err := within.Rows(args[0], in)
		if err != nil {
			return err
		}
		if columns := args[1:]; len(columns) > 0 {
			rows = rows.Columns(columns...)
		}
		width := inspect.ValueWidth
		if *full {
			width = 0
		}
		return d.Conn.RunLong(cmd, func(ctx context.Context, s *shell.Session) error {
			w := watch{out: d.Out, width: width, limit: *limit}
			from, err := w.begin(ctx, s.DB, percolator.Timestamp(*after), *initial, *name)
			if err != nil {
				return err
			}
			err = w.run(ctx, s.DB.Changes(ctx, from, rows))
			if ctx.Err() != nil && errors.Is(err, ctx.Err()) { // interrupted, which is how it ends
				return nil
			}
			return err
		})
	}
	return d.WithClient(cmd)
}

// watch prints a feed of changes.
type watch struct {
	out      *shell.Printer
	width    int
	limit    int                      // changes that are left; 0: no limit
	position *percolator.Subscription // nil: none
	advanced time.Time
}

// begin returns the timestamp from which the feed begins.
func (w *watch) begin(ctx context.Context, db *percolator.DB, after percolator.Timestamp, initial bool,
	subscription string) (from percolator.Timestamp, err error) {
	if subscription != "" {
		if w.position, err = db.Subscribe(ctx, subscription); err != nil {
			return 0, err
		}
		after = w.position.Position()
	}
	if after != 0 || initial {
		return after, nil
	}
	err = db.View(ctx, func(_ context.Context, s *percolator.Snapshot) error {
		from = s.StartTS()
		return nil
	})
	if err == nil && w.position != nil {
		err = w.position.Advance(ctx, from)
	}
	return from, err
}

func (w *watch) run(ctx context.Context, changes func(yield func(percolator.Change, error) bool)) error {
	for c, err := range changes {
		if err == nil {
			err = w.print(ctx, &c)
		}
		if err != nil {
			return err
		}
		if c.Resolved == 0 && w.limit > 0 {
			if w.limit--; w.limit == 0 {
				return nil
			}
		}
	}
	return nil
}

// print prints a change. It prints a resolved timestamp only with -o json, but advances the
// subscription's position, if there is one, to it in any format, at most once per advanceEvery.
func (w *watch) print(ctx context.Context, c *percolator.Change) error {
	if c.Resolved != 0 {
		if w.out.JSON() {
			if err := w.out.Object(c); err != nil {
				return err
			}
		}
		if w.position == nil || time.Since(w.advanced) < advanceEvery {
			return nil
		}
		w.advanced = time.Now()
		return w.position.Advance(ctx, c.Resolved)
	}
	if w.out.JSON() {
		return w.out.Object(c)
	}
	value := "deleted"
	if !c.Deleted {
		value = inspect.Shortened(string(c.Value), w.width)
	}
	return w.out.Print("%s", strings.Join([]string{
		c.CommitTS.Time().UTC().Format("15:04:05.000"), inspect.Shortened(c.Row, w.width),
		inspect.Shortened(c.Column.Name, w.width), value, fmt.Sprint(uint64(c.CommitTS)),
	}, "  "))
}

// SubscriptionCommand groups the commands for subscriptions to changes.
func SubscriptionCommand(d *shell.Deps) *cobra.Command {
	return shell.Group("subscription", "List and delete the stored positions of subscribers to changes",
		"subscription ls\nsubscription delete audit", subscriptionList(d), subscriptionDelete(d))
}

func subscriptionList(d *shell.Deps) *cobra.Command {
	return d.ClientCommand(&cobra.Command{
		Use:   "ls",
		Short: "List the subscriptions to changes",
		Long: `List the positions that subscribers to changes have stored. History is kept from each position on, up to
collection-max-hold; a subscription that is lost has to begin again.`,
		Example: "subscription ls",
	}, func(ctx context.Context, s *shell.Session, _ []string) error {
		all, err := s.DB.Subscriptions(ctx)
		if err != nil {
			return err
		}
		list := d.Out.Listing("SUBSCRIPTION, POSITION, AS OF, HISTORY, BY")
		for _, sub := range all {
			at, history := "", "held"
			if sub.Position != 0 {
				at = sub.Position.Time().UTC().Format(time.RFC3339)
			}
			switch {
			case sub.Lost:
				history = "lost"
			case sub.Position == 0:
				history = "none"
			}
			list.Add(struct {
				Name     string `json:"name"`
				Position uint64 `json:"position"`
				By       string `json:"by,omitempty"`
				Lost     bool   `json:"lost"`
			}{sub.Name, uint64(sub.Position), sub.By, sub.Lost}, inspect.Printable(sub.Name), sub.Position, at, history,
				inspect.Printable(sub.By))
		}
		return list.End()
	})
}

func subscriptionDelete(d *shell.Deps) *cobra.Command {
	return d.ClientCommand(&cobra.Command{
		Use:   "delete NAME",
		Short: "Delete a subscription, and with it its hold on history",
		Long: `Delete the stored position of a subscriber to changes. History is no longer kept for it. Only the client
that created it, or an operator, may do so. It succeeds if there is none.`,
		Example: "subscription delete audit",
	}, func(ctx context.Context, s *shell.Session, args []string) error {
		err := s.DB.DeleteSubscription(ctx, args[0])
		return d.Out.Done(err, "subscription %s is deleted", inspect.Printable(args[0]))
	})
}
