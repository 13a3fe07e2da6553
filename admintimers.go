package percolator

import (
	"context"
	"iter"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
)

// Timer is a timer of Tx.NotifyAfter that has not fired.
type Timer struct {
	Row    string
	Column Column
	// Due is the earliest time at which it fires, by the oracle's time, in whole milliseconds. The
	// cluster replaces a Due that has passed by a later one if the delay since the commit has not,
	// because the commit took long, and every 5 s while the tablet of Row does not respond.
	Due time.Time
}

// Timers yields the timers of a weak column, as of one timestamp, in no particular order. An error
// is the last element of the sequence. It reads the timers of all columns. Role: operator, since
// these include columns for which a client may have no grant.
func (a *Admin) Timers(ctx context.Context, col Column) iter.Seq2[Timer, error] {
	return func(yield func(Timer, error) bool) {
		if err := a.db.check(); err != nil {
			yield(Timer{}, err)
			return
		}
		id, err := a.db.c.TableID(ctx, col.Table)
		if err != nil {
			yield(Timer{}, err)
			return
		}
		now, err := a.db.c.Timestamp(ctx)
		if err != nil {
			yield(Timer{}, err)
			return
		}
		for t, err := range a.timers(ctx, now, "") {
			if err == nil && (t.Target.Table != id || t.Target.Column != col.Name) {
				continue
			}
			if !yield(Timer{t.Target.Row, col, time.UnixMilli(t.Due)}, err) {
				return
			}
		}
	}
}

// timers yields the timers that exist at a timestamp, in the order of their rows in the table of
// timers (mvcc.TimerTable), beginning after the row after of that table.
func (a *Admin) timers(ctx context.Context, at mvcc.Timestamp,
	after string) iter.Seq2[mvcc.Timer, error] {
	return func(yield func(mvcc.Timer, error) bool) {
		for {
			page, err := call(ctx, a, pb.AdminClient.PendingNotifications,
				&pb.PendingNotificationsRequest{At: uint64(at), After: []byte(after)})
			if err != nil {
				yield(mvcc.Timer{}, err)
				return
			}
			for _, p := range page.GetPending() {
				if !yield(mvcc.Timer{
					Target: mvcc.Cell{
						Table: mvcc.TableID(p.GetTable()), Row: string(p.GetRow()),
						Column: string(p.GetColumn()),
					},
					Due: p.GetDueUnixMs(),
				}, nil) {
					return
				}
			}
			if after = string(page.GetAfter()); after == "" {
				return
			}
		}
	}
}

// CancelTimer removes a timer that Timers has returned. It returns false if the timer has
// fired, was cancelled, or has got another due time since (Timer.Due); in the last case Timers
// returns it with the new one. Role: operator.
func (a *Admin) CancelTimer(ctx context.Context, t Timer) (cancelled bool, err error) {
	err = a.db.Transact(ctx, func(ctx context.Context, tx *Tx) error {
		at, err := tx.t.Start(ctx)
		if err != nil {
			return err
		}
		id, err := a.db.c.TableID(ctx, t.Column.Table)
		if err != nil {
			return err
		}
		timer := mvcc.Timer{
			Target: mvcc.Cell{Table: id, Row: t.Row, Column: t.Column.Name},
			Due:    t.Due.UnixMilli(),
		}
		cancelled, err = a.timerExists(ctx, at, timer)
		if cancelled {
			cell, _ := timer.Write()
			tx.t.Fire(cell, nil, nil) // conflicts if the cluster fires it first, and fn runs again
		}
		return err
	})
	return cancelled && err == nil, err
}

// timerExists reports whether the timer exists at the timestamp.
func (a *Admin) timerExists(ctx context.Context, at mvcc.Timestamp, timer mvcc.Timer) (bool, error) {
	cell, _ := timer.Write()
	// The first timers after this row are the one looked for, or a few others with the same due
	// time.
	for t, err := range a.timers(ctx, at, cell.Row[:len(cell.Row)-1]) {
		if err != nil {
			return false, err
		}
		found, _ := t.Write()
		if found.Row >= cell.Row {
			return found.Row == cell.Row, nil
		}
	}
	return false, nil
}
