package observer

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/actorkit"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/notify"
	"github.com/percolator-go/percolator/internal/tracing"
	"github.com/percolator-go/percolator/internal/txn"
)

// fakeClient is a transaction layer in which every cell is dirty at its notify entry's timestamp.
type fakeClient struct {
	mu      sync.Mutex
	now     mvcc.Timestamp
	entries map[mvcc.Cell]mvcc.Notify
	timed   bool // whether timestamps follow the clock
	rest    chan struct{}
	failed  []mvcc.FailNotifyRequest // all requests to FailNotify
}

// tick returns the next timestamp.
func (f *fakeClient) tick() mvcc.Timestamp {
	f.now++
	if f.timed {
		f.now = max(f.now, mvcc.TimestampAt(time.Now().UnixMilli()))
	}
	return f.now
}

func (f *fakeClient) Begin(context.Context, string) (Txn, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &fakeTxn{client: f, start: f.tick()}, nil
}

func (f *fakeClient) Notification(_ context.Context, c mvcc.Cell) (mvcc.Notify, bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, ok := f.entries[c]
	return n, ok, nil
}

func (f *fakeClient) Notifications(_ context.Context,
	cells []mvcc.Cell) (map[mvcc.Cell]mvcc.Notify, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	found := map[mvcc.Cell]mvcc.Notify{}
	for _, c := range cells {
		if n, ok := f.entries[c]; ok {
			found[c] = n
		}
	}
	return found, nil
}

func (f *fakeClient) ClearNotify(_ context.Context,
	r mvcc.ClearNotifyRequest) (mvcc.Timestamp, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.entries[r.Cell].TS <= r.UpTo {
		delete(f.entries, r.Cell)
	}
	return f.entries[r.Cell].TS, nil
}

func (f *fakeClient) ClearNotifies(ctx context.Context, cells []mvcc.Cell,
	r mvcc.ClearNotifyRequest) error {
	for _, r.Cell = range cells {
		_, _ = f.ClearNotify(ctx, r)
	}
	return nil
}

// TabletOf returns a tablet for each first letter of rows.
func (f *fakeClient) TabletOf(c mvcc.Cell) uint64 { return uint64(c.Row[0]) }

func (f *fakeClient) FailNotify(_ context.Context, r mvcc.FailNotifyRequest) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failed = append(f.failed, r)
	f.entries[r.Cell] = mvcc.Notify{
		TS: r.TS, Attempts: r.Attempts, ParkedTS: r.ParkedTS, Error: r.Error,
	}
	return nil
}

// change makes the cell dirty.
func (f *fakeClient) change(c mvcc.Cell) *mvcc.Notify {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.entries[c] = mvcc.Notify{TS: f.tick()}
	n := f.entries[c]
	return &n
}

type fakeTxn struct {
	client *fakeClient
	start  mvcc.Timestamp
	acked  []mvcc.Cell // observed cells
}

func (t *fakeTxn) Start(context.Context) (mvcc.Timestamp, error) { return t.start, nil }
func (t *fakeTxn) StartTS() mvcc.Timestamp                       { return t.start }
func (t *fakeTxn) SetCell(c mvcc.Cell, _ []byte)                 { t.acked = append(t.acked, cellOf(c.Row)) }
func (t *fakeTxn) Rollback(context.Context) error                { return nil }
func (t *fakeTxn) Failed() error                                 { return nil }
func (t *fakeTxn) User() *percolator.Tx                          { return nil }
func (t *fakeTxn) Effects() txn.Effects                          { return txn.Effects{} }
func (t *fakeTxn) Trace(*tracing.Span)                           {}
func (t *fakeTxn) SetOrigin(mvcc.Timestamp)                      {}
func (t *fakeTxn) BackgroundDone() <-chan struct{}               { return t.client.rest }
func (t *fakeTxn) Left() mvcc.Timestamp                          { return 0 }

// Commit clears the acknowledged notifications.
func (t *fakeTxn) Commit(ctx context.Context) (mvcc.Timestamp, error) {
	return t.start, t.client.ClearNotifies(ctx, t.acked, mvcc.ClearNotifyRequest{UpTo: t.start})
}

func (t *fakeTxn) Expect(...mvcc.Cell) {}

func (t *fakeTxn) GetRecords(_ context.Context, cells ...mvcc.Cell) ([]mvcc.ReadResult, error) {
	t.client.mu.Lock()
	defer t.client.mu.Unlock()
	out := make([]mvcc.ReadResult, len(cells))
	for i := 0; i < len(cells); i += 2 {
		out[i].CommitTS = t.client.entries[cells[i]].TS
	}
	return out, nil
}

func probe(t *testing.T, fn percolator.ObserverFunc,
	tune func(*Config)) (*Dispatcher, *fakeClient) {
	t.Helper()
	system := actorkit.NewSystem(slog.New(slog.DiscardHandler))
	client := &fakeClient{now: 100, entries: map[mvcc.Cell]mvcc.Notify{}}
	cfg := Config{Client: client, Observers: []Registered{{Link: Link{Table: 16}, Spec: percolator.ObserverSpec{
		Name: "o", Column: percolator.Column{Table: "t", Name: "c"}, Func: fn, Concurrency: 1,
		Deadline: time.Minute, MaxAttempts: 9,
	}}}}
	tune(&cfg)
	d, err := Spawn(system, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := d.Stop(ctx); err != nil {
			t.Error(err)
		}
		system.Shutdown()
	})
	return d, client
}

