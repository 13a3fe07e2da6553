package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
)

// States of a back-fill.
const (
	backfillRunning   = "running"
	backfillDone      = "done"
	backfillCancelled = "cancelled"
	backfillFailed    = "failed"
)

// replayPoll is how often --wait asks.
const replayPoll = 200 * time.Millisecond

// replayFlags are the flags of observer replay.
type replayFlags struct {
	wait, status, cancel, quiet bool
}

// observerReplay starts a back-fill, or looks at it. The node goes on with it by itself;
// --wait only watches.
func (r *run) observerReplay() *cobra.Command {
	f := &replayFlags{}
	cmd := &cobra.Command{
		Use:   "replay OBSERVER",
		Short: "Run an observer once for every row that its column has",
		Long: `Mark every row that the observed column has as changed, once, whatever was acknowledged: for a new observer that has to
see what was there before it, or for one whose code was wrong. The rows are those that exist when it begins (of a weak
column: all rows of the table); the cluster goes through them by itself, also when nodes restart, no faster than the
observer runs, and not while it is paused.

One replay at a time: starting one that is under way changes nothing. --wait watches until all rows are marked (the
observer then still has to run for them: ` + "`observer ls`" + `), --status tells how far it is, --cancel ends it.
` + "`notify replay`" + ` is for single rows.`,
		Example: r.example("observer replay count --wait", "observer replay count --status -o json", "observer replay count --cancel"),
		Args:    argsBetween(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if boolInt(f.wait)+boolInt(f.status)+boolInt(f.cancel) > 1 {
				return usagef(cmd, "--wait, --status and --cancel exclude each other")
			}
			return r.talkLong(cmd, func(ctx context.Context, s *session) error {
				return r.replay(ctx, s, args[0], f)
			})
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&f.wait, "wait", false, "return when all rows are marked")
	flags.BoolVar(&f.status, "status", false, "only tell how far it is")
	flags.BoolVar(&f.cancel, "cancel", false, "end it; rows that are marked stay marked")
	flags.BoolVar(&f.quiet, "quiet", false, "with --wait: show no progress")
	return r.withClient(cmd)
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// backfillJSON is a back-fill in JSON.
type backfillJSON struct {
	Observer string    `json:"observer"`
	State    string    `json:"state"`
	TS       uint64    `json:"ts"`       // rows that exist at it are marked
	Rows     uint64    `json:"rows"`     // marked so far
	NextRow  jsonBytes `json:"next_row"` // rows before it are done
	Error    string    `json:"error,omitempty"`
}

// newBackfillJSON converts a back-fill; nil stays nil.
func newBackfillJSON(b *pb.Backfill) *backfillJSON {
	if b == nil {
		return nil
	}
	out := &backfillJSON{Observer: b.Name, State: backfillRunning, TS: b.Ts, Rows: b.Rows, NextRow: jsonBytes(b.NextRow), Error: b.Error}
	switch {
	case b.Done:
		out.State = backfillDone
	case b.Cancelled:
		out.State = backfillCancelled
	case b.Error != "":
		out.State = backfillFailed
	}
	return out
}

// replay starts, reads or cancels.
func (r *run) replay(ctx context.Context, s *session, name string, f *replayFlags) error {
	// Starting is idempotent: one that runs goes on. So a --wait that was interrupted is
	// simply given again.
	action := pb.BackfillRequest_ACTION_START
	switch {
	case f.status:
		action = pb.BackfillRequest_ACTION_READ
	case f.cancel:
		action = pb.BackfillRequest_ACTION_CANCEL
	}
	b, err := r.backfill(ctx, s, name, action)
	if err != nil {
		return err
	}
	if b == nil {
		return &hintError{
			err:  fmt.Errorf("observer %s was never replayed", printable(name)),
			hint: r.suggest("observer replay", "", operand{"OBSERVER", name}) + " begins",
		}
	}
	if f.wait {
		if b, err = r.await(ctx, s, b, f); err != nil {
			return err
		}
	}
	return r.showBackfill(b, f.wait)
}

// backfill asks meta, within --timeout.
func (r *run) backfill(ctx context.Context, s *session, name string, action pb.BackfillRequest_Action) (*backfillJSON, error) {
	// Each question is bounded, the watching is not: a back-fill takes as long as it takes.
	ctx, cancel := context.WithTimeoutCause(ctx, r.timeout, errTimeout)
	defer cancel()
	answer, err := s.admin.Backfill(ctx, &pb.BackfillRequest{Name: name, Action: action})
	if err != nil {
		return nil, r.cutShort(ctx, r.aboutObserver(ctx, s, name, err))
	}
	return newBackfillJSON(answer.GetBackfill()), nil
}

// await watches a back-fill to its end. One that waits because of an error goes on by
// itself, or is cancelled.
func (r *run) await(ctx context.Context, s *session, b *backfillJSON, f *replayFlags) (*backfillJSON, error) {
	m := r.newMeter("replay of "+printable(b.Observer), tally{Rows: int64(b.Rows)}, f.quiet)
	for b.State == backfillRunning {
		if err := pause(ctx, replayPoll); err != nil {
			return nil, err
		}
		next, err := r.backfill(ctx, s, b.Observer, pb.BackfillRequest_ACTION_READ)
		if err != nil {
			return nil, err
		}
		if next == nil { // its observer was retired and removed
			return nil, fmt.Errorf("the replay of %s is gone, and so is its observer", printable(b.Observer))
		}
		b = next
		m.show(tally{Rows: int64(b.Rows)})
	}
	m.end(tally{Rows: int64(b.Rows)}, b.State)
	return b, nil
}

// showBackfill prints how far it is. What was waited for and did not come is a failure.
func (r *run) showBackfill(b *backfillJSON, waited bool) error {
	if r.output == outputJSON {
		if err := r.object(b); err != nil {
			return err
		}
	} else {
		text := fmt.Sprintf("replay of %s: %s, %d rows marked, of those that there were at %s UTC", printable(b.Observer), b.State, b.Rows,
			clock(mvcc.Timestamp(b.TS)))
		if b.State == backfillRunning && b.NextRow != "" {
			text += ", next is row " + shortened(string(b.NextRow), valueWidth)
		}
		if err := r.print("%s", text); err != nil {
			return err
		}
	}
	switch { // --cancel that finds it cancelled has done what it was asked for
	case b.State == backfillFailed:
		return &hintError{err: fmt.Errorf("the replay has failed: %s", b.Error), hint: "mend the cause and run the command again: it begins anew"}
	case waited && b.State == backfillCancelled:
		return &hintError{err: fmt.Errorf("the replay was cancelled"), hint: "run the command again to begin anew"}
	}
	return nil
}
