package admin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/cli/shell"
	"github.com/percolator-go/percolator/internal/inspect"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
)

// `observer replay` starts, watches and cancels a back-fill: one run of an observer for
// every row of its column. The cluster performs it, whether or not a command watches.

// replayPoll is the interval between the requests of --wait.
const replayPoll = 200 * time.Millisecond

// observerReplay starts, reports or cancels a back-fill.
func observerReplay(d *shell.Deps) *cobra.Command {
	f := &backfill{}
	cmd := &cobra.Command{
		Use:   "replay OBSERVER",
		Short: "Run an observer once for every row that its column has",
		Long: `Mark every row that the observed column has as changed, once, whatever was
acknowledged: for a new observer that has to see what was there before it, or for one whose code
was wrong. The rows are those that exist when it begins (of a weak column: all rows of the
table); the cluster goes through them by itself, also when nodes restart, no faster than the
observer runs, and not while it is paused.

--below-version N leaves out the rows for which the observer's version N or a later one
has run (percolator.Version), and those for which it has never run. All nodes must run version
N or a later one by then, and the observer must be strong.

One replay at a time: starting one that is under way changes nothing. --wait watches until all
rows are marked (the observer then still has to run for them: ` + "`observer ls`" + `), --status
tells how far it is, --cancel ends it. ` + "`notify replay`" + ` is for single rows.`,
		Example: "observer replay count --wait\n" +
			"observer replay count --below-version 2 --wait\n" +
			"observer replay count --status -o json\n" +
			"observer replay count --cancel",
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.wait && f.status || f.wait && f.cancel || f.status && f.cancel {
				return shell.Usagef(cmd, "--wait, --status and --cancel exclude each other")
			}
			if f.below > 0 && (f.status || f.cancel) {
				return shell.Usagef(cmd, "--below-version is for the start of a replay")
			}
			return d.Conn.RunLong(cmd, func(ctx context.Context, s *shell.Session) error {
				f.Session, f.observer = s, args[0]
				return f.run(ctx)
			})
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&f.wait, "wait", false, "return when all rows are marked")
	flags.Uint32Var(&f.below, "below-version", 0,
		"only rows whose last run was of a lower version of the observer; 0: all rows")
	flags.BoolVar(&f.status, "status", false, "only show its progress")
	flags.BoolVar(&f.cancel, "cancel", false, "cancel the replay; marked rows stay marked")
	flags.BoolVar(&f.quiet, "quiet", false, "with --wait: do not print progress")
	return d.WithClient(cmd)
}

// backfill is one run of observer replay, with its flags.
type backfill struct {
	*shell.Session
	observer string

	wait, status, cancel, quiet bool
	below                       uint32
}

// run executes the command.
func (b *backfill) run(ctx context.Context) error {
	// Starting a running back-fill changes nothing, so an interrupted --wait can be run
	// again.
	action := pb.BackfillRequest_ACTION_START
	switch {
	case b.status:
		action = pb.BackfillRequest_ACTION_READ
	case b.cancel:
		action = pb.BackfillRequest_ACTION_CANCEL
	}
	state, err := b.ask(ctx, action, b.below)
	if err != nil {
		return err
	}
	if state == nil {
		return shell.WithHint(fmt.Errorf("observer %s was never replayed", inspect.Printable(b.observer)),
			"`observer replay OBSERVER` starts one", inspect.Operand{What: "OBSERVER", Value: b.observer})
	}
	if b.wait {
		if state, err = b.await(ctx, state); err != nil {
			return err
		}
	}
	if err := b.show(ctx, state); err != nil {
		return err
	}
	switch { // with --cancel, a cancelled back-fill is success
	case state.State == inspect.BackfillFailed:
		return shell.WithHint(fmt.Errorf("the replay has failed: %s", state.Error),
			"repair the cause and run the command again: it starts over")
	case b.wait && state.State == inspect.BackfillCancelled:
		return shell.WithHint(errors.New("the replay was cancelled"),
			"run the command again to start over")
	}
	return nil
}

// ask sends one request to meta, bounded by --timeout. --wait as a whole is not bounded: a back-fill
// may take hours.
func (b *backfill) ask(ctx context.Context,
	action pb.BackfillRequest_Action, below uint32) (*inspect.Backfill, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, b.Conn.Timeout, shell.ErrTimeout)
	defer cancel()
	answer, err := b.Admin.Backfill(ctx, &pb.BackfillRequest{Name: b.observer, Action: action, BelowVersion: below})
	if err != nil {
		return nil, b.Conn.CutShort(ctx, explainObserver(ctx, b.Session, b.observer, err))
	}
	return inspect.NewBackfill(answer.GetBackfill()), nil
}

// await polls until the back-fill has ended, or a request fails. It goes on after an error that
// only delays the back-fill, whose state stays running.
func (b *backfill) await(ctx context.Context, state *inspect.Backfill) (*inspect.Backfill, error) {
	m := b.Out.NewMeter("replay of "+inspect.Printable(state.Observer), shell.Tally{Rows: int64(state.Rows)},
		b.quiet)
	table, err := b.extentOf(ctx)
	if err != nil {
		return nil, err
	}
	for state.State == inspect.BackfillRunning {
		if err := txn.Sleep(ctx, replayPoll); err != nil {
			return nil, err
		}
		next, err := b.ask(ctx, pb.BackfillRequest_ACTION_READ, 0)
		if err != nil {
			return nil, err
		}
		if next == nil { // the observer was retired and removed
			return nil, fmt.Errorf("the replay and its observer %s no longer exist",
				inspect.Printable(state.Observer))
		}
		state = next
		m.Show(shell.Tally{
			Rows: int64(state.Rows), Passed: table.Passed(string(state.NextRow)), Tablets: len(table),
		})
	}
	m.End(shell.Tally{Rows: int64(state.Rows)}, state.State)
	return state, nil
}

// extentOf returns the extent of the observer's table.
func (b *backfill) extentOf(ctx context.Context) (shell.Extent, error) {
	catalogue, err := b.Transport.Catalogue(ctx)
	if err != nil {
		return nil, err
	}
	o := inspect.FindObserver(catalogue, b.observer)
	return b.Extent(ctx, mvcc.Span{Table: mvcc.TableID(o.GetTable())}), nil
}

// show prints the back-fill's progress.
func (b *backfill) show(ctx context.Context, state *inspect.Backfill) error {
	text := fmt.Sprintf("replay of %s: %s, %d rows marked, of those that there were at %s UTC",
		inspect.Printable(state.Observer), state.State, state.Rows, inspect.Clock(mvcc.Timestamp(state.TS)))
	if state.BelowVersion > 0 {
		text = fmt.Sprintf("replay of %s below version %d: %s, %d of %d rows marked, of those that there were at %s UTC",
			inspect.Printable(state.Observer), state.BelowVersion, state.State, state.Rows, state.Examined,
			inspect.Clock(mvcc.Timestamp(state.TS)))
	}
	if state.State == inspect.BackfillRunning && state.NextRow != "" {
		table, err := b.extentOf(ctx)
		if err != nil {
			return err
		}
		text += fmt.Sprintf("; %d of %d tablets are done, next is row %s",
			table.Passed(string(state.NextRow)), len(table), inspect.Shortened(string(state.NextRow), inspect.ValueWidth))
	}
	return b.Out.Answer(state, "%s", text)
}
