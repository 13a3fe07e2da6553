package timers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/mvcc/mvcctest"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/txn/txntest"
	"github.com/percolator-go/percolator/internal/wire"
)

const column = "poke"

// world is a repository in memory with a weak column, the client that sets timers, and a timer job
// that a test executes turn by turn in virtual time.
type world struct {
	t       testing.TB
	cluster *txntest.Cluster
	process *txntest.Process // the job's
	client  *txn.Client
	work    *work
	stats   *Stats
	table   mvcc.TableID
	began   time.Time
	written atomic.Uint64 // mutations sent by client
	splits  []string
	retired bool // whether the observer is retired
	// catalogue, if set, is called after the catalogue has been read.
	catalogue func(*pb.Catalogue)
}

func newWorld(t testing.TB) *world {
	w := &world{t: t, cluster: txntest.New(), began: time.Now()}
	w.table = w.cluster.AddTable("docs")
	w.cluster.Observe(w.table, column, mvcc.ObservedWeak)
	w.cluster.Announce(w.table, column)
	setting := w.cluster.Process(1, 1)
	setting.Inject(func(req *pb.TabletRequest) txntest.Fault {
		if !wire.OperationOf(req).Reads() {
			w.written.Add(1)
		}
		return txntest.Fault{}
	})
	w.client = txn.NewClient(setting, txn.Config{})
	w.process = w.cluster.Process(2, 1)
	client := txn.NewClient(w.process, txn.Config{LockTTL: 100 * time.Millisecond})
	w.lead(client)
	t.Cleanup(func() {
		for _, c := range []*txn.Client{w.client, client} {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	return w
}

// lead creates the job of a node that has just become leader of meta.
func (w *world) lead(client *txn.Client) {
	w.stats = new(Stats)
	cfg, err := Config{
		Meta: w, Client: client, Stats: w.stats,
		Tablets: func(context.Context) ([]Tablet, error) {
			return []Tablet{{ID: 2, Applied: w.written.Load(), Shared: len(w.splits) == 0}}, nil
		},
	}.withDefaults()
	if err != nil {
		w.t.Fatal(err)
	}
	w.work = newWork(cfg)
}

func (w *world) Catalogue(ctx context.Context) (*pb.Catalogue, error) {
	if w.retired {
		return &pb.Catalogue{}, nil
	}
	c, err := w.process.Catalogue(ctx)
	if w.catalogue != nil {
		w.catalogue(c)
	}
	return c, err
}

func (w *world) SplitAt(_ context.Context, table mvcc.TableID, row string) error {
	w.splits = append(w.splits, fmt.Sprint(table, row))
	return nil
}

// set sets timers in one transaction.
func (w *world) set(d time.Duration, rows ...string) {
	w.t.Helper()
	_, err := w.client.Run(w.t.Context(), txn.Options{}, func(_ context.Context, t *txn.Txn) error {
		for _, row := range rows {
			t.NotifyAfter(txn.Key{Table: "docs", Row: row, Column: column}, d)
		}
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// turn executes one turn of the job.
func (w *world) turn() time.Duration { return w.work.turn(w.t.Context()) }

// run runs the job for a duration.
func (w *world) run(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		<-time.After(max(w.turn(), time.Millisecond))
	}
}

// fired returns the time after the start at which the row was notified; -1: never.
func (w *world) fired(row string) time.Duration {
	cell := mvcc.Cell{Table: w.table, Row: row, Column: column}
	at := time.Duration(-1)
	w.cluster.Look(func(v *mvcctest.MemView) {
		if n, ok, _ := v.Notification(cell); ok {
			at = time.UnixMilli(n.TS.Millis()).Sub(w.began)
		}
	})
	return at
}

// between fails unless the row was notified in that interval.
func (w *world) between(row string, from, to time.Duration) {
	w.t.Helper()
	if at := w.fired(row); at < from || at > to {
		if at >= 0 && at < from {
			w.t.Errorf("TIMER-EARLY: %s fired at %v, want %v", row, at, from)
			return
		}
		w.t.Errorf("%s fired at %v, want %v to %v", row, at, from, to)
	}
}

func bubble(t *testing.T, test func(t *testing.T, w *world)) {
	synctest.Test(t, func(t *testing.T) { test(t, newWorld(t)) })
}

// TestFiresWhenDue: a timer fires not before it is due, and within a pause after. One set later
// fires in order, also if it is due before the known ones.
func TestFiresWhenDue(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.set(time.Hour, "hour")
		w.set(10*time.Second, "ten")
		w.run(5 * time.Second)
		w.set(time.Second, "six")
		w.set(0, "now")
		w.run(2 * time.Hour)
		w.between("now", 5*time.Second, 5*time.Second+DefaultPause+10*time.Millisecond)
		w.between("six", 6*time.Second, 6*time.Second+DefaultPause+10*time.Millisecond)
		w.between("ten", 10*time.Second, 10*time.Second+DefaultPause+10*time.Millisecond)
		w.between("hour", time.Hour, time.Hour+DefaultPause+10*time.Millisecond)
		if n := w.stats.Fired.Load(); n != 4 || w.stats.Moved.Load() != 0 {
			t.Errorf("%d fired, %d moved", n, w.stats.Moved.Load())
		}
		if len(w.splits) != 1 {
			t.Errorf("tablets were made at %q, want one for the timers", w.splits)
		}
	})
}

// TestLeaps: the oracle's time leaps when meta's leader changes, because it must start above all
// timestamps that the previous one may have granted; that makes no timer fire early.
func TestLeaps(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.set(10*time.Second, "ten")
		w.run(time.Second)
		w.cluster.Advance(8 * time.Second)
		w.run(time.Minute)
		// By the oracle, which is 8 s ahead.
		w.between("ten", 18*time.Second, 18*time.Second+DefaultPause+10*time.Millisecond)
	})
}

// TestOneOfOne: the same timer set twice is one; its notification carries the origin of the
// transaction that set it.
func TestOneOfOne(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.set(time.Second, "row", "row")
		w.run(3 * time.Second)
		if n := w.stats.Fired.Load(); n != 1 {
			t.Errorf("%d fired, want 1", n)
		}
	})
}

