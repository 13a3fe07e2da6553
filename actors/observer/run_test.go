package observer

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/notify"
)

// at is the start timestamp of the runs that this file executes step by step.
const at mvcc.Timestamp = 50

// lone returns a run of the cell with the given notify entry; its third failed attempt parks the
// row.
func lone(t *testing.T, entry mvcc.Notify) (*run, *fakeClient) {
	client := &fakeClient{now: 100, entries: map[mvcc.Cell]mvcc.Notify{cellOf("r"): entry}}
	return &run{
		obs: &registeredObserver{spec: spec{Name: "o", MaxAttempts: 3, MaxConflicts: 8},
			logger: slog.New(slog.DiscardHandler)},
		cell: cellOf("r"), client: client, timeout: time.Minute, grace: time.Minute,
		base: t.Context(), phase: new(atomic.Int32), tx: &fakeTxn{client: client, start: at},
	}, client
}

// TestRunGoesBackFarEnough: a run's transaction has the origin read with the change, the lowest
// possible origin if the tablet names none, and the replay's if that is older.
func TestRunGoesBackFarEnough(t *testing.T) {
	replay := mvcc.Notify{TS: 40, Replay: true, Origins: mvcc.Origins{First: 20}}
	for name, test := range map[string]struct{ changed, read, ack, want mvcc.Timestamp }{
		"read with the change":   {changed: 30, read: 25, want: 25},
		"not told":               {changed: 30, want: 1},
		"a replay of an older":   {changed: 30, read: 25, ack: 35, want: 20},
		"a replay of a later":    {changed: 30, read: 15, ack: 35, want: 15},
		"a replay, and not told": {changed: 30, ack: 35, want: 1},
	} {
		r, _ := lone(t, replay)
		acked := mvcc.ReadResult{Value: notify.EncodeAck(test.ack, 0)}
		cell := mvcc.ReadResult{CommitTS: test.changed, Origin: test.read}
		if due, _, out := r.compare(t.Context(), cell, acked); !due || r.origin != test.want {
			t.Errorf("ORIGIN-TOO-HIGH: %s: due %t, origin %d, want %d: %v", name, due, r.origin,
				test.want, out)
		}
	}
}

// TestNewerReplayIsLeft: a replay above the run's start is left to the next run, since this run's
// acknowledgment would not cover it, and the row would run twice. Catches BROKEN=replay_ahead.
func TestNewerReplayIsLeft(t *testing.T) {
	r, _ := lone(t, mvcc.Notify{TS: at + 1, Replay: true})
	acked := mvcc.ReadResult{Value: notify.EncodeAck(35, 7)}
	due, _, out := r.compare(t.Context(), mvcc.ReadResult{CommitTS: 30}, acked)
	if due || out.left != at+1 {
		t.Errorf("REPLAYED-TWICE: due %t, left %d, want it left at %d", due, out.left, at+1)
	}
}

// TestParkedWeakStays: a hint does not start a run of a parked notification.
func TestParkedWeakStays(t *testing.T) {
	r, _ := lone(t, mvcc.Notify{TS: 40, Attempts: 3, ParkedTS: 45})
	if due, _, _ := r.checkWeak(t.Context(), r.tx); due {
		t.Error("a parked notification runs")
	}
}

// TestFailureCountsForItsChange: a failed run is counted once, for the change that it read. Catches
// BROKEN=newer_counted.
func TestFailureCountsForItsChange(t *testing.T) {
	cause := errors.New("bad")
	for name, test := range map[string]struct {
		entry   mvcc.Notify
		charged recorded
		want    outcomeKind
		counted []uint32 // recorded attempts
	}{
		"the first":         {entry: mvcc.Notify{TS: 40}, want: failed, counted: []uint32{1}},
		"the last":          {entry: mvcc.Notify{TS: 40, Attempts: 2}, want: parked, counted: []uint32{3}},
		"a newer change":    {entry: mvcc.Notify{TS: at + 1, Attempts: 2}, want: failed},
		"parked by another": {entry: mvcc.Notify{TS: 40, Attempts: 1, ParkedTS: 45}, want: parked},
		"recorded before": {
			entry: mvcc.Notify{TS: 40, Attempts: 2, Error: unfinished}, charged: recorded{40, 2},
			want: failed, counted: []uint32{2},
		},
	} {
		r, client := lone(t, test.entry)
		r.charged = test.charged
		out := r.failed(at, cause)
		if got := attemptsIn(client.failed); out.kind != test.want || !slices.Equal(got, test.counted) {
			t.Errorf("MISCOUNTED: %s: %v, counted %d; want %v, %d", name, out.kind, got, test.want,
				test.counted)
		}
	}
}

