package writers

import (
	"bytes"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/percolator-go/percolator/internal/actorkit"
	"github.com/percolator-go/percolator/store"
)

// slowLog is the two writers of a store whose appends to the log wait for release, and the
// notifications that the writers have sent.
type slowLog struct {
	*Pair
	tb      testing.TB
	store   *store.Store
	begun   chan struct{} // a commit to the log has begun
	results chan error    // it continues, or fails with this error

	mu    sync.Mutex
	next  uint64 // index of the next entry of append
	told  []string
	each  chan struct{} // one for each notification
	seen  int           // notifications read
	end   func()        // stops the actors; once
	batch [2]int        // the largest commit to the log, and to the state
}

// aTablet is the only tablet with a log.
const aTablet = 7

func newSlowLog(t *testing.T) *slowLog { return newSlowLogOn(t, store.Options{InMemory: true}) }

func newSlowLogOn(t *testing.T, o store.Options) *slowLog {
	t.Helper()
	st, err := store.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	system := actorkit.NewSystem(slog.New(slog.DiscardHandler))
	s := &slowLog{
		tb: t, store: st, next: store.InitialIndex + 1,
		begun: make(chan struct{}, 8), results: make(chan error, 8), each: make(chan struct{}, 64),
	}
	b := &store.Batch{}
	b.InitialLog(aTablet, store.InitialIndex, store.InitialTerm)
	if err := st.StateWriter().Commit([]*store.Batch{b}); err != nil {
		t.Fatal(err)
	}
	s.Pair = spawn(system, s.toLog, s.toState, actorkit.BatchConfig{},
		slog.New(slog.DiscardHandler))
	s.end = sync.OnceFunc(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		close(s.results)
		s.end()
		if err := st.Close(); err != nil {
			t.Error(err)
		}
		system.Shutdown()
	})
	return s
}

func (s *slowLog) toLog(writes []*Write) error {
	s.batch[0] = max(s.batch[0], len(writes))
	s.begun <- struct{}{}
	if err := <-s.results; err != nil {
		return err
	}
	return appendAll(s.store, writes)
}

func (s *slowLog) toState(writes []*Write) error {
	s.batch[1] = max(s.batch[1], len(writes))
	return applyAll(s.store, writes)
}

// appendOne sends an append with one entry.
func (s *slowLog) appendOne(name string) {
	s.sendNamed(name, &Write{
		Append: &Append{Tablet: aTablet, Entries: []*raftpb.Entry{logEntry(s.next)}},
	})
	s.next++
}

// applyOne sends a batch with one key to the state.
func (s *slowLog) applyOne(name string) {
	b := &store.Batch{}
	b.Put([]byte("r"), []byte(name))
	s.sendNamed(name, &Write{Batch: b})
}

// sendNamed sends a write whose notification has the name.
func (s *slowLog) sendNamed(name string, w *Write) {
	w.Done = func(err error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if err != nil {
			name += ": " + err.Error()
		}
		s.told = append(s.told, name)
		s.each <- struct{}{}
	}
	s.Send(w)
}

// hold blocks the state actor: later writes wait for release.
func hold(p *Pair) (release func()) {
	held, gate := make(chan struct{}), make(chan struct{})
	p.Send(&Write{Batch: &store.Batch{}, Done: func(error) { close(held); <-gate }})
	<-held
	return func() { close(gate) }
}

// wait returns the notifications once there are n.
func (s *slowLog) wait(n int) []string {
	s.tb.Helper()
	for ; s.seen < n; s.seen++ {
		<-s.each
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.told)
}

func (s *slowLog) want(told []string, want ...string) {
	s.tb.Helper()
	if !slices.Equal(told, want) {
		s.tb.Fatalf("notified %v, want %v", told, want)
	}
}

