package node_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"syscall"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/node"
)

// TestTimersFailOver: timers pending when the node that leads meta dies are fired by the next one.
// A timer of a column without a weak observer is refused.
func TestTimersFailOver(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	wake, woken := percolator.Column{Table: "beds", Name: "wake"},
		percolator.Column{Table: "beds", Name: "woken"}
	r := three(ctx, t, 1, func(_ int, c *node.Config) {
		c.Observers = func(r *percolator.Registry) {
			r.Weak("wakes", wake, func(_ context.Context, tx *percolator.Tx,
				n percolator.Notification) error {
				tx.Set(n.Row, woken, []byte("yes"))
				return nil
			})
		}
	})
	r.lead(ctx, cluster.MetaTablet, 2)
	db := r.nodes[0].DB()
	const rows = 20
	for i := range rows {
		err := db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
			tx.NotifyAfter(fmt.Sprint(i), wake, time.Duration(i)*200*time.Millisecond)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	err := db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
		tx.NotifyAfter("row", woken, 0)
		return nil
	})
	if !errors.Is(err, percolator.ErrNotifyOnly) {
		t.Errorf("a timer of a column that nothing observes: %v", err)
	}
	r.crash(2)
	awaitTrue(ctx, t, "all timers have fired", func() bool {
		n := 0
		s, err := db.Snapshot(ctx)
		if err != nil {
			return false
		}
		defer func() { _ = s.Close() }()
		for _, err := range s.Scan(ctx, percolator.Rows("beds"), woken) {
			if err != nil {
				return false
			}
			n++
		}
		return n == rows
	})
}

// BenchmarkPendingTimers: the CPU time and memory of a node with this many timers due in a day,
// which should be those without timers. An operation is a second.
func BenchmarkPendingTimers(b *testing.B) {
	for _, timers := range []int{0, 100_000, 1_000_000} {
		b.Run(fmt.Sprint(timers), func(b *testing.B) {
			wake := percolator.Column{Table: "beds", Name: "wake"}
			n := open(b, b.TempDir(), func(c *node.Config) {
				c.Observers = func(r *percolator.Registry) {
					r.Weak("wakes", wake, func(context.Context, *percolator.Tx,
						percolator.Notification) error {
						return nil
					})
				}
			})
			for at := 0; at < timers; at += 1000 {
				err := n.DB().Transact(b.Context(), func(_ context.Context,
					tx *percolator.Tx) error {
					for i := range 1000 {
						tx.NotifyAfter(fmt.Sprint(at+i), wake, 24*time.Hour)
					}
					return nil
				})
				if err != nil {
					b.Fatal(err)
				}
			}
			second := time.NewTicker(time.Second)
			defer second.Stop()
			for range 90 { // until everything was reread once, and the store has compacted
				<-second.C
			}
			before := used(b)
			for b.Loop() {
				<-second.C
			}
			b.ReportMetric(float64((used(b)-before).Microseconds())/float64(b.N), "cpu-us/op")
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			b.ReportMetric(float64(m.HeapAlloc)/(1<<20), "heap-MiB")
		})
	}
}

// used returns the CPU time of this process.
func used(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
