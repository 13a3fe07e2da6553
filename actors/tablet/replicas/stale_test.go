package replicas

import (
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/store"
)

// opened returns the tablets whose last opening was as stale.
func (r *replicaRig) opened() []uint64 {
	r.owner.mu.Lock()
	defer r.owner.mu.Unlock()
	stale := maps.Clone(r.owner.stale)
	maps.DeleteFunc(stale, func(_ uint64, is bool) bool { return !is })
	return slices.Sorted(maps.Keys(stale))
}

// TestStaleIsDurable: a replica that its actor found stale is opened as stale by the next process,
// accepts no snapshot, and is replaced by one with a higher id, which is not stale.
func TestStaleIsDurable(t *testing.T) {
	r := newReplicaRig(t, of(2, 1, "a", "m", 1), of(3, 1, "m", "z", 1))
	r.Stale(2)
	r.settle()
	r.Close()
	for id := range r.owner.runs {
		r.owner.runs[id] = false
	}
	r.Set = New(r.owner, r.store, r.logs, thisNode, slog.New(slog.DiscardHandler))
	defer r.Set.Close()
	if err := r.Start(func([]uint64) {}); err != nil {
		t.Fatal(err)
	}
	if stale := r.opened(); !slices.Equal(stale, []uint64{2}) {
		t.Fatalf("tablets %v are opened as stale, want 2", stale)
	}
	answer := make(chan *wire.SnapshotAnswer, 1)
	r.Chunk(snapshotOf(t, of(2, 4, "a", "m", 1), 1, 50, nil, 1)[0],
		func(a *wire.SnapshotAnswer) { answer <- a })
	if a := <-answer; !strings.Contains(a.Refused, errElsewhere.Error()) {
		t.Errorf("a snapshot for a stale replica: %v", a)
	}
	if st := r.Stats(); st.Stale != 1 || st.Found != 1 {
		t.Errorf("the figures are %+v, want 1 stale and 1 found", st)
	}
	r.Deliver(message(of(2, 6, "a", "m", 9), 9))
	r.settle()
	if st := r.Stats(); r.replica(2) != 9 || len(r.opened()) > 0 || st.Stale != 0 || st.Found != 1 {
		t.Errorf("replica %d, stale: %v, %+v", r.replica(2), r.opened(), st)
	}
}

// TestDiscard: in a directory that is an older copy, all replicas are stale, before they are opened
// or while they run, except sole voters and those created since.
func TestDiscard(t *testing.T) {
	for _, runs := range []bool{false, true} {
		lone := of(3, 1, "m", "n", 1)
		lone.Replicas = lone.Replicas[1:]
		r := newStoppedRig(t, store.Options{InMemory: true}, of(2, 1, "a", "m", 1), lone)
		discard := func() {
			alone, err := r.Discard(t.Context())
			if err != nil || !slices.Equal(alone, []uint64{3}) {
				t.Errorf("%v are alone, %v", alone, err)
			}
		}
		if !runs {
			discard()
		}
		if err := r.Start(func([]uint64) {}); err != nil {
			t.Fatal(err)
		}
		if runs {
			r.Deliver(message(of(4, 4, "n", "z", 7), 7))
			r.settle()
			discard()
		}
		if stale := r.opened(); !slices.Equal(stale, []uint64{2}) || r.Stats().Stale != 1 {
			t.Errorf("runs %v: tablets %v are stale, want 2", runs, stale)
		}
	}
}