// TestCommitCounts: the delay counts from the commit, however long the transaction took before, and
// also if the commit itself is slow.
func TestCommitCounts(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		_, err := w.client.Run(t.Context(), txn.Options{}, func(ctx context.Context,
			tx *txn.Txn) error {
			if _, err := tx.Start(ctx); err != nil {
				return err
			}
			tx.NotifyAfter(txn.Key{Table: "docs", Row: "long", Column: column}, 2*time.Second)
			w.run(5 * time.Second)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		w.run(5 * time.Second)
		w.between("long", 7*time.Second, 7300*time.Millisecond)

		// As a commit of three seconds leaves it: due by its start, but not yet by its commit.
		w.raw(mvcc.Timer{
			Target: mvcc.Cell{Table: w.table, Row: "slow", Column: column},
			Due:    time.Now().Add(-time.Second).UnixMilli(), After: 2000,
		})
		set := time.Since(w.began)
		w.run(5 * time.Second)
		w.between("slow", set+2*time.Second, set+2300*time.Millisecond)
		if n := w.stats.Moved.Load(); n != 1 {
			t.Errorf("%d were moved, want 1", n)
		}
	})
}

// raw writes a timer's cell directly.
func (w *world) raw(timer mvcc.Timer) {
	w.t.Helper()
	cell, value := timer.Write()
	_, err := w.client.Run(w.t.Context(), txn.Options{}, func(_ context.Context, t *txn.Txn) error {
		t.SetCell(cell, value)
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// TestLateCommits: a timer committed long after it was due, behind the position that the job has
// read, is found within a minute, and by the next leader at once.
func TestLateCommits(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		late := func(row string) {
			for shard := range 64 { // so that some of them are in a shard that has been read
				w.raw(mvcc.Timer{
					Target: mvcc.Cell{Table: w.table, Row: fmt.Sprint(row, shard), Column: column},
					Due:    w.began.Add(-time.Minute).UnixMilli(),
				})
			}
		}
		for i := range 64 {
			w.set(0, fmt.Sprint(i))
		}
		w.run(10 * time.Second)
		late("first")
		w.run(5 * time.Second)
		if w.fired("first1") >= 0 {
			t.Error("the job reads again what it has fired")
		}
		w.run(time.Minute)
		w.between("first1", 10*time.Second, 61*time.Second)
		late("second")
		w.lead(w.work.cfg.Client)
		w.run(time.Second)
		w.between("second1", 75*time.Second, 77*time.Second)
	})
}

// TestNotLost: a job that crashes while it fires, or does not receive the outcome, loses no timer,
// and the next job fires each.
func TestNotLost(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		const n = 40
		for i := range n {
			w.set(time.Second, fmt.Sprint(i))
		}
		<-time.After(2 * time.Second)
		// Each operation of the job once fails to reach its tablet, and once loses its reply; then
		// all later ones are lost, and another job begins.
		for broken := 0; ; broken++ {
			seen, reached := 0, false
			w.process.Inject(func(req *pb.TabletRequest) txntest.Fault {
				if seen++; seen > broken {
					reached = true
					return txntest.Fault{NotSent: broken%2 == 0 || seen > broken+1, Reply: true}
				}
				return txntest.Fault{}
			})
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			w.work.turn(ctx)
			cancel()
			w.process.Inject(nil)
			client := txn.NewClient(w.process, txn.Config{LockTTL: 100 * time.Millisecond})
			t.Cleanup(func() { _ = client.Close() })
			w.lead(client)
			if !reached {
				break
			}
		}
		w.run(time.Minute)
		for i := range n {
			if w.fired(fmt.Sprint(i)) < time.Second {
				t.Errorf("TIMER-LOST: %d fired at %v", i, w.fired(fmt.Sprint(i)))
			}
		}
	})
}

