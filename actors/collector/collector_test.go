package collector

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/actorkit"
	"github.com/percolator-go/percolator/internal/leaktest"
	"github.com/percolator-go/percolator/internal/wire"
)

const history = 10 * time.Second

func newCycle(t *testing.T, w *world) *cycle {
	cfg, err := Config{Client: w, Record: w, History: history}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	return &cycle{cfg: cfg}
}

// behind returns the timestamp that is this long before now.
func (w *world) behind(d time.Duration) uint64 { return w.ts(w.now - d.Milliseconds()) }

// TestCycle: without garbage nothing is published; with garbage in one tablet, all tablets receive
// the bound, confirm it, and only then receive the safepoint.
func TestCycle(t *testing.T) {
	w := newWorld(t, "f", "p")
	c := newCycle(t, w)
	c.turn(t.Context())
	if len(w.sent) > 0 {
		t.Fatalf("without garbage, requests were sent: %v", w.sent)
	}
	w.tablets[1].garbage = 1
	w.prewrite("x", w.behind(2*history), false) // abandoned: its primary may be in any tablet
	c.turn(t.Context())
	want := "2 bound,3 bound,4 bound,2 confirm,3 confirm,4 confirm,4 confirm,2 safepoint,3 safepoint,4 safepoint"
	if got := strings.Join(w.sent, ","); got != want {
		t.Errorf("sent %s\nwant %s", got, want)
	}
	if w.record.Step != wire.Collection_STEP_IDLE || w.record.Safepoint != w.record.Target ||
		w.record.Target == 0 {
		t.Errorf("the record reports %v", w.record)
	}
	if limit := w.behind(history); w.record.Target > limit {
		t.Errorf("the target is %d, above now less the history, %d", w.record.Target, limit)
	}
	if s := c.status.snapshot(); s.BlockedBy != "" || s.Target != 0 {
		t.Errorf("status %v", s)
	}
}

// TestBindsAgain: a tablet that has lost its bound ends the turn, with a reason, and the next turn
// binds again.
func TestBindsAgain(t *testing.T) {
	w := newWorld(t, "f")
	c := newCycle(t, w)
	w.tablets[1].garbage = 1
	w.splitAt = func(int) bool { // loses the bound once
		if w.record.Step == wire.Collection_STEP_CONFIRM && !slices.Contains(w.sent, "3 confirm") {
			w.tablets[1].bound = 0
		}
		return false
	}
	c.turn(t.Context())
	want := "2 bound,3 bound,2 confirm,3 confirm"
	if got := strings.Join(w.sent, ","); got != want || w.record.Step != wire.Collection_STEP_BIND {
		t.Errorf("sent %s, want %s; the record reports %v", got, want, w.record)
	}
	if s := c.status.snapshot(); s.BlockedBy != errNoBound.Error() {
		t.Errorf("blocked by %q", s.BlockedBy)
	}
	c.turn(t.Context())
	if s := c.status.snapshot(); s.BlockedBy != "" || w.record.Step != wire.Collection_STEP_IDLE ||
		w.record.Safepoint != w.record.Target {
		t.Errorf("the record reports %v, status %v", w.record, s)
	}
}

// TestNothingCollectedBeforeConfirmation: a live transaction's lock below the bound holds back
// every safepoint, also of unrelated tablets, until the limit; then the transaction is rolled back
// by force.
func TestNothingCollectedBeforeConfirmation(t *testing.T) {
	w := newWorld(t, "m")
	c := newCycle(t, w)
	w.tablets[0].garbage = 1
	w.prewrite("x", w.behind(2*history), true)
	c.turn(t.Context())
	if s := c.status.snapshot(); !strings.Contains(s.BlockedBy, `row "x"`) ||
		s.Target != w.record.Target {
		t.Errorf("status %v, want it to name the lock that blocks", s)
	}
	if w.tablets[0].safepoint != 0 || w.record.Step != wire.Collection_STEP_CONFIRM {
		t.Fatalf("a safepoint of %d, step %v", w.tablets[0].safepoint, w.record.Step)
	}
	target := w.record.Target
	w.now += c.cfg.ForceAfter.Milliseconds()
	c.turn(t.Context())
	if len(w.locks) != 0 || w.tablets[0].safepoint != target || w.tablets[1].safepoint != target {
		t.Errorf("after the limit: locks %v, safepoints %d and %d, want %d", w.locks,
			w.tablets[0].safepoint, w.tablets[1].safepoint, target)
	}
}

