package splitter

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/actorkit"
	"github.com/percolator-go/percolator/internal/leaktest"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// world holds tablets of one table with states set by the test. It records the splits that are
// requested, and executes none.
type world struct {
	mu      sync.Mutex
	tablets []*pb.StatusResponse
	splits  []string
	fail    error
	asked   chan uint64 // MeasureAbove of each request, if the test receives it
}

// add appends a tablet that begins at a row; each ends where the next begins.
func (w *world) add(start string, size, load uint64, sizeKey, loadKey string) {
	d := &pb.TabletDescriptor{
		TabletId: uint64(len(w.tablets)) + 2, Epoch: 1, StartTable: uint32(mvcc.FirstUserTable),
		StartRow: []byte(start), EndUnbounded: true,
	}
	if n := len(w.tablets); n > 0 {
		last := w.tablets[n-1].Tablet
		last.EndUnbounded, last.EndTable, last.EndRow = false, d.StartTable, d.StartRow
	}
	w.tablets = append(w.tablets, &pb.StatusResponse{
		Tablet: d, Leader: true, SizeBytes: size, Load: load, SizeKey: []byte(sizeKey),
		LoadKey: []byte(loadKey),
	})
}

// Send implements Client.
func (w *world) Send(_ context.Context, at wire.Position,
	req *pb.TabletRequest) (*pb.TabletResponse, *pb.TabletDescriptor, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case w.asked <- req.GetStatus().MeasureAbove:
	default:
	}
	for _, s := range w.tablets {
		if wire.Holds(s.Tablet, at) {
			return &pb.TabletResponse{Result: &pb.TabletResponse_Status{Status: s}}, s.Tablet, nil
		}
	}
	return nil, nil, fmt.Errorf("nobody holds %v", at)
}

// SplitAt implements Meta.
func (w *world) SplitAt(_ context.Context, table mvcc.TableID, row string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.splits = append(w.splits, fmt.Sprintf("%d/%s", table, row))
	return w.fail
}

func (w *world) take() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := strings.Join(w.splits, " ")
	w.splits = nil
	return out
}

func newTest(t *testing.T, w *world, cfg Config) *work {
	cfg.Client, cfg.Meta, cfg.Overview = w, w, w
	cfg, err := cfg.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	return newWork(cfg)
}

// TestWhatIsSplit: tablets over a limit are split at the row that they name; a tablet that names no
// row, or one outside it, is not split.
func TestWhatIsSplit(t *testing.T) {
	const large, busy = DefaultMaxBytes, DefaultMaxLoad
	w := &world{}
	w.add("", 1, 1, "a", "a")
	w.add("b", large, 1, "c", "")
	w.add("d", 1, busy, "e", "f")
	w.add("g", large, busy, "h", "i")  // size first
	w.add("j", large, busy, "", "")    // one row
	w.add("k", large, busy, "k", "k")  // its first row is no boundary
	w.add("l", large, busy, "zz", "a") // outside its range
	w.add("m", large-1, busy-1, "n", "n")
	newTest(t, w, Config{}).turn(t.Context(), time.Now())
	if got, want := w.take(), "16/c 16/f 16/h"; got != want {
		t.Errorf("split at %s, want %s", got, want)
	}
}

// TestCooldown: after a split by load neither side is split for a while; a split by size does not
// wait.
func TestCooldown(t *testing.T) {
	w := &world{}
	w.add("", 1, DefaultMaxLoad, "", "m")
	s, now := newTest(t, w, Config{}), time.Now()
	s.turn(t.Context(), now)
	w.tablets[0].LoadKey = []byte("g")
	w.add("m", 1, DefaultMaxLoad, "", "t")
	s.turn(t.Context(), now.Add(cooldown-1))
	if got := w.take(); got != "16/m" {
		t.Errorf("within the cooldown: %s", got)
	}
	w.tablets[1].SizeBytes, w.tablets[1].SizeKey = DefaultMaxBytes, []byte("p")
	s.turn(t.Context(), now.Add(cooldown-1))
	if got := w.take(); got != "16/p" {
		t.Errorf("by size, within the cooldown: %s", got)
	}
	w.tablets[1].SizeBytes = 0
	s.turn(t.Context(), now.Add(cooldown))
	if got := w.take(); got != "16/g 16/t" {
		t.Errorf("after the cooldown: %s", got)
	}
	if len(s.cooldown) > 4 {
		t.Errorf("%d tablets are remembered", len(s.cooldown))
	}
}

// TestBounds: there are at most MaxTablets, and a failed split is retried.
func TestBounds(t *testing.T) {
	w := &world{}
	w.add("", DefaultMaxBytes, 0, "a", "")
	w.add("b", DefaultMaxBytes, 0, "c", "")
	newTest(t, w, Config{MaxTablets: 2}).turn(t.Context(), time.Now())
	if got := w.take(); got != "" {
		t.Errorf("with as many tablets as there may be: %s", got)
	}
	newTest(t, w, Config{MaxTablets: 3}).turn(t.Context(), time.Now())
	if got := w.take(); got != "16/a" {
		t.Errorf("with room for one more: %s", got)
	}
	w.fail = errors.New("no")
	s := newTest(t, w, Config{})
	for range 2 {
		s.turn(t.Context(), time.Now())
		if got := w.take(); got != "16/a 16/c" {
			t.Errorf("splits that fail: %s", got)
		}
	}
	if size, load := s.bySize.Load(), s.byLoad.Load(); size+load != 0 {
		t.Errorf("%d and %d splits counted", size, load)
	}
}

// TestSpawn: the actor takes turns without messages, requests measurements of tablets above half
// the limit, and ends with Stop.
func TestSpawn(t *testing.T) {
	leaktest.Check(t)
	system := actorkit.NewSystem(slog.New(slog.DiscardHandler))
	defer system.Shutdown()
	w := &world{asked: make(chan uint64)}
	w.add("", 600, 0, "", "")
	s, err := Spawn(system, Config{
		Client: w, Meta: w, Overview: w, MaxBytes: 1000, Interval: time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if above := <-w.asked; above != 500 {
			t.Errorf("asked to measure above %d", above)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := s.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	if done := s.Status(); done.BySize+done.ByLoad != 0 {
		t.Errorf("splits of a tablet below the limit: %v", done)
	}
	if _, err := Spawn(system, Config{}); err == nil {
		t.Error("a splitter without a client was started")
	}
}

// Leaders implements Overview if all leaders are known.
func (w *world) Leaders(context.Context) ([]*pb.StatusResponse, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.tablets, nil
}

// TestOverview: only large or busy tablets receive requests.
func TestOverview(t *testing.T) {
	const large, busy = DefaultMaxBytes, DefaultMaxLoad
	w := &world{asked: make(chan uint64, 100)}
	w.add("", 1, 1, "a", "a")
	w.add("b", large, 1, "c", "")
	w.add("d", 1, busy, "e", "f")
	w.add("g", large/2, 1, "h", "i") // must be measured
	w.add("m", large/2-1, busy-1, "n", "n")
	newTest(t, w, Config{}).turn(t.Context(), time.Now())
	if got, want := w.take(), "16/c 16/f"; got != want {
		t.Errorf("split at %s, want %s", got, want)
	}
	if n := len(w.asked); n != 3 {
		t.Errorf("%d tablets were queried", n)
	}
	newTest(t, w, Config{MaxTablets: 6}).turn(t.Context(), time.Now())
	if got, want := w.take(), "16/c"; got != want {
		t.Errorf("with room for one more, split at %s, want %s", got, want)
	}
}