func attemptsIn(all []mvcc.FailNotifyRequest) (attempts []uint32) {
	for i := range all {
		attempts = append(attempts, all[i].Attempts)
	}
	return attempts
}

// TestChargedForOldChanges: an attempt is recorded before a run of a change that may have killed a
// process, and only an attempt that did not end parks the row before it runs.
func TestChargedForOldChanges(t *testing.T) {
	for name, test := range map[string]struct {
		entry   mvcc.Notify
		goOn    bool
		counted []uint32
	}{
		"old":                   {mvcc.Notify{TS: 40}, true, []uint32{1}},
		"a newer change":        {mvcc.Notify{TS: 48}, true, nil},
		"the last has failed":   {mvcc.Notify{TS: 40, Attempts: 3, Error: "bad"}, true, []uint32{4}},
		"the last did not end":  {mvcc.Notify{TS: 40, Attempts: 3, Error: unfinished}, false, []uint32{3}},
		"another has parked it": {mvcc.Notify{TS: 40, Attempts: 3, ParkedTS: 45}, false, nil},
	} {
		r, client := lone(t, test.entry)
		r.suspect = 45
		goOn, _ := r.admit(t.Context(), 40)
		if got := attemptsIn(client.failed); goOn != test.goOn || !slices.Equal(got, test.counted) {
			t.Errorf("MISCHARGED: %s: runs %t, recorded %d; want %t, %d", name, goOn, got, test.goOn,
				test.counted)
		}
	}
}

// TestEarlierAttemptsStay: an orderly shutdown withdraws the attempt of a row that had none before,
// and no other; otherwise every process would reset the count of a row that kills it. Catches
// BROKEN=attempts_taken_back.
func TestEarlierAttemptsStay(t *testing.T) {
	for before := range uint32(3) {
		r, client := lone(t, mvcc.Notify{TS: 40, Attempts: before})
		r.suspect = 45
		if goOn, out := r.admit(t.Context(), 40); !goOn {
			t.Fatalf("%v", out)
		}
		r.uncharge()
		want := before + 1
		if before == 0 {
			want = 0
		}
		if got := client.entries[r.cell].Attempts; got != want {
			t.Errorf("ATTEMPTS-FORGOTTEN: %d attempts after %d and one that was interrupted, want %d",
				got, before, want)
		}
	}
}

// TestUnservedRunsAreNotCounted: consecutive runs whose own transaction finds no node never count
// as failed; consecutive conflicts do in the end.
func TestUnservedRunsAreNotCounted(t *testing.T) {
	for err, want := range map[error]outcomeKind{
		percolator.ErrUnavailable: unavailable, percolator.ErrConflict: failed,
	} {
		r, _ := lone(t, mvcc.Notify{TS: 40})
		r.conflicts = r.obs.spec.MaxConflicts - 1
		if out := r.classify(at, err, true); out.kind != want {
			t.Errorf("%v for the %dth time: %v, want %v", err, r.conflicts+1, out.kind, want)
		}
	}
	// However many there were, the first conflict after them is the first one.
	r, _ := lone(t, mvcc.Notify{TS: 40})
	e := &entry{obs: r.obs}
	for range r.obs.spec.MaxConflicts - 1 {
		e.retried(r.classify(at, percolator.ErrUnavailable, true))
	}
	if r.retries, r.conflicts = e.retries, e.conflicts; r.retries != r.obs.spec.MaxConflicts-1 {
		t.Fatalf("%d retries", r.retries)
	}
	if out := r.classify(at, percolator.ErrConflict, true); out.kind != conflict {
		t.Errorf("a conflict after %d unserved runs: %v", r.retries, out.kind)
	}
	for name, out := range map[string]outcome{
		"conflict": r.classify(at, percolator.ErrConflict, true), "reported": r.classify(at, percolator.ErrUnavailable, false),
	} {
		if before := e.conflicts; e.retried(out) || e.conflicts != before+1 {
			t.Errorf("%s: %d conflicts after %d", name, e.conflicts, before)
		}
	}
}

// TestAbandonedRunCommitsNothing: when a function returns after the dispatcher has abandoned it and
// counted the failure, its run ends without a commit.
func TestAbandonedRunCommitsNothing(t *testing.T) {
	r, _ := lone(t, mvcc.Notify{TS: 40})
	r.obs.spec.Deadline = time.Hour
	r.obs.spec.Func = func(context.Context, *percolator.Tx, percolator.Notification) error {
		r.phase.Store(phaseAbandoned)
		return nil
	}
	if err := r.user(r.tx, []percolator.Notification{{}}); !errors.Is(err, errAbandoned) {
		t.Errorf("it continues to its commit: %v", err)
	}
}
