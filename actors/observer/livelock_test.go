package observer_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/actors/observer"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/notifytest"
)

// record is a log that a test reads while it is written.
type record struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (r *record) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(p)
}

// has reports whether a line contains all the words.
func (r *record) has(words ...string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for line := range strings.Lines(r.text.String()) {
		all := true
		for _, w := range words {
			all = all && strings.Contains(line, w)
		}
		if all {
			return true
		}
	}
	return false
}

// logged starts a node that logs to a record.
func logged(t *testing.T, fn percolator.ObserverFunc,
	opts ...percolator.ObserverOption) (*notifytest.Node, *notifytest.Cluster, *record) {
	t.Helper()
	cluster, log := notifytest.NewCluster(), &record{}
	n := notifytest.Start(t, notifytest.NodeConfig{
		Cluster: cluster, Scanners: 2,
		Observer: func(c *observer.Config) {
			quick(c)
			c.Logger = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		},
		Register: func(r *percolator.Registry) { r.Strong("reader", raw, fn, opts...) },
	})
	return n, cluster, log
}

// TestForeignConflictsAreFailures: a conflict that the function returns from its own separate
// transaction is a failure like any other error: it is counted, and the row is parked.
func TestForeignConflictsAreFailures(t *testing.T) {
	for _, err := range []error{percolator.ErrConflict, percolator.ErrLocked,
		percolator.ErrClosed} {
		t.Run(err.Error(), func(t *testing.T) {
			n, cluster := one(t, func(context.Context, *percolator.Tx,
				percolator.Notification) error {
				return fmt.Errorf("nested: %w", err)
			}, percolator.MaxAttempts(3))
			set(t, n, "row", raw)
			notifytest.Eventually(t, time.Minute, "parked",
				parkedWith(cluster, n.Cell(table, "row", raw.Name), "nested", 3))
		})
	}
}

// TestEndlessConflictsPark: a function that makes its own run conflict every time is logged as a
// warning and reported by Stats and Rows, and its row is parked in the end. The same holds if no
// node ever serves its nested transactions.
func TestEndlessConflictsPark(t *testing.T) {
	for name, fn := range map[string]percolator.ObserverFunc{
		"conflict": func(ctx context.Context, tx *percolator.Tx, m percolator.Notification) error {
			tx.Set(m.Row, out, []byte("mine"))
			return percolator.DBFrom(ctx).Transact(ctx,
				func(_ context.Context, tx *percolator.Tx) error {
					tx.Set(m.Row, out, []byte("also mine"))
					return nil
				})
		},
		"unavailable": func(context.Context, *percolator.Tx, percolator.Notification) error {
			return fmt.Errorf("another service: %w", percolator.ErrUnavailable)
		},
	} {
		t.Run(name, func(t *testing.T) {
			// A run of the first attempt waits until the row is reported, which otherwise it is
			// only briefly.
			var runs atomic.Int64
			told := make(chan struct{})
			waiting := func(ctx context.Context, tx *percolator.Tx, m percolator.Notification) error {
				if runs.Add(1) == 50 {
					select {
					case <-told:
					case <-ctx.Done():
					}
				}
				return fn(ctx, tx, m)
			}
			n, cluster, log := logged(t, waiting, percolator.MaxAttempts(2))
			set(t, n, "row", raw)
			notifytest.Eventually(t, 30*time.Second, "the row is told of", func() bool {
				rows, err := n.Dispatcher.Rows(bounded(t, time.Minute))
				if err != nil {
					t.Fatal(err)
				}
				return len(rows[0]) == 1 && string(rows[0][0].Row) == "row" && rows[0][0].Retries >= 32 &&
					causes(n.Stats("reader"), rows[0][0]) == name
			})
			close(told)
			cell := n.Cell(table, "row", raw.Name)
			notifytest.Eventually(t, 60*time.Second, "parked",
				parkedWith(cluster, cell, "64 consecutive runs had no result", 2))
			// A function that returns ErrConflict itself may intend to wait; the warning comes when
			// that counts as failed.
			level := map[string]string{"conflict": "level=WARN", "unavailable": "level=DEBUG"}[name]
			if !log.has("keep losing conflicts", "row=row", "retries=32", level) ||
				!log.has("run failed", "row=row", "level=WARN") {
				t.Error("no log line names the row")
			}
			notifytest.Eventually(t, time.Minute, "nothing is told of a parked row",
				func() bool {
					s := n.Stats("reader")
					return s.Contended == 0 && s.Unserved == 0
				})
			// Two attempts of 64 conflicts, as the record says, the last of each a failure. A run
			// without a node's answer in time has not called the function and comes in addition.
			s := n.Stats("reader")
			if s.Failures != 2 || s.Conflicts+s.Unavailable < 126 || s.Conflicts+s.Unavailable > 126+64 {
				t.Errorf("%d failures, %d conflicts, %d unavailable; want 2 attempts of 64 runs", s.Failures,
					s.Conflicts, s.Unavailable)
			}
		})
	}
}