func cellOf(row string) mvcc.Cell { return mvcc.Cell{Table: 16, Row: row, Column: "c"} }

func offer(t *testing.T, d *Dispatcher, row string, n *mvcc.Notify, done func()) notify.Admission {
	t.Helper()
	got, err := d.Submit(t.Context(), []notify.Dirty{
		{Cell: cellOf(row), Notify: n, Held: true, Done: done},
	})
	if err != nil {
		t.Fatal(err)
	}
	return got[0]
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick, end := time.NewTicker(time.Millisecond), time.After(30*time.Second)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("never: %s", what)
		}
	}
}

// TestBackoffHolds: while a failed change backs off, neither a hint nor the same entry starts a
// run; a newer change does.
func TestBackoffHolds(t *testing.T) {
	var healed atomic.Bool
	var attempts []int
	d, client := probe(t, func(_ context.Context, _ *percolator.Tx,
		n percolator.Notification) error {
		attempts = append(attempts, n.Attempt)
		if healed.Load() {
			return nil
		}
		return errors.New("not yet")
	}, func(c *Config) { c.FailureBase, c.FailureMax = time.Hour, time.Hour })
	var released atomic.Int32
	done := func() { released.Add(1) }
	first := client.change(cellOf("a"))
	if got := offer(t, d, "a", first, done); got != notify.Accepted {
		t.Fatalf("first: %v", got)
	}
	until(t, "failed", func() bool { return d.Stats()[0].Waiting == 1 })
	if released.Load() != 1 {
		t.Error("the advisory lock is kept during the backoff")
	}
	for what, n := range map[string]*mvcc.Notify{"hint": nil, "the same entry": first} {
		if got := offer(t, d, "a", n, nil); got != notify.Deferred {
			t.Errorf("%s: %v, want deferred", what, got)
		}
	}
	healed.Store(true)
	if got := offer(t, d, "a", client.change(cellOf("a")), nil); got != notify.Collapsed {
		t.Errorf("newer change: %v", got)
	}
	until(t, "the newer change runs", func() bool {
		return d.Stats()[0].Commits == 1 && d.Stats()[0].Waiting == 0
	})
	if len(attempts) != 2 || attempts[1] != 0 {
		t.Errorf("attempts %v: a newer change starts over", attempts)
	}
}

// TestQueueIsBounded: beyond Queue cells of an observer the answer is Full; Done is called once for
// each admitted cell, whether it ran or Stop released it.
func TestQueueIsBounded(t *testing.T) {
	release := make(chan struct{})
	d, client := probe(t, func(context.Context, *percolator.Tx, percolator.Notification) error {
		<-release
		return nil
	}, func(c *Config) { c.Queue = 2 })
	var released [5]atomic.Int32
	var got []notify.Admission
	for i, row := range []string{"a", "b", "c", "d", "e"} {
		got = append(got, offer(t, d, row, client.change(cellOf(row)), func() {
			released[i].Add(1)
		}))
		until(t, "the first runs", func() bool { return d.Stats()[0].Running == 1 })
	}
	want := []notify.Admission{
		notify.Accepted, notify.Accepted, notify.Accepted, notify.Full, notify.Full,
	}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("%v, want %v", got, want)
		}
	}
	stopped := make(chan error, 1)
	go func() { stopped <- d.Stop(context.Background()) }()
	until(t, "the queue is let go", func() bool {
		return released[1].Load() == 1 && released[2].Load() == 1
	})
	close(release)
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	for i, w := range []int32{1, 1, 1, 0, 0} {
		if n := released[i].Load(); n != w {
			t.Errorf("cell %d: done was called %d times, want %d", i, n, w)
		}
	}
	if _, err := d.Submit(context.Background(),
		[]notify.Dirty{{Cell: cellOf("f"), Held: true}}); !errors.Is(err, actorkit.ErrStopped) {
		t.Errorf("after Stop: %v", err)
	}
}

// TestWaitingIsBounded: failed cells beyond the bound are released, not kept.
func TestWaitingIsBounded(t *testing.T) {
	d, client := probe(t, func(context.Context, *percolator.Tx, percolator.Notification) error {
		return errors.New("always")
	}, func(c *Config) { c.Queue, c.FailureBase, c.FailureMax = 2, time.Hour, time.Hour })
	var released atomic.Int32
	for i, row := range []string{"a", "b", "c", "d"} {
		if got := offer(t, d, row, client.change(cellOf(row)), func() {
			released.Add(1)
		}); got != notify.Accepted {
			t.Fatalf("%s: %v", row, got)
		}
		until(t, "failed", func() bool { return int(released.Load()) == i+1 })
	}
	if s := d.Stats()[0]; s.Waiting != 2 || s.Failures != 4 {
		t.Errorf("%+v", s)
	}
}