// TestHolds: leases in force retain history; expired leases and leases that are too old do not.
func TestHolds(t *testing.T) {
	w := newWorld(t, "m")
	c := newCycle(t, w)
	w.tablets[0].garbage = 1
	oldest := w.behind(3 * history)
	w.leases.Leases = []*wire.Lease{
		{Holder: "over", Oldest: w.behind(5 * history), Expires: w.behind(time.Second)},
		{Holder: "reader", Oldest: oldest, Expires: w.ts(w.now + 60_000)},
	}
	c.turn(t.Context())
	if w.record.Target != oldest {
		t.Errorf("the target is %d, and a reader at %d is open", w.record.Target, oldest)
	}
	if s := c.status.snapshot(); s.Holds != 1 || s.OldestHold != oldest {
		t.Errorf("status %v", s)
	}
	w.now += 1000
	c.turn(t.Context())
	if s := c.status.snapshot(); !strings.Contains(s.BlockedBy, "reader holds history") {
		t.Errorf("status %v, want it to name the holder", s)
	}
	w.now += 2 * 60_000 // the lease has expired
	c.turn(t.Context())
	if w.record.Safepoint <= oldest {
		t.Errorf("the safepoint stays at %d for a lease that is over", w.record.Safepoint)
	}
	w.leases.Leases = []*wire.Lease{
		{Holder: "leaked", Oldest: w.behind(c.cfg.MaxHold), Expires: w.ts(w.now + 60_000)},
	}
	before := w.record.Target
	w.now += 2000
	c.turn(t.Context())
	if w.record.Target <= before {
		t.Errorf("a lease older than MaxHold holds history at %d", w.record.Target)
	}
}

// TestLeaseWhileChoosing: a lease granted between reading the leases and choosing the bound is
// respected.
func TestLeaseWhileChoosing(t *testing.T) {
	w := newWorld(t)
	c := newCycle(t, w)
	w.tablets[0].garbage = 1
	w.splitAt = func(op int) bool {
		if op == 4 { // just before the record is saved
			w.leases.Leases = []*wire.Lease{
				{Holder: "late", Oldest: w.behind(2 * history), Expires: w.ts(w.now + 60_000)},
			}
		}
		return false
	}
	c.turn(t.Context())
	if w.record.Target != 0 {
		t.Fatalf("a target of %d was chosen without looking at a lease", w.record.Target)
	}
	c.turn(t.Context())
	if want := w.leases.Leases[0].Oldest; w.record.Target != want {
		t.Errorf("the target is %d, want %d", w.record.Target, want)
	}
}

// TestCrashAnywhere: the collector crashes at any operation, before or after it took effect, while
// tablets split and late prewrites arrive. The next one finishes the cycle, and no safepoint ever
// passes a lock or a tablet without the bound.
func TestCrashAnywhere(t *testing.T) {
	for _, after := range []bool{false, true} {
		died := true
		for failAt := 1; died; failAt++ {
			died = crash(t, failAt, after, uint64(failAt))
			if !died && failAt < 20 {
				t.Fatalf("a cycle needed %d operations", failAt)
			}
		}
	}
}

func crash(t *testing.T, failAt int, after bool, seed uint64) (died bool) {
	t.Helper()
	w := newWorld(t, "d", "k", "t")
	w.failAt, w.after = failAt, after
	w.tablets[2].garbage = 1
	rng := rand.New(rand.NewPCG(seed, 1))
	for i := range 8 {
		w.prewrite(fmt.Sprintf("%c%d", 'a'+rng.IntN(26), i),
			w.behind(history+time.Duration(i)*time.Second), false)
	}
	w.splitAt = func(op int) bool {
		if rng.IntN(3) == 0 {
			w.prewrite(fmt.Sprintf("%c", 'a'+rng.IntN(26)), w.behind(2*history), false)
		}
		return rng.IntN(12) == 0 && len(w.tablets) < 12
	}
	newCycle(t, w).turn(t.Context())
	died = w.ops >= failAt
	target := w.record.Target
	for turns := 0; w.record.Safepoint == 0 || w.record.Safepoint < target; turns++ {
		if turns > 30 {
			t.Fatalf("crash at %d (after: %v): the cycle is not finished: %v", failAt, after,
				w.record)
		}
		newCycle(t, w).turn(t.Context())
	}
	if got := w.tablets[2].safepoint; got < target {
		t.Errorf("crash at %d (after: %v): safepoint %d, want %d", failAt, after, got, target)
	}
	return died
}

// TestSpawn: the actor takes turns without messages and ends with Stop.
func TestSpawn(t *testing.T) {
	leaktest.Check(t)
	system := actorkit.NewSystem(slog.New(slog.DiscardHandler))
	defer system.Shutdown()
	w := newWorld(t)
	tended := make(chan struct{}, 1000)
	c, err := Spawn(system, Config{
		Client: w, Record: w, Drops: drops(tended), History: history, Interval: time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		<-tended
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := c.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	if w.record.Target == 0 {
		t.Error("a dropped table waits for a safepoint, and no cycle has begun")
	}
	if _, err := Spawn(system, Config{}); err == nil {
		t.Error("a collector without a client was started")
	}
}

type drops chan struct{}

// Tend implements Drops.
func (d drops) Tend(context.Context, []*pb.StatusResponse) (bool, error) {
	select {
	case d <- struct{}{}:
	default:
	}
	return true, nil
}
