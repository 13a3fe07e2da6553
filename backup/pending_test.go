package backup_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/backup"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/percolatortest"
)

var wake = percolator.Column{Table: "bank", Name: "wake"}

// sleepers is a node with a weak observer of wake, which may be paused, and the rows for which it
// ran.
type sleepers struct {
	*percolatortest.Node
	mu  sync.Mutex
	ran map[string]bool
}

func startSleepers(t *testing.T) *sleepers {
	s := &sleepers{ran: map[string]bool{}}
	s.Node = percolatortest.Start(t, func(r *percolator.Registry) {
		// awake, another observer of the column, has run for the sleeper's pending notifications.
		r.Weak("awake", wake, func(context.Context, *percolator.Tx, percolator.Notification) error { return nil })
		r.Weak("sleeper", wake, func(_ context.Context, _ *percolator.Tx, n percolator.Notification) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.ran[n.Row] = true
			return nil
		})
	})
	return s
}

func (s *sleepers) pause(t *testing.T, paused bool) {
	t.Helper()
	_, err := handle.Client(s.DB()).Admin().ControlObserver(t.Context(),
		&pb.ControlObserverRequest{Name: "sleeper", Paused: &paused})
	must(t, err)
}

// rows returns the rows for which the observer has run, once there are so many, or after ten
// seconds.
func (s *sleepers) rows(t *testing.T, atLeast int) (rows []string) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for ; len(rows) < atLeast && time.Now().Before(deadline); <-time.After(10 * time.Millisecond) {
		s.mu.Lock()
		rows = rows[:0]
		for row := range s.ran {
			rows = append(rows, row)
		}
		s.mu.Unlock()
	}
	slices.Sort(rows)
	return rows
}

// TestTimersAndWeakNotificationsAreRestored: after a restore, pending timers and weak notifications
// are those of the newest backup not later than the timestamp, for the restored tables.
func TestTimersAndWeakNotificationsAreRestored(t *testing.T) {
	from := startSleepers(t)
	from.pause(t, true)
	must(t, from.DB().Transact(t.Context(), func(_ context.Context, tx *percolator.Tx) error {
		for i := range 3 {
			tx.Set(fmt.Sprint("weak", i), percolator.Column{Table: "bank", Name: "v"}, []byte("x"))
			tx.Notify(fmt.Sprint("weak", i), wake)
			tx.NotifyAfter(fmt.Sprint("timer", i), wake, time.Second)
		}
		tx.NotifyAfter("tomorrow", wake, 24*time.Hour)
		return nil
	}))
	l := open(t, t.TempDir())
	full := create(t, from.DB(), l, backup.CreateOptions{})
	from.pause(t, false)
	ran := []string{"timer0", "timer1", "timer2", "weak0", "weak1", "weak2"}
	if got := from.rows(t, len(ran)); !slices.Equal(got, ran) {
		t.Fatalf("ran for %q", got)
	}
	must(t, from.DB().WaitIdle(t.Context()))
	must(t, from.DB().Transact(t.Context(), func(_ context.Context, tx *percolator.Tx) error {
		tx.NotifyAfter("later", wake, time.Second)
		return nil
	}))
	increment := create(t, from.DB(), l, backup.CreateOptions{Incremental: true})
	if !full.HasPending || !increment.HasPending {
		t.Errorf("the backups say %v, %v", full.HasPending, increment.HasPending)
	}
	v, err := backup.Verify(t.Context(), l, backup.VerifyOptions{})
	if err != nil || len(v.Faults) > 0 {
		t.Errorf("verified %v, %v", v, err)
	}
	for _, c := range []struct {
		backup  string
		pending int64
		rows    []string
	}{{full.Name, 7, ran}, {increment.Name, 2, []string{"later"}}} {
		to := startSleepers(t)
		r, err := backup.Restore(t.Context(), handle.Client(to.DB()), l, backup.RestoreOptions{Backup: c.backup})
		must(t, err)
		if got := to.rows(t, len(c.rows)); !slices.Equal(got, c.rows) || r.Pending != c.pending {
			t.Fatalf("ASLEEP: %s: %d set, ran for %q, want %q", c.backup, r.Pending, got, c.rows)
		}
	}
}

// TestResumedBackupKeepsWeakNotifications: weak notifications that were pending at the timestamp of
// an interrupted backup, and ran before it was resumed, are restored, each once.
func TestResumedBackupKeepsWeakNotifications(t *testing.T) {
	from := startSleepers(t)
	from.pause(t, true)
	must(t, from.DB().Transact(t.Context(), func(_ context.Context, tx *percolator.Tx) error {
		for i := range 3 {
			tx.Set(fmt.Sprint("weak", i), percolator.Column{Table: "bank", Name: "v"}, []byte("x"))
			tx.Notify(fmt.Sprint("weak", i), wake)
		}
		return nil
	}))
	l := open(t, t.TempDir())
	interruptCreate(t, from.DB(), l)
	from.pause(t, false)
	ran := []string{"weak0", "weak1", "weak2"}
	if got := from.rows(t, len(ran)); !slices.Equal(got, ran) {
		t.Fatalf("ran for %q", got)
	}
	must(t, from.DB().WaitIdle(t.Context()))
	resumed := false
	create(t, from.DB(), l, backup.CreateOptions{Resumed: func(string) { resumed = true }})
	to := startSleepers(t)
	r, err := backup.Restore(t.Context(), handle.Client(to.DB()), l, backup.RestoreOptions{})
	must(t, err)
	if got := to.rows(t, len(ran)); !resumed || !slices.Equal(got, ran) || r.Pending != 3 {
		t.Fatalf("FORGOTTEN: resumed %t: %d set, ran for %q, want %q", resumed, r.Pending, got, ran)
	}
}

// TestTruncatedWeakListIsReported: the manifest of a backup reports whether more weak notifications
// were pending than its first list holds.
func TestTruncatedWeakListIsReported(t *testing.T) {
	from := startSleepers(t)
	from.pause(t, true)
	must(t, from.DB().Transact(t.Context(), func(_ context.Context, tx *percolator.Tx) error {
		for i := range 3 {
			tx.Notify(fmt.Sprint("weak", i), wake)
		}
		return nil
	}))
	l := open(t, t.TempDir())
	for limit, want := range map[int]bool{2: true, 3: false} {
		made := create(t, from.DB(), l, backup.WithMaxWeak(backup.CreateOptions{}, limit))
		if made.PendingTruncated != want {
			t.Errorf("TRUNCATED-SILENTLY: a list of %d for 3 notifications: truncated is %t", limit,
				made.PendingTruncated)
		}
	}
}