func TestInvalidConfig(t *testing.T) {
	system := actorkit.NewSystem(slog.New(slog.DiscardHandler))
	defer system.Shutdown()
	spec := percolator.ObserverSpec{
		Name: "o", Column: percolator.Column{Table: "t", Name: "c"}, Concurrency: 1, Deadline: 1,
		MaxAttempts: 1,
		Func: func(context.Context, *percolator.Tx,
			percolator.Notification) error {
			return nil
		},
	}
	broken := spec
	broken.Func = nil
	for name, cfg := range map[string]Config{
		"no client":   {},
		"no function": {Client: &fakeClient{}, Observers: []Registered{{Spec: broken}}},
		"one entry, two": {Client: &fakeClient{}, Observers: []Registered{
			{Spec: spec, Link: Link{Table: 16}}, {Spec: spec, Link: Link{Table: 16}},
		}},
	} {
		if _, err := Spawn(system, cfg); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSlotIsFreeOnceDecided: while a committed run's background work continues, another run begins,
// and the run's own cell does not run again.
func TestSlotIsFreeOnceDecided(t *testing.T) {
	ran := make(chan string, 3)
	d, client := probe(t, func(_ context.Context, _ *percolator.Tx,
		n percolator.Notification) error {
		ran <- n.Row
		return nil
	}, func(*Config) {})
	client.rest = make(chan struct{})
	var released atomic.Int32
	done := func() { released.Add(1) }
	for _, row := range []string{"a", "b"} { // there is one slot
		if got := offer(t, d, row, client.change(cellOf(row)), done); got != notify.Accepted {
			t.Fatalf("%s: %v", row, got)
		}
		if got := <-ran; got != row {
			t.Errorf("a run for %s, want %s", got, row)
		}
	}
	until(t, "both decided", func() bool { return d.Stats()[0].Running == 0 })
	if got := offer(t, d, "a", nil, nil); got != notify.Collapsed || released.Load() != 0 {
		t.Errorf("the first cell again: %v; %d released", got, released.Load())
	}
	stopped := make(chan error, 1)
	go func() { stopped <- d.Stop(t.Context()) }()
	until(t, "draining", func() bool {
		return offer(t, d, "c", client.change(cellOf("c")), nil) == notify.Stopped
	})
	select {
	case err := <-stopped:
		t.Errorf("Stop did not wait: %v", err)
	default:
	}
	close(client.rest)
	if err := <-stopped; err != nil || released.Load() != 2 {
		t.Errorf("%d released, %v", released.Load(), err)
	}
	if got := d.Stats()[0].Running; got != 0 {
		t.Errorf("SLOT-FREED-TWICE: %d runs are counted after the last", got)
	}
}

// TestSuspectsRunAlone: rows during whose last run a process died run one at a time, also while
// others wait for free slots. Catches BROKEN=suspects_together.
func TestSuspectsRunAlone(t *testing.T) {
	gate, suspects := make(chan struct{}), atomic.Int32{}
	d, client := probe(t, func(_ context.Context, _ *percolator.Tx,
		n percolator.Notification) error {
		if n.Attempt > 0 && suspects.Add(1) > 1 {
			t.Errorf("SUSPECTS-TOGETHER: %s runs beside another row that may end the process", n.Row)
		}
		<-gate
		return nil
	}, func(c *Config) { c.Observers[0].Spec.Concurrency = 4 })
	for _, row := range []string{"s1", "s2", "n1", "n2"} {
		n := client.change(cellOf(row))
		if row[0] == 's' {
			n.Attempts, n.Error = 1, unfinished
		}
		if got := offer(t, d, row, n, nil); got != notify.Accepted {
			t.Fatalf("%s: %v", row, got)
		}
	}
	until(t, "three run", func() bool { return d.Stats()[0].Running >= 3 })
	if s := d.Stats()[0]; s.Running != 3 || s.Queued != 1 {
		t.Errorf("SUSPECTS-TOGETHER: %d rows run, %d wait", s.Running, s.Queued)
	}
	suspects.Store(-1) // they run one at a time from here
	close(gate)
	until(t, "all have run", func() bool { return d.Stats()[0].Commits == 4 })
}

// TestRunOfDroppedTable: a run that fails after its observer was registered for another table is
// not repeated: its change no longer exists.
func TestRunOfDroppedTable(t *testing.T) {
	began, gate := make(chan struct{}, 9), make(chan struct{})
	d, client := probe(t, func(context.Context, *percolator.Tx, percolator.Notification) error {
		began <- struct{}{}
		<-gate
		return percolator.ErrUnavailable
	}, func(*Config) {})
	released := make(chan struct{})
	offer(t, d, "a", client.change(cellOf("a")), func() { close(released) })
	<-began
	if err := d.Relink(t.Context(), map[string]Link{"o": {Table: 17}}); err != nil {
		t.Fatal(err)
	}
	close(gate)
	select {
	case <-released:
	case <-began:
		t.Error("it runs again for a row of a table that is gone")
	}
}