// TestGoneObservers: timers of columns without an observer are deleted when they are due, and so
// are invalid entries.
func TestGoneObservers(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.set(time.Second, "gone")
		cell, _ := mvcc.Timer{Target: mvcc.Cell{Table: w.table}, Due: 1}.Write()
		_, err := w.client.Run(t.Context(), txn.Options{}, func(_ context.Context,
			tx *txn.Txn) error {
			tx.SetCell(cell, nil)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		w.retired = true
		w.cluster.Observe(w.table, column, mvcc.NotObserved)
		w.run(5 * time.Second)
		if n := w.stats.Dropped.Load(); n != 2 || w.fired("gone") >= 0 {
			t.Errorf("%d were dropped, want 2; fired at %v", n, w.fired("gone"))
		}
		reads := w.stats.Reads.Load()
		w.run(time.Hour)
		if more := w.stats.Reads.Load() - reads; more > 2*mvcc.TimerShards {
			t.Errorf("%d reads although there are no timers", more)
		}
	})
}

// TestNobodyServes: timers whose rows are unavailable do not delay others, and fire once the rows
// are served.
func TestNobodyServes(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.cluster.Split(w.table, "m")
		w.set(time.Second, "a", "b", "z")
		for i := range 30 {
			w.set(time.Second, fmt.Sprint("c", i), fmt.Sprint("n", i))
		}
		away := errors.New("away")
		w.process.Inject(func(req *pb.TabletRequest) txntest.Fault {
			for _, c := range wire.SubjectOf(req).Intents {
				if string(c.Row) >= "m" {
					return txntest.Fault{Answer: &pb.Error{
						Code: pb.Error_CODE_NOT_LEADER, Message: away.Error(),
					}}
				}
			}
			return txntest.Fault{}
		})
		w.run(2 * time.Minute)
		for _, row := range []string{"a", "b", "c0", "c29"} {
			if w.fired(row) < 0 {
				t.Errorf("%s has not fired", row)
			}
		}
		if w.fired("z") >= 0 {
			t.Error("z has fired although nobody serves it")
		}
		w.process.Inject(nil)
		w.run(time.Minute)
		for _, row := range []string{"z", "n0", "n29"} {
			if w.fired(row) < 0 {
				t.Errorf("%s has not fired in the end", row)
			}
		}
	})
}

// TestWhatWaitsCostsNothing: turns read nothing while nothing is due and nothing was written.
func TestWhatWaitsCostsNothing(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		for i := range 1000 {
			w.set(time.Hour, fmt.Sprint(i))
		}
		w.run(2 * time.Minute) // it reads everything once more
		reads, operations := w.stats.Reads.Load(), w.cluster.Operations()
		w.run(30 * time.Minute)
		if n, m := w.stats.Reads.Load(), w.cluster.Operations(); n != reads || m != operations {
			t.Errorf("%d reads and %d operations while nothing was due", n-reads, m-operations)
		}
		w.run(30 * time.Minute)
		if n := w.stats.Fired.Load(); n != 1000 {
			t.Errorf("%d fired, want 1000", n)
		}
	})
}

