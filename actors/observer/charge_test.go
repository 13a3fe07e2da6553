package observer_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/actors/observer"
	"github.com/percolator-go/percolator/actors/scanner"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/notifytest"
	"github.com/percolator-go/percolator/internal/txn/txntest"
)

// mortal is a process that dies when its observer receives the row "killer": its later requests are
// dropped. The row "beside" is halfway through its run when the first process dies.
type mortal struct {
	node *notifytest.Node
	dead atomic.Bool
	died chan struct{}
	once sync.Once
	runs *atomic.Int32 // runs of the killer row in all processes
}

func (m *mortal) run(first bool) percolator.ObserverFunc {
	return func(ctx context.Context, _ *percolator.Tx, n percolator.Notification) error {
		switch {
		case n.Row == "killer":
			m.runs.Add(1)
			m.dead.Store(true)
			m.once.Do(func() { close(m.died) })
			<-ctx.Done()
		case n.Row == "beside" && first:
			<-ctx.Done()
		}
		return ctx.Err()
	}
}

// register registers the observer with batches of at most n rows.
func (m *mortal) register(r *percolator.Registry, first bool, batch int) {
	if batch == 0 {
		r.Strong("reader", raw, m.run(first), percolator.MaxAttempts(3))
		return
	}
	one := m.run(false) // the batch that kills the process is the one running beside
	r.StrongBatch("reader", raw, func(ctx context.Context, tx *percolator.Tx,
		changes []percolator.Notification) error {
		for _, n := range changes {
			if err := one(ctx, tx, n); err != nil {
				return err
			}
		}
		return nil
	}, percolator.MaxAttempts(3), percolator.Batch(batch))
}

func live(t *testing.T, cluster *notifytest.Cluster, id uint64, runs *atomic.Int32,
	batch int) *mortal {
	t.Helper()
	m := &mortal{died: make(chan struct{}), runs: runs}
	now := cluster.Timestamps(1)
	m.node = notifytest.Start(t, notifytest.NodeConfig{
		Cluster: cluster, ID: id, Scanners: 2, Hints: scanner.HintsOff, NoSweep: true,
		Faults: func(*pb.TabletRequest) txntest.Fault { return txntest.Fault{Lost: m.dead.Load()} },
		Observer: func(c *observer.Config) {
			quick(c)
			c.Suspect = func() mvcc.Timestamp { return now }
		},
		Register: func(r *percolator.Registry) { m.register(r, id == 1, batch) },
	})
	return m
}

// end stops the process without waiting for its runs.
func (m *mortal) end(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := m.node.Scanners.Stop(bounded(t, time.Minute)); err != nil {
		t.Error(err)
	}
	if err := m.node.Dispatcher.Stop(ctx); err != nil && !errors.Is(err, observer.ErrStillRunning) {
		t.Error(err)
	}
	// The runs of a dead process end before the test does; otherwise their commits are retried for
	// seconds.
	t.Cleanup(func() {
		m.dead.Store(false)
		if err := m.node.Dispatcher.Stop(bounded(t, time.Minute)); err != nil {
			t.Error(err)
		}
	})
}

// TestRowThatKillsIsParked: a row that kills every process that runs it is parked after MaxAttempts
// deaths. The other rows run, including one that was running when a process died.
func TestRowThatKillsIsParked(t *testing.T) { testRowThatKills(t, 0) }

// TestBatchThatKills: a row that kills every process that runs it in a batch is parked after
// MaxAttempts deaths; the batch's other rows are not parked.
func TestBatchThatKills(t *testing.T) { testRowThatKills(t, 30) }

func testRowThatKills(t *testing.T, batch int) {
	cluster := notifytest.NewCluster()
	writer := notifytest.Start(t, notifytest.NodeConfig{
		Cluster: cluster, ID: 99, Scanners: -1, Hints: scanner.HintsOff, NoSweep: true,
		Register: func(r *percolator.Registry) {
			r.Strong("reader", raw, func(context.Context, *percolator.Tx,
				percolator.Notification) error {
				return nil
			})
		},
	})
	set(t, writer, "killer", raw)
	set(t, writer, "beside", raw)
	for i := range 20 {
		set(t, writer, fmt.Sprint("row", i), raw)
	}
	var runs atomic.Int32
	cell := writer.Cell(table, "killer", raw.Name)
	parked := parkedWith(cluster, cell, "has not ended", 3)
	for id := uint64(1); id <= 8; id++ {
		m := live(t, cluster, id, &runs, batch)
		notifytest.Eventually(t, 30*time.Second, "the process dies, or the row is parked",
			func() bool {
				select {
				case <-m.died:
					return true
				default:
					return parked()
				}
			})
		if parked() {
			notifytest.Eventually(t, 30*time.Second, "all others are run for", func() bool {
				return cluster.Dirty() == 1
			})
		}
		m.end(t)
	}
	if got := runs.Load(); got != 3 || !parked() {
		e, _ := cluster.Notification(cell)
		t.Errorf("UNCHARGED: the row has ended %d processes, want 3; its notification is %+v", got,
			e)
	}
}

