package scanner

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/actorkit"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/notify"
	"github.com/percolator-go/percolator/internal/wire"
)

func spawn(t *testing.T, cfg Config) *Scanners {
	t.Helper()
	system := actorkit.NewSystem(slog.New(slog.DiscardHandler))
	s, err := Spawn(system, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.Stop(ctx); err != nil {
			t.Error(err)
		}
		system.Shutdown()
	})
	return s
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	end := time.After(30 * time.Second)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-end:
			t.Fatalf("never: %s", what)
		case <-tick.C:
		}
	}
}

func (w *world) offers(rows ...string) func() bool {
	return func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(w.offered) != len(rows) {
			return false
		}
		for i, r := range rows {
			if w.offered[i] != cell(r) {
				return false
			}
		}
		return true
	}
}

// TestHintsArePassedOn: hints are forwarded at once, each cell once, those of other columns not.
func TestHintsArePassedOn(t *testing.T) {
	w := newWorld(0)
	cfg := w.config()
	cfg.Scanners = -1
	s := spawn(t, cfg)
	s.Hint([]mvcc.Cell{cell("a"), {Table: 16, Row: "a", Column: "other"}, cell("b"), cell("a")})
	eventually(t, "both cells are offered", w.offers("a", "b"))
	eventually(t, "locks are given back", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.unlocked == 2
	})
	if got := s.Stats(); got.Hints.Load() != 3 || got.HintsPassed.Load() != 2 || got.HintsDropped.Load() != 0 {
		t.Errorf("%+v", got)
	}
}

// TestHintRefused: a hint for a row that another worker has locked is offered without the lock, so
// that it can only be collapsed, and retried later: that worker may be running an older change.
func TestHintRefused(t *testing.T) {
	w := newWorld(0)
	w.refuse[notify.LockKey(cell("a"))] = true
	var helds []bool
	w.answer = func(_ mvcc.Cell, held bool) notify.Admission {
		helds = append(helds, held)
		if !held {
			if len(helds) == 3 {
				clear(w.refuse) // the other worker is done
			}
			return notify.Refused
		}
		return notify.Accepted
	}
	cfg := w.config()
	cfg.Scanners = -1
	s := spawn(t, cfg)
	s.Hint([]mvcc.Cell{cell("a")})
	eventually(t, "accepted at last", func() bool { return s.Stats().HintsPassed.Load() == 1 })
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(helds) != 4 || helds[2] || !helds[3] {
		t.Errorf("offered with lock: %v", helds)
	}
}

// TestHintsAreBounded: a dispatcher that does not answer makes hints drop, never block.
func TestHintsAreBounded(t *testing.T) {
	w := newWorld(0)
	stuck := make(chan struct{})
	var once sync.Once
	entered := make(chan struct{})
	w.answer = func(mvcc.Cell, bool) notify.Admission {
		once.Do(func() { close(entered) })
		<-stuck
		return notify.Accepted
	}
	cfg := w.config()
	cfg.Scanners, cfg.HintQueue = -1, 100
	s := spawn(t, cfg)
	s.Hint([]mvcc.Cell{cell("first")})
	<-entered
	for i := range 300 {
		s.Hint([]mvcc.Cell{cell(row(i))})
	}
	if got := s.Stats().HintsDropped.Load(); got != 200 {
		t.Errorf("%d of 300 hints dropped, want 200", got)
	}
	close(stuck)
	eventually(t, "the others are passed on", func() bool { return s.Stats().HintsPassed.Load() == 101 })
}

// TestNoHotLoop: eight idle scanners and a sweeper send few requests, and their pauses grow.
func TestNoHotLoop(t *testing.T) {
	w := newWorld(0)
	cfg := w.config()
	cfg.Scanners, cfg.PaceMin, cfg.PaceMax = 8, time.Millisecond, time.Hour
	s := spawn(t, cfg)
	eventually(t, "each has turned six times", func() bool { return s.Stats().Turns.Load() >= 48 })
	w.mu.Lock()
	walks := w.walks
	w.mu.Unlock()
	if limit := int(s.Stats().Turns.Load()) + 8; walks > limit {
		t.Errorf("%d requests in %d turns", walks, s.Stats().Turns.Load())
	}
}

// resolverFunc is a Resolver.
type resolverFunc func(l mvcc.LockInfo) (bool, error)

func (f resolverFunc) ResolveLock(_ context.Context, l mvcc.LockInfo) (bool, error) { return f(l) }

// lockWorld holds locks and intents.
type lockWorld struct {
	world
	entries map[mvcc.Group][]*pb.WalkEntry
}

func (w *lockWorld) Walk(_ context.Context, _ *pb.TabletDescriptor,
	r *pb.WalkRequest) (*pb.WalkResponse, error) {
	out := &pb.WalkResponse{Done: true}
	for _, e := range w.entries[mvcc.Group(r.Group)] {
		if r.After != nil && (string(e.Cell.Row) < string(r.After.Row) ||
			(string(e.Cell.Row) == string(r.After.Row) && e.Ts <= r.AfterTs)) {
			continue
		}
		if len(out.Entries) == int(r.Limit) {
			out.Done = false
			break
		}
		out.Entries = append(out.Entries, e)
	}
	return out, nil
}