// TestAppendsAreSynced: an append is reported durable after its sync and not before; appends that
// arrive during the sync share the next one; applies do not wait for them.
func TestAppendsAreSynced(t *testing.T) {
	s := newSlowLog(t)
	s.appendOne("append 1")
	<-s.begun
	s.applyOne("apply")
	if told := s.wait(1); !slices.Equal(told, []string{"apply"}) {
		t.Fatalf("EARLY-DURABLE: notified %v while the sync is under way", told)
	}
	s.appendOne("append 2")
	s.appendOne("append 3")
	s.applyOne("apply behind")
	s.want(s.wait(2), "apply", "apply behind")
	s.results <- nil
	s.want(s.wait(3), "apply", "apply behind", "append 1")
	<-s.begun
	s.results <- nil
	s.want(s.wait(5), "apply", "apply behind", "append 1", "append 2", "append 3")
	if s.batch[0] != 2 {
		t.Errorf("at most %d appends in one commit, want 2", s.batch[0])
	}
	log, err := s.store.OpenLog(aTablet)
	if err != nil {
		t.Fatal(err)
	}
	if last, err := log.LastIndex(); last != s.next-1 || err != nil {
		t.Errorf("the log ends at %d, want %d: %v", last, s.next-1, err)
	}
}

// TestAcknowledgmentWaitsForSync: an append without anything to write, which acknowledges earlier ones,
// is reported durable after them.
func TestAcknowledgmentWaitsForSync(t *testing.T) {
	s := newSlowLog(t)
	s.appendOne("append")
	<-s.begun
	s.sendNamed("acknowledgment", &Write{Append: &Append{Tablet: aTablet}, Stream: &Stream{}})
	s.applyOne("apply")
	if told := s.wait(1); !slices.Equal(told, []string{"apply"}) {
		t.Fatalf("EARLY-DURABLE: notified %v while the sync is under way", told)
	}
	s.results <- nil
	<-s.begun
	s.results <- nil
	s.want(s.wait(3), "apply", "append", "acknowledgment")
}

// TestFailedSync: a failed sync is the log's last: all waiting and later writes receive its error.
// Entries that Raft has committed before can still be applied.
func TestFailedSync(t *testing.T) {
	s := newSlowLog(t)
	s.appendOne("append")
	<-s.begun
	s.appendOne("behind")
	s.results <- errors.New("bad disk")
	s.want(s.wait(2), "append: bad disk", "behind: bad disk")
	s.appendOne("late")
	s.want(s.wait(3), "append: bad disk", "behind: bad disk", "late: bad disk")
	s.applyOne("apply")
	s.want(s.wait(4)[3:], "apply")
	if err := s.Barrier(); err == nil || err.Error() != "bad disk" {
		t.Errorf("a barrier after it: %v", err)
	}
}

// TestStopWhileSyncing: writers stopped during a sync finish the writes that they have accepted.
func TestStopWhileSyncing(t *testing.T) {
	s := newSlowLog(t)
	s.appendOne("append 1")
	<-s.begun
	s.appendOne("append 2")
	s.applyOne("apply")
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		s.end()
	}()
	s.results <- nil
	<-s.begun
	s.results <- nil
	<-stopped
	told := s.wait(3)
	slices.Sort(told)
	s.want(told, "append 1", "append 2", "apply")
}

// TestBarrierWaitsForBoth: a barrier returns after all earlier writes to both actors are written.
func TestBarrierWaitsForBoth(t *testing.T) {
	s := newSlowLog(t)
	s.appendOne("append")
	<-s.begun
	s.applyOne("apply")
	barrier := make(chan error, 1)
	go func() { barrier <- s.Barrier() }()
	s.want(s.wait(1), "apply")
	select {
	case err := <-barrier:
		t.Errorf("it returned before the append was durable: %v", err)
	default:
	}
	s.results <- nil
	s.results <- nil // the barrier's own, unless it shared the first
	if err := <-barrier; err != nil {
		t.Error(err)
	}
	s.want(s.wait(2), "apply", "append")
}

