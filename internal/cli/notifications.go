package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
)

// errNoObserver: the catalogue knows no observer of the name.
var errNoObserver = errors.New("no such observer")

// notifyCommand holds the commands about notifications.
func (r *run) notifyCommand() *cobra.Command {
	return group("notify", "List and replay notifications", r.example("notify ls --parked", "notify replay count --all-parked"),
		r.notifyList(), r.notifyReplay())
}

// notifyFlags are the flags of notify ls.
type notifyFlags struct {
	limit    int
	parked   bool
	observer string
}

// notifyList shows the notify group: what a scanner would find, and what it passes over
// because it is parked.
func (r *run) notifyList() *cobra.Command {
	f := &notifyFlags{}
	cmd := &cobra.Command{
		Use:     "ls [TABLE]",
		Aliases: []string{"list"},
		Short:   "List the notifications that wait for their observer, and those that were given up (parked)",
		Long: `List notifications: rows whose observed column has changed and whose observer has not run for it yet, as they are
stored. A run that fails is tried again; after too many failures its notification is parked with the last error, until
` + "`notify replay`" + ` or a newer change. SINCE is how long ago the cell changed, or was parked.`,
		Example: r.example("notify ls", "notify ls --parked --observer count", "notify ls bank -o json"),
		Args:    argsBetween(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return r.talk(cmd, func(ctx context.Context, s *session) error {
				return r.notifications(ctx, s, args, f)
			})
		},
	}
	addLimit(cmd, &f.limit, 1, "most entries")
	cmd.Flags().BoolVar(&f.parked, "parked", false, "only those that were given up")
	cmd.Flags().StringVar(&f.observer, "observer", "", "only this observer's")
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

// notifications walks the notify group column by column, as it is stored: the observed
// column comes first in its keys.
func (r *run) notifications(ctx context.Context, s *session, args []string, f *notifyFlags) error {
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
	if f.observer != "" && findObserver(catalogue, f.observer) == nil {
		return r.noObserver(f.observer)
	}
	now, err := s.now(ctx)
	if err != nil {
		return err
	}
	var g grid
	g.numbers(5)
	g.add("TABLE", "ROW", "COLUMN", "OBSERVER", "CHANGED AT", "FAILED RUNS", "STATE", "SINCE", "LAST ERROR")
	shown := 0
	for _, o := range catalogue.GetObservers() {
		if len(args) > 0 && o.TableName != args[0] || f.observer != "" && o.Name != f.observer {
			continue
		}
		for e, err := range s.client.WalkColumn(ctx, mvcc.GroupNotify, mvcc.TableID(o.Table), string(o.Column)) {
			if err != nil {
				return err
			}
			if f.parked && e.GetNotify().GetParkedTs() == 0 {
				continue
			}
			if shown == f.limit {
				r.cut(f.limit)
				return r.finish(&g)
			}
			shown++
			if err := r.notification(&g, names, o.Name, e, now); err != nil {
				return err
			}
		}
	}
	return r.finish(&g)
}

// noObserver is the error for a name that the catalogue does not know.
func (r *run) noObserver(name string) error {
	return &hintError{
		err:  fmt.Errorf("%w: %s", errNoObserver, printable(name)),
		hint: fmt.Sprintf("`%s observer ls` lists the observers", r.Name),
	}
}

// notification prints one entry.
func (r *run) notification(g *grid, names *names, observer string, e *pb.WalkEntry, now mvcc.Timestamp) error {
	n := e.GetNotify()
	if r.output == outputJSON {
		return r.object(notifyJSON{
			Cell: newCellJSON(e.Cell, names), Observer: observer, TS: n.GetTs(), Attempts: n.GetAttempts(),
			ParkedTS: n.GetParkedTs(), Replay: n.GetReplay(), Error: n.GetError(),
		})
	}
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
	g.add(names.byID(e.GetCell().GetTable()), shortened(string(e.GetCell().GetRow()), valueWidth/2), columnText(e.Cell),
		printable(observer), fmt.Sprint(n.GetTs()), fmt.Sprint(n.GetAttempts()), state, ago(mvcc.Timestamp(since), now), fault)
	return nil
}

// firstLine cuts a panic's stack off its message.
func firstLine(text string) string {
	line, _, more := strings.Cut(text, "\n")
	if more {
		line += " …"
	}
	return line
}

// ago is how long before now a timestamp was given out, by the oracle's time.
func ago(ts, now mvcc.Timestamp) string {
	return span(time.Duration(max(0, now.Millis()-ts.Millis())) * time.Millisecond)
}

// finish prints a listing's table; in JSON everything is out already.
func (r *run) finish(g *grid) error {
	if r.output == outputJSON {
		return nil
	}
	return g.write(r.Stdout)
}
