package observer

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/notify"
)

// runs records the rows that ran, each with the time since began.
type runs struct {
	mu    sync.Mutex
	began time.Time
	all   []string
}

func (r *runs) observe(_ context.Context, _ *percolator.Tx, n percolator.Notification) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, fmt.Sprintf("%s %v", n.Row, time.Since(r.began)))
	return nil
}

func (r *runs) want(t *testing.T, want ...string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Equal(r.all, want) {
		t.Errorf("runs %q, want %q", r.all, want)
	}
}

// debounced starts a dispatcher in a synctest bubble, with timestamps by its clock.
func debounced(t *testing.T, d time.Duration, tune func(*Config)) (*Dispatcher, *fakeClient, *runs) {
	t.Helper()
	// The actor library's counter of dead letters must end in the bubble.
	t.Cleanup(func() { after(2 * time.Second) })
	r := &runs{began: time.Now()}
	disp, client := probe(t, r.observe, func(c *Config) {
		c.Observers[0].Spec.Debounce = d
		if tune != nil {
			tune(c)
		}
	})
	client.mu.Lock()
	client.timed = true
	client.mu.Unlock()
	return disp, client, r
}

// after advances virtual time.
func after(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// TestDebounce: a run starts when its cell has not changed for the debounce, and covers all earlier
// changes. Later changes start a new debounce.
func TestDebounce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, client, runs := debounced(t, time.Second, nil)
		for i := range 4 {
			client.change(cellOf("a"))
			want := notify.Collapsed
			if i == 0 {
				want = notify.Accepted
			}
			if got := offer(t, d, "a", nil, nil); got != want {
				t.Fatalf("hint %d: %v", i, got)
			}
			after(600 * time.Millisecond)
		}
		runs.want(t)
		if s := d.Stats()[0]; s.Waiting != 1 || s.Queued != 0 {
			t.Errorf("%d wait, %d are queued", s.Waiting, s.Queued)
		}
		after(time.Minute)
		runs.want(t, "a 2.8s")
		client.change(cellOf("a"))
		offer(t, d, "a", nil, nil)
		after(time.Minute)
		runs.want(t, "a 2.8s", "a 1m3.4s")
		if s := d.Stats()[0]; s.Waiting != 0 || s.Skipped != 0 {
			t.Errorf("%d wait, %d runs were for nothing", s.Waiting, s.Skipped)
		}
	})
}

// TestDebounceEnds: a cell that changes without pause runs after ten times the debounce.
func TestDebounceEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, client, runs := debounced(t, time.Second, nil)
		for range 39 {
			client.change(cellOf("a"))
			offer(t, d, "a", nil, nil)
			after(500 * time.Millisecond)
		}
		runs.want(t, "a 10s")
	})
}

// TestDebounceUnheard: a change without a hint also delays the run, because the run reads the
// timestamps again.
func TestDebounceUnheard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, client, runs := debounced(t, time.Second, nil)
		client.change(cellOf("a"))
		offer(t, d, "a", nil, nil)
		after(900 * time.Millisecond)
		client.change(cellOf("a"))
		after(time.Minute)
		runs.want(t, "a 1.9s")
	})
}

// TestDebounceUnheardInBatch: only the cells of a batch whose debounce has passed run.
func TestDebounceUnheardInBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all *runs
		d, client, runs := debounced(t, time.Second, func(c *Config) {
			s := &c.Observers[0].Spec
			s.Func, s.Batch = nil, 10
			s.BatchFunc = func(ctx context.Context, tx *percolator.Tx,
				changes []percolator.Notification) error {
				for _, n := range changes {
					_ = all.observe(ctx, tx, n)
				}
				return nil
			}
		})
		all = runs
		for _, row := range []string{"a1", "a2", "a3"} {
			client.change(cellOf(row))
			offer(t, d, row, nil, nil)
		}
		after(900 * time.Millisecond)
		client.change(cellOf("a1"))
		after(time.Minute)
		runs.want(t, "a2 1s", "a3 1s", "a1 1.9s")
	})
}

// TestDebounceFound: a cell found by a scanner waits only for the remainder of its debounce, by its
// timestamp, so nothing waits twice after a restart.
func TestDebounceFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, client, runs := debounced(t, time.Second, nil)
		old := client.change(cellOf("old"))
		after(800 * time.Millisecond)
		young := client.change(cellOf("young"))
		after(400 * time.Millisecond)
		offer(t, d, "old", old, nil)
		offer(t, d, "young", young, nil)
		after(time.Minute)
		runs.want(t, "old 1.2s", "young 1.8s")
	})
}