// TestTooLargeBatchOfOne: a batch that is too large is an error of its own replica and ends that
// replica's writes to state and log, since later ones depend on it. Other replicas' writes
// continue. Catches BROKEN=log_gap.
func TestTooLargeBatchOfOne(t *testing.T) {
	s := newSlowLog(t)
	s.results <- nil
	batch := func(entries int) *store.Batch {
		b := &store.Batch{}
		for range entries {
			b.Delete([]byte("r"))
		}
		return b
	}
	one, other := &Stream{}, &Stream{}
	s.sendNamed("other 1", &Write{Batch: batch(1), Stream: other})
	s.sendNamed("one", &Write{Batch: batch(store.MaxBatchLen + 1), Stream: one})
	s.sendNamed("one, behind", &Write{Batch: batch(1), Stream: one})
	s.sendNamed("other 2", &Write{Batch: batch(1), Stream: other})
	s.sendNamed("of nobody", &Write{Batch: batch(1)})
	s.checkRefused(s.wait(5), "of nobody", "one, behind: store: batch is too large",
		"one: store: batch is too large", "other 1", "other 2")
	s.sendNamed("one, to the log", &Write{Append: &Append{Tablet: aTablet}, Stream: one})
	s.checkRefused(s.wait(6)[5:], "one, to the log: store: batch is too large")
}

// TestInvalidAppendOfOne: an append that does not fit the replica's log fails, as does what waits
// behind it in its stream; the writes of others continue.
func TestInvalidAppendOfOne(t *testing.T) {
	s := newSlowLog(t)
	s.appendOne("first")
	<-s.begun // the following form one commit
	stream := &Stream{}
	send := func(name string, index uint64) {
		s.sendNamed(name, &Write{
			Append: &Append{Tablet: aTablet, Entries: []*raftpb.Entry{logEntry(index)}},
			Stream: stream,
		})
	}
	s.appendOne("second")
	send("one", s.next+5)
	send("one, behind", s.next)
	s.sendNamed("third", &Write{
		Append: &Append{Tablet: aTablet, Entries: []*raftpb.Entry{logEntry(s.next)}},
	})
	for range cap(s.results) {
		s.results <- nil
	}
	s.checkRefused(s.wait(5), "first", "one, behind: raftlog: ", "one: raftlog: ", "second",
		"third")
	if log, _ := s.Stats(); log.Batches.Sum != 3 || log.Queued != 0 ||
		log.Took.Count() < log.Batches.Count() {
		t.Errorf("%+v; want 3 requests, and none that waits", log)
	}
}

// checkRefused compares the notifications with names and, for refused ones, the prefix of the
// error.
func (s *slowLog) checkRefused(told []string, want ...string) {
	s.tb.Helper()
	if slices.Contains(told, "one, behind") {
		s.tb.Error("LOG-GAP: what was sent behind a refused batch is written")
	}
	slices.Sort(told)
	for i, want := range want {
		if !strings.HasPrefix(told[i], want) || !strings.Contains(want, ":") && told[i] != want {
			s.tb.Errorf("notified %q, want %q", told[i], want)
		}
	}
}

// TestFenceBetweenApplies: effects behind a fence are not visible when the fence is reported,
// although they were sent together.
func TestFenceBetweenApplies(t *testing.T) {
	s := newSlowLog(t)
	release := hold(s.Pair)
	snaps := make(chan *store.Snap, 1)
	first := &store.Batch{}
	first.Put([]byte("r"), []byte("first"))
	s.Send(&Write{Batch: first, Fence: true, Done: func(error) { snaps <- s.store.Snap() }})
	s.applyOne("second")
	release()
	snap := <-snaps
	defer snap.Close()
	if v, _, err := snap.Get([]byte("r")); !bytes.Equal(v, []byte("first")) || err != nil {
		t.Errorf("what is visible at the fence is %q: %v", v, err)
	}
	s.want(s.wait(1), "second")
}

// logEntry is an entry of a new tablet's first term.
func logEntry(index uint64) *raftpb.Entry {
	return &raftpb.Entry{
		Index: &index, Term: proto.Uint64(store.InitialTerm), Type: raftpb.EntryNormal.Enum(),
	}
}