// TestChargedRunsCountOnce: a run whose attempt was recorded before it began counts once if it
// fails and not at all if it succeeds; a change newer than any death is not charged.
func TestChargedRunsCountOnce(t *testing.T) {
	cluster := notifytest.NewCluster()
	var until atomic.Uint64
	var failures atomic.Int32
	var fails atomic.Int32 // FailNotify requests
	n := notifytest.Start(t, notifytest.NodeConfig{
		Cluster: cluster, Scanners: 2, Hints: scanner.HintsOff,
		Faults: func(req *pb.TabletRequest) txntest.Fault {
			if req.GetFailNotify() != nil {
				fails.Add(1)
			}
			return txntest.Fault{}
		},
		Observer: func(c *observer.Config) {
			quick(c)
			c.Suspect = func() mvcc.Timestamp { return mvcc.Timestamp(until.Load()) }
		},
		Register: func(r *percolator.Registry) {
			r.Strong("reader", raw, func(_ context.Context, _ *percolator.Tx,
				m percolator.Notification) error {
				if got := failures.Load(); m.Row == "bad" && int(got) != m.Attempt {
					t.Errorf("attempt %d after %d failures", m.Attempt, got)
				}
				if m.Row == "bad" && failures.Add(1) < 4 {
					return errors.New("once more")
				}
				return nil
			}, percolator.MaxAttempts(4))
		},
	})
	set(t, n, "young", raw)
	notifytest.Eventually(t, time.Minute, "run", func() bool { return cluster.Dirty() == 0 })
	if got := fails.Load(); got != 0 {
		t.Errorf("%d attempts written for a run that was never in doubt", got)
	}
	until.Store(uint64(mvcc.MaxTimestamp))
	set(t, n, "bad", raw)
	notifytest.Eventually(t, time.Minute, "succeeded in the end", func() bool {
		return n.Stats("reader").Commits == 2 && cluster.Dirty() == 0
	})
	if s := n.Stats("reader"); s.Failures != 3 || s.Parked != 0 {
		t.Errorf("%+v", s)
	}
}

// TestInterruptedBatchCountsNothing: a batch interrupted by an orderly shutdown withdraws the
// attempts recorded before it, of all rows in one request, also if an earlier run recorded them and
// the rows are known from hints only.
func TestInterruptedBatchCountsNothing(t *testing.T) {
	const rows = 8
	cluster := notifytest.NewCluster()
	released, inside := make(chan struct{}), make(chan int, 1)
	var takingBack sync.WaitGroup
	n := notifytest.Start(t, notifytest.NodeConfig{
		Cluster: cluster, Scanners: -1, NoSweep: true,
		Faults: func(req *pb.TabletRequest) txntest.Fault {
			if f := req.GetFailNotify(); f == nil || f.Attempts != 0 {
				return txntest.Fault{}
			}
			return txntest.Fault{Before: func(context.Context) {
				takingBack.Done()
				takingBack.Wait() // none finishes before all are sent
			}}
		},
		Observer: func(c *observer.Config) {
			quick(c)
			c.Grace = 20 * time.Second
			c.Suspect = func() mvcc.Timestamp { return mvcc.MaxTimestamp }
		},
		Register: func(r *percolator.Registry) {
			r.StrongBatch("reader", raw, func(ctx context.Context, _ *percolator.Tx,
				changes []percolator.Notification) error {
				switch {
				case changes[0].Row == "first":
					<-released
					return nil
				case len(changes) == rows:
					return percolator.ErrConflict
				}
				takingBack.Add(len(changes))
				inside <- len(changes)
				<-ctx.Done()
				return ctx.Err()
			}, percolator.Batch(rows), percolator.Concurrency(1))
		},
	})
	set(t, n, "first", raw)
	notifytest.Eventually(t, time.Minute, "the first runs", func() bool {
		return n.Stats("reader").Running == 1
	})
	for i := range rows {
		set(t, n, fmt.Sprint("row", i), raw)
	}
	notifytest.Eventually(t, time.Minute, "the others wait", func() bool {
		return n.Stats("reader").Queued == rows
	})
	close(released)
	interrupted := <-inside
	attempts := func() (counted int) {
		for i := range rows {
			e, _ := cluster.Notification(n.Cell(table, fmt.Sprint("row", i), raw.Name))
			counted += int(e.Attempts)
		}
		return counted
	}
	if got := attempts(); got != rows {
		t.Fatalf("%d attempts were recorded before their runs, want %d", got, rows)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := n.Dispatcher.Stop(gone); err != nil && !errors.Is(err, observer.ErrStillRunning) {
		t.Error(err)
	}
	notifytest.Eventually(t, time.Minute, "the batch takes its attempts back", func() bool {
		return attempts() == rows-interrupted
	})
}
