package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
)

// notifyCommand holds the commands about notifications.
func (r *run) notifyCommand() *cobra.Command {
	return group("notify", "List notifications that wait for their observer", r.notifyList())
}

// notifyList shows the notify group: what a scanner would find, and what it passes over because it is parked.
func (r *run) notifyList() *cobra.Command {
	var limit int
	var parked bool
	cmd := &cobra.Command{
		Use:     "ls [TABLE]",
		Aliases: []string{"list"},
		Short:   "List the notifications that wait for their observer, and those that were given up (parked)",
		Args:    argsBetween(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return r.talk(cmd, func(ctx context.Context, s *session) error {
				return r.notifications(ctx, s, args, limit, parked)
			})
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 1000, "most entries")
	cmd.Flags().BoolVar(&parked, "parked", false, "only those that were given up")
	return r.withClient(cmd)
}

// notifyJSON is a notification in JSON.
type notifyJSON struct {
	Cell     *cellJSON `json:"cell"`
	Observer string    `json:"observer"`
	TS       uint64    `json:"ts"`
	Attempts uint32    `json:"attempts"`
	ParkedTS uint64    `json:"parked_ts,omitempty"`
	Replay   bool      `json:"replay,omitempty"`
	Error    string    `json:"error,omitempty"`
}

// notifications walks the notify group column by column, as it is stored: the observed column comes first in its keys.
func (r *run) notifications(ctx context.Context, s *session, args []string, limit int, parked bool) error {
	names, err := loadNames(ctx, s)
	if err != nil {
		return err
	}
	catalogue, err := s.transport.Catalogue(ctx)
	if err != nil {
		return err
	}
	if _, err := names.chosen(args); err != nil {
		return err
	}
	var g grid
	g.numbers(5)
	g.add("TABLE", "ROW", "COLUMN", "OBSERVER", "CHANGED AT", "FAILED RUNS", "STATE", "LAST ERROR")
	shown := 0
	for _, o := range catalogue.GetObservers() {
		if len(args) > 0 && o.TableName != args[0] {
			continue
		}
		for e, err := range walk(ctx, s, mvcc.GroupNotify, mvcc.TableID(o.Table), string(o.Column)) {
			if err != nil {
				return err
			}
			if parked && e.GetNotify().GetParkedTs() == 0 {
				continue
			}
			if shown == limit {
				r.cut(limit)
				return r.finish(&g)
			}
			shown++
			if err := r.notification(&g, names, o.Name, e); err != nil {
				return err
			}
		}
	}
	return r.finish(&g)
}

// notification prints one entry.
func (r *run) notification(g *grid, names *names, observer string, e *pb.WalkEntry) error {
	n := e.GetNotify()
	if r.output == outputJSON {
		return r.object(notifyJSON{
			Cell: newCellJSON(e.Cell, names), Observer: observer, TS: n.GetTs(), Attempts: n.GetAttempts(),
			ParkedTS: n.GetParkedTs(), Replay: n.GetReplay(), Error: n.GetError(),
		})
	}
	state := "waiting"
	if n.GetParkedTs() != 0 {
		state = fmt.Sprintf("parked @ %d", n.GetParkedTs())
	}
	fault := ""
	if n.GetError() != "" {
		fault = shortened(n.GetError(), valueWidth)
	}
	g.add(names.byID(e.GetCell().GetTable()), shortened(string(e.GetCell().GetRow()), valueWidth/2), columnText(e.Cell),
		printable(observer), fmt.Sprint(n.GetTs()), fmt.Sprint(n.GetAttempts()), state, fault)
	return nil
}

// finish prints a listing's table; in JSON everything is out already.
func (r *run) finish(g *grid) error {
	if r.output == outputJSON {
		return nil
	}
	return g.write(r.Stdout)
}