// causes returns why the observer's only row keeps failing, by the observer's statistics and the
// row's; empty if neither reports a cause or they contradict each other.
func causes(s observer.Stats, row *pb.ObserverRow) string {
	switch {
	case s.Contended == 1 && s.Unserved == 0 && 2*row.Unserved <= row.Retries:
		return "conflict"
	case s.Contended == 0 && s.Unserved == 1 && 2*row.Unserved > row.Retries:
		return "unavailable"
	}
	return ""
}

// TestMaxConflicts: the option sets the number of consecutive conflicts after which a run counts as
// failed.
func TestMaxConflicts(t *testing.T) {
	n, cluster := one(t, func(ctx context.Context, tx *percolator.Tx,
		m percolator.Notification) error {
		tx.Set(m.Row, out, []byte("mine"))
		return percolator.DBFrom(ctx).Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
			tx.Set(m.Row, out, []byte("also mine"))
			return nil
		})
	}, percolator.MaxAttempts(2), percolator.MaxConflicts(5))
	set(t, n, "row", raw)
	notifytest.Eventually(t, 60*time.Second, "parked", parkedWith(cluster,
		n.Cell(table, "row", raw.Name), "5 consecutive runs had no result", 2))
	n.WaitIdle(t)
	if s := n.Stats("reader"); s.Runs != 10 || s.Conflicts != 8 {
		t.Errorf("%d runs and %d conflicts, want 2 attempts of 5 runs, the last of each a failure",
			s.Runs, s.Conflicts)
	}
}

// TestSelfTriggeringIsWarnedOf: an observer that writes its observed column runs forever; the log
// names it and the row.
func TestSelfTriggeringIsWarnedOf(t *testing.T) {
	var log *record
	var cluster *notifytest.Cluster
	n, cluster, log := logged(t, func(_ context.Context, tx *percolator.Tx,
		m percolator.Notification) error {
		if m.Row == "loop" && !log.has("sets itself off") {
			tx.Set(m.Row, raw, []byte("x"))
		}
		return nil
	})
	set(t, n, "loop", raw)
	set(t, n, "once", raw)
	notifytest.Eventually(t, 60*time.Second, "warned", func() bool {
		return log.has("sets itself off", "row=loop", "observer=reader")
	})
	rows, err := n.Dispatcher.Rows(bounded(t, time.Minute))
	if err != nil || len(rows[0]) != 1 || string(rows[0][0].Row) != "loop" || rows[0][0].Cycle != "reader → reader" {
		t.Errorf("rows %v, %v", rows, err)
	}
	notifytest.Eventually(t, time.Minute, "it ends when the function stops", func() bool {
		return cluster.Dirty() == 0
	})
}

// TestLongRunsAreListed: a run that does not return is reported with its duration and as overdue.
func TestLongRunsAreListed(t *testing.T) {
	release := make(chan struct{})
	n, _ := one(t, func(context.Context, *percolator.Tx, percolator.Notification) error {
		<-release
		return nil
	}, percolator.Deadline(50*time.Millisecond))
	defer close(release)
	set(t, n, "stuck", raw)
	notifytest.Eventually(t, 30*time.Second, "listed", func() bool {
		rows, err := n.Dispatcher.Rows(bounded(t, time.Minute))
		return err == nil && len(rows[0]) == 1 && string(rows[0][0].Row) == "stuck" &&
			rows[0][0].RunningMs >= 1000 && rows[0][0].Overdue
	})
}
