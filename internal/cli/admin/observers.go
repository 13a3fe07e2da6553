package admin

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/cli/shell"
	"github.com/percolator-go/percolator/internal/inspect"
)

// The commands for observers read and change the catalogue, which meta stores, and list the runs of
// all nodes. backfill.go replays all rows of an observer.

// ObserverCommand groups the commands for observers.
func ObserverCommand(d *shell.Deps) *cobra.Command {
	return shell.Group("observer", "List, pause, limit, replay and retire observers",
		"observer ls\nobserver pause count\nobserver replay count --wait",
		observerList(d), observerPause(d), observerResume(d), observerLimit(d), observerReplay(d),
		observerRetire(d))
}

// observerList lists the catalogue with pending notifications and the runs of all nodes.
func observerList(d *shell.Deps) *cobra.Command {
	return d.ClientCommand(&cobra.Command{
		Use: "ls",
		Short: "List the observers: state, what waits for them, and what the nodes did since " +
			"they began",
		Long: `List the observers of the cluster. WAITING are notifications that are not parked,
OLDEST is how long the oldest of them has waited, PARKED are those that failed too
often (` + "`notify ls --parked`" + ` shows why). RUNNING, RUNS, FAILURES and CONTENDED
are of all nodes, added up; RUNNING is followed by the most runs at once that they allow.
CONTENDED are cells whose runs keep failing, because they lose conflicts or nodes do not answer;
with -o json, rows tells which they are, and which runs go
on for long (` + "`why`" + ` explains one row). VERSION is the version with which the program registers the observer
(percolator.Version); during a rolling deploy there may be several, with the number of
nodes that run each.

States: running; waiting for an outside service, which has refused its runs, until the next
attempt; paused (` + "`observer resume`" + `); unlinked, if no process that the node
knows has registered it; retiring.`,
		Example: "observer ls\nobserver ls -o json",
	}, listObservers)
}

// listObservers lists the observers by name.
func listObservers(ctx context.Context, s *shell.Session, _ []string) error {
	states, err := s.Transport.Observers(ctx)
	if err != nil {
		return err
	}
	// Read the time after the states, so that no age is negative.
	now, err := s.Client.Timestamp(ctx)
	if err != nil {
		return err
	}
	slices.SortFunc(states, func(a, b *pb.ObserverState) int {
		return strings.Compare(a.GetInfo().GetName(), b.GetInfo().GetName())
	})
	list := s.Out.Listing("OBSERVER, TABLE, COLUMN, KIND, STATE, WAITING, PARKED, OLDEST, "+
		"RUNNING, RUNS, FAILURES, CONTENDED, VERSION", 5, 6, 7, 8, 9, 10, 11)
	for _, state := range states {
		o := inspect.NewObserver(state, now)
		list.Add(o, observerLine(o)...)
	}
	if err := list.End(); err != nil || len(states) == 0 || len(states[0].GetSilent()) == 0 {
		return err
	}
	s.Out.Note("RUNNING, RUNS, FAILURES and CONTENDED lack those of the nodes %v, which have "+
		"not answered",
		states[0].Silent)
	return nil
}

// observerLine returns the observer's line in the table.
func observerLine(o *inspect.Observer) []any {
	kind, oldest, running, state := "strong", "-", "-", o.State
	if o.Weak {
		kind = "weak"
	}
	if o.OldestTS != 0 {
		oldest = inspect.Span(time.Duration(o.OldestAgeMS) * time.Millisecond)
	}
	// A dash, not zero, if no node registers it.
	if o.Linked {
		running = fmt.Sprint(o.Running)
		if o.Limit != 0 {
			running += "/" + fmt.Sprint(o.AtOnce())
		}
	}
	if o.State == inspect.ObserverWaiting {
		state = o.Outside.String()
	}
	if b := o.Backfill; b != nil && b.State == inspect.BackfillRunning {
		state += fmt.Sprintf(", replay at %d rows", b.Rows)
	}
	return []any{
		inspect.Printable(o.Name), inspect.Printable(o.Table), inspect.Printable(string(o.Column)), kind, state,
		o.Waiting, o.Parked,
		oldest, running, o.Runs, o.Failures, o.Contended, cmp.Or(o.VersionText(), "-"),
	}
}