// TestDebounceTakesNoRoom: cells that wait for their debounce hold neither a slot, nor the finder's
// slot, nor a place in the queue; their number is bounded.
func TestDebounceTakesNoRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, client, runs := debounced(t, time.Minute, func(c *Config) { c.Queue = 3 })
		old := client.change(cellOf("old"))
		after(time.Minute)
		runs.mu.Lock()
		runs.began = time.Now()
		runs.mu.Unlock()
		var freed, done atomic.Int32
		young := func(row string) notify.Admission {
			got, err := d.Submit(t.Context(), []notify.Dirty{{
				Cell: cellOf(row), Notify: client.change(cellOf(row)), Held: true,
				Waits: func() { freed.Add(1) }, Done: func() { done.Add(1) },
			}})
			if err != nil {
				t.Fatal(err)
			}
			return got[0]
		}
		for i := range 4 {
			want := notify.Accepted
			if i == 3 {
				want = notify.Deferred
			}
			if got := young(fmt.Sprint("young", i)); got != want {
				t.Errorf("%d: %v, want %v", i, got, want)
			}
		}
		if freed.Load() != 3 || done.Load() != 0 {
			t.Errorf("%d slots were released and %d locks, want 3 and 0", freed.Load(),
				done.Load())
		}
		if got := offer(t, d, "old", old, nil); got != notify.Accepted {
			t.Errorf("after the debounce: %v", got)
		}
		synctest.Wait()
		runs.want(t, "old 0s")
		after(time.Minute)
		if n := d.Stats()[0].Commits; n != 4 || done.Load() != 3 {
			t.Errorf("%d commits, %d locks released; want 4 and 3", n, done.Load())
		}
	})
}

// TestDebounceIsLetGo: pausing an observer and stopping the dispatcher release the waiting cells.
func TestDebounceIsLetGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, client, runs := debounced(t, time.Minute, nil)
		var done atomic.Int32
		for range 2 {
			client.change(cellOf("a"))
			offer(t, d, "a", nil, func() { done.Add(1) })
			pause(t, d, true)
			if s := d.Stats()[0]; s.Waiting != 0 {
				t.Errorf("%d wait while it is paused", s.Waiting)
			}
			pause(t, d, false)
		}
		offer(t, d, "a", nil, func() { done.Add(1) })
		if err := d.Stop(t.Context()); err != nil || done.Load() != 3 {
			t.Errorf("stop: %v; %d locks released, want 3", err, done.Load())
		}
		runs.want(t)
	})
}

func pause(t *testing.T, d *Dispatcher, paused bool) {
	t.Helper()
	if err := d.Control(t.Context(),
		[]*pb.ObserverInfo{{Name: "o", Paused: paused}}); err != nil {
		t.Fatal(err)
	}
}

// TestPriority: rows with the highest priority run first, rows of equal priority in order, and
// every eighth run takes the row that has waited longest. A function that panics counts as priority
// 0.
func TestPriority(t *testing.T) {
	var asked atomic.Int32
	priorities := map[string]int{"low": -1, "high": 2, "higher": 3}
	begun, release := make(chan struct{}, 1), make(chan struct{})
	var order []string
	d, client := probe(t, func(_ context.Context, _ *percolator.Tx,
		n percolator.Notification) error {
		begun <- struct{}{}
		<-release
		order = append(order, n.Row[1:])
		return nil
	}, func(c *Config) {
		c.Observers[0].Spec.Priority = func(n percolator.Notification) int {
			asked.Add(1)
			if n.Row[1:] == "panics" {
				panic("none")
			}
			return priorities[n.Row[1:]]
		}
	})
	names := []string{"first", "low", "panics", "high", "none", "higher", "high"}
	for range 6 {
		names = append(names, "higher")
	}
	for i, name := range names {
		cell := string(rune('a'+i)) + name
		if got := offer(t, d, cell, client.change(cellOf(cell)), nil); got != notify.Accepted {
			t.Fatalf("%s: %v", cell, got)
		}
		if i == 0 {
			<-begun // the others queue behind it
		}
	}
	offer(t, d, "bhigh", client.change(cellOf("bhigh")), nil)
	offer(t, d, "bhigh", nil, nil) // already queued
	close(release)
	until(t, "all ran", func() bool {
		select {
		case <-begun:
		default:
		}
		return d.Stats()[0].Commits == uint64(len(names)+1)
	})
	want := []string{
		"first", "higher", "higher", "higher", "higher", "higher", "higher", "low", "higher",
		"high", "high", "high", "panics", "none",
	}
	if !slices.Equal(order, want) || int(asked.Load()) != len(want) {
		t.Errorf("order %q, want %q; queried %d times", order, want, asked.Load())
	}
}

// TestRankKnows: the fields of the notification passed to Priority.
func TestRankKnows(t *testing.T) {
	var got []percolator.Notification
	l := &registeredObserver{spec: spec{
		Column:   percolator.Column{Table: "t", Name: "c"},
		Priority: func(n percolator.Notification) int { got = append(got, n); return 1 },
	}}
	l.rank(&entry{cell: cellOf("hint")})
	l.rank(&entry{cell: cellOf("found"), known: &mvcc.Notify{TS: 7, Attempts: 2}})
	want := []percolator.Notification{
		{Row: "hint", Column: l.spec.Column},
		{Row: "found", Column: l.spec.Column, CommitTS: 7, TS: 7, Attempt: 2},
	}
	if !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}