// TestSweeper resolves every lock and intent of old transactions, over all pages, skips young ones,
// and does not soon retry those that are alive.
func TestSweeper(t *testing.T) {
	now := time.UnixMilli(1_000_000_000)
	old, young := mvcc.TimestampAt(now.UnixMilli()-2000), mvcc.TimestampAt(now.UnixMilli()-10)
	w := &lockWorld{entries: map[mvcc.Group][]*pb.WalkEntry{}}
	w.tablets = newWorld(0).tablets
	for i := range 40 {
		start := old + mvcc.Timestamp(i)
		if i == 7 {
			start = young
		}
		w.entries[mvcc.GroupLock] = append(w.entries[mvcc.GroupLock], &pb.WalkEntry{
			Cell: wire.CellPB(cell(row(i))),
			Lock: wire.LockPB(mvcc.Lock{StartTS: start, Primary: cell("p")}),
		})
		w.entries[mvcc.GroupIntent] = append(w.entries[mvcc.GroupIntent], &pb.WalkEntry{
			Cell: wire.CellPB(cell(row(i / 4))), Ts: uint64(old) + 1000 + uint64(i),
			Intent: wire.IntentPB(&mvcc.Intent{Primary: cell("p"), Worker: mvcc.Worker{Node: 3}}),
		})
	}
	var mu sync.Mutex
	asked := map[askedLock]int{}
	cfg := Config{
		Targets: []notify.Target{{Table: 16, Column: column, Weak: true}}, Dispatcher: w, Places: w,
		Walker: w, Page: 3, // fewer than a cell has intents
		Now: func() time.Time { return now },
		Resolver: resolverFunc(func(l mvcc.LockInfo) (bool, error) {
			mu.Lock()
			defer mu.Unlock()
			asked[askedLock{l.Cell, l.Intent, l.Lock.StartTS, l.Lock.Primary}]++
			return l.Lock.StartTS != old+3, nil
		}),
	}.withDefaults()
	s := newSweeper(cfg, &Stats{})
	if pause := s.turn(t.Context()); pause != paceBusy {
		t.Errorf("pause %v after work", pause)
	}
	s.turn(t.Context())
	if len(asked) != 79 {
		t.Errorf("queried %d entries, want 39 locks and 40 intents", len(asked))
	}
	for l, n := range asked {
		if l.primary != cell("p") || l.start == young {
			t.Errorf("queried %+v", l)
		}
		if alive := l.start == old+3; alive && n != 1 {
			t.Errorf("resolved %d times one that is alive", n)
		}
	}
	now = now.Add(alivePause)
	s.turn(t.Context())
	if n := asked[askedLock{cell(row(3)), false, old + 3, cell("p")}]; n != 2 {
		t.Errorf("resolved %d times the one that is alive, after its pause", n)
	}
}

// TestSweepsWhatOthersObserve: the sweeper sweeps a column whose observer runs in other processes,
// because the tablet reports it as observed.
func TestSweepsWhatOthersObserve(t *testing.T) {
	now := time.UnixMilli(1_000_000)
	w := &lockWorld{entries: map[mvcc.Group][]*pb.WalkEntry{}}
	w.tablets = newWorld(0).tablets
	for _, g := range []mvcc.Group{mvcc.GroupLock, mvcc.GroupIntent} {
		w.entries[g] = []*pb.WalkEntry{{
			Cell: wire.CellPB(cell("a")), Ts: 1,
			Lock: wire.LockPB(mvcc.Lock{StartTS: 1, Primary: cell("p")}),
		}}
	}
	w.entries[mvcc.GroupIntent][0].Ts = 2
	w.entries[mvcc.GroupIntent][0].Intent = wire.IntentPB(&mvcc.Intent{Primary: cell("p")})
	asked := make(chan bool, 2)
	cfg := Config{
		Observed: func(uint64) []notify.Target {
			return []notify.Target{{Table: 16, Column: column, Weak: true}}
		},
		Scanners: -1, Dispatcher: w, Places: w, Walker: w, Now: func() time.Time { return now },
		Resolver: resolverFunc(func(l mvcc.LockInfo) (bool, error) {
			asked <- l.Intent
			return false, nil
		}),
	}.withDefaults()
	spawn(t, cfg)
	found := map[bool]bool{}
	eventually(t, "the lock and the intent are asked about", func() bool {
		select {
		case intent := <-asked:
			found[intent] = true
		default:
		}
		return len(found) == 2
	})
}

// askedLock is a lock that the sweeper tried to resolve.
type askedLock struct {
	cell    mvcc.Cell
	intent  bool
	start   mvcc.Timestamp
	primary mvcc.Cell
}

// TestNothingObserved: without an observed column nothing runs periodically.
func TestNothingObserved(t *testing.T) {
	w := newWorld(0)
	cfg := w.config()
	cfg.Targets = nil
	s := spawn(t, cfg)
	if len(s.scanners) > 0 || s.sweeper != nil { // the hinter waits for messages
		t.Errorf("%d scanners, sweeper %v", len(s.scanners), s.sweeper)
	}
	s.Hint(nil)
}
