package merger

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/actorkit"
	"github.com/percolator-go/percolator/internal/leaktest"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// world holds some tablets of table 16 and fakes everything that the merger uses.
type world struct {
	tablets  []*pb.StatusResponse
	unused   bool
	refuse   error
	finished []uint64
	turned   chan struct{} // nil: turns are not counted
}

// newWorld creates tablets of the given sizes in bytes at rows a, b, c...
func newWorld(sizes ...uint64) *world {
	w := &world{}
	for i, size := range sizes {
		d := &pb.TabletDescriptor{
			TabletId: uint64(i) + 2, Epoch: 1, StartTable: uint32(mvcc.FirstUserTable), StartRow: []byte{byte('a' + i)},
			EndTable: uint32(mvcc.FirstUserTable), EndRow: []byte{byte('b' + i)},
		}
		w.tablets = append(w.tablets, &pb.StatusResponse{Tablet: d, Leader: true, SizeBytes: size})
	}
	return w
}

func (w *world) Leaders(context.Context) ([]*pb.StatusResponse, error) {
	if w.turned != nil {
		select {
		case w.turned <- struct{}{}:
		default:
		}
	}
	return slices.Clone(w.tablets), nil
}

func (w *world) Finish(_ context.Context, leaders ...*pb.StatusResponse) error {
	for _, s := range leaders {
		w.finished = append(w.finished, s.Tablet.TabletId)
	}
	return nil
}

func (w *world) Mergeable(context.Context) (func(_, _ *pb.TabletDescriptor) (bool, bool), error) {
	return func(_, _ *pb.TabletDescriptor) (may, unused bool) { return true, w.unused }, nil
}

func (w *world) MergeAt(_ context.Context, at wire.Position) (*pb.TabletDescriptor, error) {
	if w.refuse != nil {
		return nil, w.refuse
	}
	for i := 1; i < len(w.tablets); i++ {
		left, right := w.tablets[i-1], w.tablets[i]
		if wire.StartOf(right.Tablet) != at {
			continue
		}
		left.Tablet.EndRow = right.Tablet.EndRow
		left.SizeBytes += right.SizeBytes
		w.tablets = slices.Delete(w.tablets, i, i+1)
		return left.Tablet, nil
	}
	return nil, errors.New("no such boundary")
}

func newMerger(t *testing.T, w *world) *work {
	t.Helper()
	cfg, err := Config{Meta: w, Overview: w, MaxBytes: 400, MaxLoad: 400}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	return newWork(cfg)
}

// TestSmallTabletsAreMergedAfterAWhile: two tablets that have both been small for After without
// interruption are merged, one pair per turn, and never into more than a quarter of the split size.
func TestSmallTabletsAreMergedAfterAWhile(t *testing.T) {
	w := newWorld(40, 40, 40, 90)
	m, now := newMerger(t, w), time.Unix(1000, 0)
	turn := func(after time.Duration, want int) {
		t.Helper()
		now = now.Add(after)
		if m.turn(t.Context(), now); len(w.tablets) != want {
			t.Errorf("at %v: %d tablets, want %d", now, len(w.tablets), want)
		}
	}
	turn(0, 4)
	turn(DefaultAfter-time.Second, 4)
	w.tablets[0].Load = 200 // a burst of load
	w.tablets[1].Load = 200
	turn(time.Second, 4)
	w.tablets[0].Load, w.tablets[1].Load = 0, 0
	turn(time.Second, 4)
	turn(DefaultAfter-time.Second, 4)
	turn(time.Second, 3)
	turn(2*DefaultAfter, 3) // 80 and 40 together are too large
	turn(2*DefaultAfter, 3)
	if got := m.merged.Load(); got != 1 {
		t.Errorf("%d merged", got)
	}
}

// TestUnusedTabletsAreMergedAtOnce: the tablets of dropped tables are merged in one turn.
func TestUnusedTabletsAreMergedAtOnce(t *testing.T) {
	w := newWorld(slices.Repeat([]uint64{1}, 21)...)
	w.unused = true
	m := newMerger(t, w)
	if m.turn(t.Context(), time.Unix(1000, 0)); len(w.tablets) != 1 {
		t.Errorf("%d tablets are left", len(w.tablets))
	}
}

// TestFailuresWait: a pair that fails to merge is retried after a delay.
func TestFailuresWait(t *testing.T) {
	w := newWorld(1, 1)
	w.unused, w.refuse = true, errors.New("apart")
	m, now := newMerger(t, w), time.Unix(1000, 0)
	m.turn(t.Context(), now)
	w.refuse = nil
	if m.turn(t.Context(), now.Add(cooldown-1)); len(w.tablets) != 2 {
		t.Error("tried again at once")
	}
	if m.turn(t.Context(), now.Add(cooldown)); len(w.tablets) != 1 {
		t.Error("not tried again")
	}
}

// TestHalfDoneIsFinished: a merge found half done in two consecutive turns is finished, and no
// other begins before.
func TestHalfDoneIsFinished(t *testing.T) {
	w := newWorld(1, 1, 1)
	w.unused = true
	w.tablets[1].FrozenFor = w.tablets[0].Tablet
	m, now := newMerger(t, w), time.Unix(1000, 0)
	if m.turn(t.Context(), now); len(w.finished) != 0 {
		t.Error("whoever has begun it may still be at it")
	}
	if m.turn(t.Context(), now); !slices.Equal(w.finished, []uint64{3}) || len(w.tablets) != 3 {
		t.Errorf("finished %v, %d tablets", w.finished, len(w.tablets))
	}
}

// TestSpawn: the actor takes turns without messages and ends with Stop.
func TestSpawn(t *testing.T) {
	leaktest.Check(t)
	system := actorkit.NewSystem(slog.New(slog.DiscardHandler))
	defer system.Shutdown()
	w := newWorld(1, 1)
	w.turned = make(chan struct{}, 1)
	m, err := Spawn(system, Config{
		Meta: w, Overview: w, MaxBytes: 400, MaxLoad: 400, FinishOnly: true, Interval: time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		<-w.turned
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := m.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	if m.Merged() != 0 || len(w.tablets) != 2 {
		t.Error("a merger that only finishes has begun a merge")
	}
	if _, err := Spawn(system, Config{}); err == nil {
		t.Error("a merger without meta was started")
	}
}