// observerPause stops new runs, not writes: later changes stay pending.
func observerPause(d *shell.Deps) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pause OBSERVER",
		Short: "Stop starting runs of an observer on all nodes; changes wait",
		Long: `Stop starting runs of an observer, on all nodes, until it is resumed. Runs in progress
finish. Changes are still recorded and wait; they do not slow loads. Pausing a paused
observer is not an error.`,
		Example: "observer pause count",
	}
	return controlCommand(d, cmd, (*percolator.Admin).PauseObserver, "observer %s is paused")
}

// observerResume undoes pause.
func observerResume(d *shell.Deps) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "resume OBSERVER",
		Short:   "Resume a paused observer",
		Example: "observer resume count",
	}
	return controlCommand(d, cmd, (*percolator.Admin).ResumeObserver, "observer %s is running")
}

// observerLimit sets the maximum number of concurrent runs in a process.
func observerLimit(d *shell.Deps) *cobra.Command {
	var limit int
	return d.ClientCommand(&cobra.Command{
		Use:   "limit OBSERVER N",
		Short: "Limit an observer's concurrent runs in each process; 0: the registered limit",
		Long: `Limit an observer to N concurrent runs in each process, on all nodes. 0 restores the
limit that the program registered. To stop an observer, pause it.`,
		Example: "observer limit count 2\nobserver limit count 0",
		PreRunE: func(cmd *cobra.Command, args []string) error {
			// A limit of zero runs is impossible: zero means "as registered" in the protocol, and
			// observer pause stops all runs.
			n, err := strconv.ParseUint(args[1], 10, 32)
			if err != nil {
				return shell.Usagef(cmd, "N must be a whole number from 0 on, not %q", args[1])
			}
			limit = int(n)
			return nil
		},
	}, func(ctx context.Context, s *shell.Session, args []string) error {
		text := fmt.Sprintf("observer %%s has at most %d runs at once in each process", limit)
		if limit == 0 {
			text = "observer %s has as many runs at once as it was registered with"
		}
		info, err := s.DB.Admin().LimitObserver(ctx, args[0], limit)
		return controlled(ctx, s, args[0], info, err, text)
	})
}

// observerRetire requires confirmation: it cannot be undone.
func observerRetire(d *shell.Deps) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "retire OBSERVER --yes",
		Short: "Remove an observer and its notifications from the cluster",
		Long: `Remove an observer and its pending notifications from the cluster's catalogue. Its
column is no longer observed; the writes of its runs remain. A program that still
registers it recreates it when it starts: retire it once no program does. --yes
confirms: only a replay recovers the notifications. At a terminal the command asks for
the observer's name instead.`,
		Example: "observer retire count --yes",
	}
	d.Confirmed(cmd, "retiring %s drops its notifications (`observer pause` only stops it)")
	return controlCommand(d, cmd, (*percolator.Admin).RetireObserver, "observer %s is retired")
}

// controlCommand changes the observer that its argument names.
func controlCommand(d *shell.Deps, cmd *cobra.Command,
	change func(*percolator.Admin, context.Context, string) (percolator.ObserverInfo, error),
	text string) *cobra.Command {
	return d.ClientCommand(cmd, func(ctx context.Context, s *shell.Session, args []string) error {
		info, err := change(s.DB.Admin(), ctx, args[0])
		return controlled(ctx, s, args[0], info, err, text)
	})
}

// controlled prints the result of a change that all tablets and dispatchers have applied.
func controlled(ctx context.Context, s *shell.Session, name string, info percolator.ObserverInfo,
	err error, text string) error {
	if err != nil {
		return explainObserver(ctx, s, name, err)
	}
	return s.Out.Answer(struct {
		Name    string `json:"name"`
		Paused  bool   `json:"paused"`
		Limit   int    `json:"limit"`
		Retired bool   `json:"retired"`
	}{name, info.Paused, info.Limit, info.Retired}, text, inspect.Printable(name))
}

// explainObserver adds advice to err if the catalogue does not contain the observer.
func explainObserver(ctx context.Context, s *shell.Session, name string, err error) error {
	catalogue, asking := s.Transport.Catalogue(ctx)
	if asking != nil || inspect.FindObserver(catalogue, name) != nil {
		return err // the catalogue is unavailable, or contains the name
	}
	return shell.WithHint(err, shell.KnownObservers)
}