// TestOnlyWeakColumns: a timer of a column without a weak observer is refused at once.
func TestOnlyWeakColumns(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.cluster.Observe(w.table, "strong", mvcc.ObservedStrong)
		for _, name := range []string{"strong", "unknown"} {
			_, err := w.client.Run(t.Context(), txn.Options{}, func(_ context.Context,
				tx *txn.Txn) error {
				tx.NotifyAfter(txn.Key{Table: "docs", Row: "r", Column: name}, time.Second)
				return nil
			})
			if !errors.Is(err, txn.ErrNotifyOnly) {
				t.Errorf("%s: %v", name, err)
			}
		}
		tx, err := w.client.Begin(t.Context(), txn.Options{})
		if err != nil {
			t.Fatal(err)
		}
		tx.NotifyAfter(txn.Key{Table: "docs", Row: "dropped", Column: column}, 0)
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.run(time.Second)
		if w.written.Load() != 0 || w.fired("dropped") >= 0 {
			t.Error("a timer of a transaction that did not commit")
		}
	})
}

// rowIn returns a row whose timers of the column are in the shard.
func (w *world) rowIn(shard byte, column string) string {
	for i := 0; ; i++ {
		row := fmt.Sprint(column, i)
		timer := mvcc.Timer{Target: mvcc.Cell{Table: w.table, Row: row, Column: column}}
		if cell, _ := timer.Write(); cell.Row[0] == shard {
			return row
		}
	}
}

// TestRegisteredMeanwhile: a timer whose observer is registered while a turn fires others, before
// the timer is due, is not dropped: the catalogue is read again.
func TestRegisteredMeanwhile(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		const late = "late"
		w.cluster.Observe(w.table, late, mvcc.ObservedWeak)
		w.catalogue = func(c *pb.Catalogue) {
			w.catalogue = nil
			w.cluster.Announce(w.table, late) // later than this answer
		}
		first := w.rowIn(0, column)
		w.set(time.Second, first)
		second := mvcc.Cell{Table: w.table, Row: w.rowIn(5, late), Column: late}
		w.raw(mvcc.Timer{Target: second, Due: w.began.Add(time.Second).UnixMilli()})
		w.run(5 * time.Second)
		w.between(first, time.Second, 2*time.Second)
		w.cluster.Look(func(v *mvcctest.MemView) {
			if _, ok, _ := v.Notification(second); !ok {
				t.Error("TIMER-LOST: the timer of an observer that was registered in time was dropped")
			}
		})
	})
}

// TestForgedTimers: cells that a client writes directly into the table of timers block nothing: an
// invalid value waits unread until its row is due, and a timer of a row too long to be notified is
// deleted.
func TestForgedTimers(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		long := mvcc.Cell{Table: w.table, Row: strings.Repeat("x", 5000), Column: column}
		w.raw(mvcc.Timer{Target: long, Due: w.began.UnixMilli()})
		forged, _ := mvcc.Timer{
			Target: mvcc.Cell{Table: w.table}, Due: w.began.Add(time.Hour).UnixMilli(),
		}.Write()
		_, err := w.client.Run(t.Context(), txn.Options{}, func(_ context.Context,
			tx *txn.Txn) error {
			tx.SetCell(forged, []byte("none"))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		w.set(0, "good")
		w.run(2 * time.Minute)
		w.between("good", 0, time.Second)
		if n := w.stats.Dropped.Load(); n != 1 {
			t.Errorf("%d were dropped, want the one of the long row", n)
		}
		reads := w.stats.Reads.Load()
		w.run(30 * time.Minute)
		if n := w.stats.Reads.Load() - reads; n != 0 {
			t.Errorf("%d reads while nothing was due", n)
		}
		w.run(time.Hour)
		if n := w.stats.Dropped.Load(); n != 2 {
			t.Errorf("%d were dropped, want 2", n)
		}
	})
}
