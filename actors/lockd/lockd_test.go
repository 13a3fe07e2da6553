package lockd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/percolator-go/percolator/internal/actorkit"
	"github.com/percolator-go/percolator/internal/leaktest"
)

func TestMain(m *testing.M) {
	// The actor library counts dead letters for a second after the first; that goroutine then ends.
	leaktest.Main(m)
}

// clock is a settable clock.
type clock struct{ nanos atomic.Int64 }

func (c *clock) now() time.Time          { return time.Unix(1_000_000, c.nanos.Load()) }
func (c *clock) advance(d time.Duration) { c.nanos.Add(int64(d)) }

func start(t *testing.T, cfg Config) *Lockd {
	t.Helper()
	system := actorkit.NewSystem(slog.New(slog.DiscardHandler))
	l, err := Spawn(system, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, system, l) })
	return l
}

func stop(t *testing.T, system *actor.ActorSystem, l *Lockd) {
	if err := l.Stop(t.Context()); err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	<-l.stopped
	system.Shutdown()
}

func try(t *testing.T, l *Lockd, owner uint64, lease time.Duration, keys ...string) string {
	t.Helper()
	granted, err := l.TryLock(t.Context(), owner, lease, keys...)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(granted)
}

func want(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %s, want %s", what, got, want)
	}
}

func TestLockRules(t *testing.T) {
	clock := &clock{}
	l := start(t, Config{Now: clock.now})
	want(t, "free keys", try(t, l, 1, time.Second, "a", "b"), "[true true]")
	want(t, "another owner", try(t, l, 2, time.Second, "a", "c"), "[false true]")
	want(t, "own key again", try(t, l, 1, time.Second, "a"), "[true]")
	l.Unlock(2, "a") // owner 2 does not hold it: it stays locked
	want(t, "after a stranger's unlock", try(t, l, 2, time.Second, "a"), "[false]")
	l.Unlock(1, "a")
	want(t, "after the owner's unlock", try(t, l, 2, time.Second, "a"), "[true]")
	if got := l.Stats().Held; got != 3 {
		t.Errorf("%d locks held, want 3", got)
	}
}

func TestForgetDeadOwners(t *testing.T) {
	l := start(t, Config{})
	want(t, "the dead", try(t, l, 10, time.Minute, "a"), "[true]")
	want(t, "the dead, too", try(t, l, 19, time.Minute, "b"), "[true]")
	want(t, "the living", try(t, l, 20, time.Minute, "c"), "[true]")
	want(t, "held", try(t, l, 1, time.Minute, "a", "b", "c"), "[false false false]")
	l.Forget(10, 19)
	want(t, "forgotten", try(t, l, 1, time.Minute, "a", "b", "c"), "[true true false]")
}

func TestLeaseEnds(t *testing.T) {
	clock := &clock{}
	l := start(t, Config{Now: clock.now, Lease: 3 * time.Second, MaxLease: 10 * time.Second})
	want(t, "short", try(t, l, 1, time.Second, "short"), "[true]")
	want(t, "default", try(t, l, 1, 0, "default"), "[true]")
	want(t, "cut", try(t, l, 1, time.Hour, "cut"), "[true]")
	want(t, "renewed", try(t, l, 1, time.Second, "renewed"), "[true]")
	clock.advance(time.Second - time.Nanosecond)
	want(t, "just before", try(t, l, 2, time.Second, "short"), "[false]")
	want(t, "renewal", try(t, l, 1, 5*time.Second, "renewed"), "[true]")
	want(t, "a renewal never shortens", try(t, l, 1, time.Millisecond, "renewed"), "[true]")
	clock.advance(time.Nanosecond)
	want(t, "at its end", try(t, l, 2, time.Second, "short", "default", "cut", "renewed"),
		"[true false false false]")
	clock.advance(2 * time.Second)
	want(t, "default lease", try(t, l, 2, time.Second, "default", "cut", "renewed"),
		"[true false false]")
	clock.advance(7 * time.Second)
	want(t, "cut lease", try(t, l, 2, time.Second, "cut", "renewed"), "[true true]")
	if got := l.Stats().Expired; got < 4 {
		t.Errorf("%d leases expired, want at least 4", got)
	}
}

func TestBoundedTable(t *testing.T) {
	l := start(t, Config{MaxEntries: 2})
	want(t, "within the bound", try(t, l, 1, time.Minute, "a", "b"), "[true true]")
	want(t, "beyond it", try(t, l, 1, time.Minute, "c"), "[true]")
	want(t, "it is not recorded", try(t, l, 2, time.Minute, "c"), "[true]")
	want(t, "the recorded ones stay", try(t, l, 2, time.Minute, "a", "b"), "[false false]")
	if s := l.Stats(); s.Held != 2 || s.Unstored != 2 {
		t.Errorf("held %d, unstored %d, want 2 and 2", s.Held, s.Unstored)
	}
}

func TestInvalidRequests(t *testing.T) {
	l := start(t, Config{})
	for name, keys := range map[string][]string{
		"long key": {strings.Repeat("k", MaxKeyBytes+1)}, "many keys": make([]string, MaxKeys+1),
	} {
		if _, err := l.TryLock(t.Context(), 1, 0, keys...); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := l.TryLock(t.Context(), 0, 0, "k"); !errors.Is(err, ErrInvalid) {
		t.Errorf("no owner: %v", err)
	}
}

func TestStoppedAnswers(t *testing.T) {
	system := actorkit.NewSystem(slog.New(slog.DiscardHandler))
	defer system.Shutdown()
	l, err := Spawn(system, Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := l.TryLock(t.Context(), 1, 0, "k"); !errors.Is(err, actorkit.ErrStopped) {
		t.Errorf("after Stop: %v", err)
	}
}

// TestOneOwnerAtATime lets many owners compete for few keys: no key ever has two owners, and
// requests share batches.
func TestOneOwnerAtATime(t *testing.T) {
	l := start(t, Config{})
	const owners, keys, rounds = 16, 4, 300
	var inside [keys]atomic.Int32
	var wg sync.WaitGroup
	for owner := uint64(1); owner <= owners; owner++ {
		wg.Go(func() {
			for i := range rounds {
				k := (i + int(owner)) % keys
				got, err := l.TryLock(context.Background(), owner, time.Minute, fmt.Sprint(k))
				if err != nil {
					t.Error(err)
					return
				}
				if !got[0] {
					continue
				}
				if inside[k].Add(1) != 1 {
					t.Errorf("key %d has two owners", k)
				}
				runtime.Gosched() // even on one processor, others request the key while it is held
				inside[k].Add(-1)
				l.Unlock(owner, fmt.Sprint(k))
			}
		})
	}
	wg.Wait()
	s := l.Stats()
	t.Logf("%+v", s)
	if s.Granted+s.Refused != owners*rounds || s.Granted == 0 || s.Refused == 0 {
		t.Errorf("granted %d and refused %d of %d", s.Granted, s.Refused, owners*rounds)
	}
}
