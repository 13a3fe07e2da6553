package tablet

import (
	"sync"
	"testing"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/store"
)

// nearRig is a rig whose oracle grants timestamps in the tablet's own turn. A message to the oracle
// fails the test.
func nearRig(t *testing.T, o store.Options) *rig {
	t.Helper()
	r := newRig(t, o)
	r.near.Store(true)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.timestamps = func(_ int, then func(mvcc.Timestamp, error)) {
		t.Error("the oracle was sent a message")
		then(0, errStopping)
	}
	return r
}

// TestNearFirstReads: first reads have distinct timestamps, above all earlier commits.
func TestNearFirstReads(t *testing.T) {
	r := nearRig(t, store.Options{InMemory: true})
	var seen sync.Map
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				before := r.now.Load()
				at := r.do(2, getOf(0, "a", "b")).GetGet().GetAt()
				if _, again := seen.LoadOrStore(at, true); again || at <= before {
					t.Errorf("timestamp %d, again: %v; before the read: %d", at, again, before)
				}
			}
		})
	}
	wg.Wait()
}

// TestNearOnePhase: the reservation of a commit that got its timestamp in its own turn blocks only
// reads above it until it is visible; other commits to its cell wait, and succeed afterwards.
func TestNearOnePhase(t *testing.T) {
	r := nearRig(t, store.Options{InMemory: true})
	below, late := r.take(1), r.take(1)
	release := r.hold()
	committed := r.start(2, onePhaseOf(r.take(1), put("a", "1")))
	r.until(2, "the commit is proposed", func(s *pb.StatusResponse) bool {
		return s.Mutations >= 1
	})
	if got := await(t, r.start(2, getOf(below, "a"))).GetGet().Results[0]; got.Found ||
		got.Status != pb.Status_STATUS_OK {
		t.Errorf("a read below it: %v", got)
	}
	above := r.start(2, getOf(r.take(1), "a"))
	first := r.start(2, getOf(0, "a"))
	other := r.start(2, onePhaseOf(late, put("a", "2")))
	r.until(2, "the reads are under way", func(s *pb.StatusResponse) bool { return s.Reads >= 3 })
	select {
	case a := <-above:
		t.Errorf("a read above it was answered before it was visible: %v", a.Value)
	case a := <-first:
		t.Errorf("a first read after it was answered before it was visible: %v", a.Value)
	default:
	}
	release()
	if t.Failed() {
		return
	}
	if got := await(t, committed).GetMutation(); got.Status != pb.Status_STATUS_OK {
		t.Fatalf("one-phase commit: %v", got)
	}
	for _, read := range []<-chan result{above, first} {
		if got := await(t, read).GetGet().Results[0]; string(got.Value) != "1" {
			t.Errorf("a read above it: %v", got)
		}
	}
	if got := await(t, other).GetMutation(); got.Status != pb.Status_STATUS_CONFLICT {
		t.Errorf("a commit that began before it: %v", got)
	}
	if got := r.do(2, onePhaseOf(r.take(1),
		put("a", "3"))).GetMutation(); got.Status != pb.Status_STATUS_OK {
		t.Errorf("the cell is not free: %v", got)
	}
}

// TestNothingToApplyWakes: an operation that waits for the reservation of a one-phase commit is
// evaluated again soon if the commit fails because its timestamp is unsuitable, although no entry
// is applied.
func TestNothingToApplyWakes(t *testing.T) {
	r := nearRig(t, store.Options{InMemory: true})
	var once sync.Once
	entered, gate := make(chan struct{}), make(chan struct{})
	r.mu.Lock()
	r.nearStop = func() { once.Do(func() { close(entered); <-gate }) }
	r.mu.Unlock()
	const late = mvcc.Timestamp(1) << 60 // above all timestamps of the oracle
	answers := []<-chan result{r.start(2, onePhaseOf(late, put("first", "1")))}
	<-entered
	for i := range 2 { // both in the next batch
		answers = append(answers, r.start(2, onePhaseOf(late+1+mvcc.Timestamp(i), put("a", "1"))))
	}
	close(gate)
	for _, answer := range answers {
		select {
		case a := <-answer:
			if got := a.Value.GetMutation().GetStatus(); got != pb.Status_STATUS_COMMIT_TS_TOO_LOW {
				t.Errorf("answered %v, %v, want COMMIT_TS_TOO_LOW", a.Value, a.Err)
			}
		case <-time.After(8 * time.Second): // MaxWait is 10 s
			t.Fatal("a commit waits for one that is over")
		}
	}
}
