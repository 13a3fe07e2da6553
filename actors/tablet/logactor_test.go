package tablet

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/percolator-go/percolator/internal/actorkit"
	"github.com/percolator-go/percolator/store"
)

// slowSync is a log actor whose syncs begin when they are let go on, and what it has told so far.
type slowSync struct {
	*Writers
	tb      testing.TB
	store   *store.Store
	begun   chan struct{} // a sync has begun
	results chan error    // a sync ends with this

	mu   sync.Mutex
	told []string
	each chan struct{} // one for each that is told
	stop func()        // the actor; once
	seen int           // of them
}

func newSlowSync(t *testing.T) *slowSync { return newSlowSyncOn(t, store.Options{InMemory: true}) }

func newSlowSyncOn(t *testing.T, o store.Options) *slowSync {
	st, err := store.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	system := actor.NewActorSystem()
	s := &slowSync{tb: t, store: st, begun: make(chan struct{}, 8), results: make(chan error, 8), each: make(chan struct{}, 64)}
	s.LogActor = &LogActor{system: system}
	s.pid = system.Root.Spawn(actor.PropsFromProducer(func() actor.Actor {
		return &logReceiver{writer: st.LogWriter(), batch: actorkit.NewBatcher[*write](actorkit.BatchConfig{}), stats: &s.stats,
			logger: slog.New(slog.DiscardHandler), sync: func() error {
				s.begun <- struct{}{}
				return <-s.results
			}}
	}))
	s.stop = sync.OnceFunc(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		close(s.results)
		s.stop()
		if err := st.Close(); err != nil {
			t.Error(err)
		}
		system.Shutdown()
	})
	return s
}

// put sends a batch with one key.
func (s *slowSync) put(name string, log, lazy bool) {
	b := &store.Batch{}
	b.PutTombstone(uint64(len(name)), []byte(name))
	if lazy {
		b.SetLazy()
	}
	s.sendNamed(name, &write{batch: b, log: log})
}

// sendNamed sends a write that is told under the name.
func (s *slowSync) sendNamed(name string, w *write) {
	w.done = func(err error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if err != nil {
			name += ": " + err.Error()
		}
		s.told = append(s.told, name)
		s.each <- struct{}{}
	}
	s.send(w)
}

// wait returns what was told once there are so many.
func (s *slowSync) wait(n int) []string {
	s.tb.Helper()
	for ; s.seen < n; s.seen++ {
		<-s.each
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.told)
}

func (s *slowSync) want(told []string, want ...string) {
	s.tb.Helper()
	if !slices.Equal(told, want) {
		s.tb.Fatalf("told %v, want %v", told, want)
	}
}

// An append is told durable after its sync and not before; what is applied meanwhile does not wait for it, what needs a sync of
// its own does, and all that is behind it, in order.
func TestAppendsAreSynced(t *testing.T) {
	s := newSlowSync(t)
	s.put("append 1", true, false)
	<-s.begun
	s.put("apply", false, true)
	if told := s.wait(1); !slices.Equal(told, []string{"apply"}) {
		t.Fatalf("EARLY-DURABLE: told %v while the sync is under way", told)
	}
	s.put("append 2", true, false)
	s.put("apply behind", false, true)
	s.put("append 3", true, false)
	s.results <- nil
	<-s.begun
	s.want(s.wait(3), "apply", "append 1", "apply behind")
	s.results <- nil
	s.want(s.wait(5), "apply", "append 1", "apply behind", "append 2", "append 3")
}

// A sync that fails is the last: who waited for it hears of it, and everybody after.
func TestFailedSync(t *testing.T) {
	s := newSlowSync(t)
	s.put("append", true, false)
	<-s.begun
	s.put("behind", true, false)
	s.results <- errors.New("bad disk")
	s.want(s.wait(2), "append: bad disk", "behind: bad disk")
	s.put("apply", false, true)
	s.want(s.wait(3), "append: bad disk", "behind: bad disk", "apply: bad disk")
}

// A log actor that is stopped while it syncs ends what it has taken on.
func TestStopWhileSyncing(t *testing.T) {
	s := newSlowSync(t)
	s.put("append 1", true, false)
	<-s.begun
	s.put("append 2", true, false)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		s.stop()
	}()
	s.results <- nil
	<-s.begun
	s.results <- nil
	<-stopped
	s.want(s.wait(2), "append 1", "append 2")
}

// A batch that is too large is the error of its own replica, and ends what that replica writes: what was sent behind it
// rests on it. What others write goes on. Catches BROKEN=log_gap.
func TestTooLargeBatchOfOne(t *testing.T) {
	s := newSlowSync(t)
	batch := func(entries int) *store.Batch {
		b := &store.Batch{}
		b.SetLazy()
		for range entries {
			b.Delete([]byte("r"))
		}
		return b
	}
	one, other := &writeStream{}, &writeStream{}
	s.sendNamed("other 1", &write{batch: batch(1), stream: other})
	s.sendNamed("one", &write{batch: batch(s.store.MaxBatchLen() + 1), stream: one})
	s.sendNamed("one, behind", &write{batch: batch(1), stream: one})
	s.sendNamed("other 2", &write{batch: batch(1), stream: other})
	s.sendNamed("of nobody", &write{batch: batch(1)})
	told := s.wait(5)
	if slices.Contains(told, "one, behind") {
		t.Error("LOG-GAP: what was sent behind a refused batch is written")
	}
	slices.Sort(told)
	for i, want := range []string{"of nobody", "one, behind: store: batch is too large", "one: store: batch is too large", "other 1", "other 2"} {
		if !strings.HasPrefix(told[i], want) || !strings.Contains(want, ":") && told[i] != want {
			t.Errorf("told %q, want %q", told[i], want)
		}
	}
}
