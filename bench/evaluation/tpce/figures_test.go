package tpce

import (
	"math"
	"testing"
	"time"

	"github.com/google/pprof/profile"

	"github.com/percolator-go/percolator/bench/evaluation/harness"
)

func TestFit(t *testing.T) {
	slope, intercept, residual := fit([][2]float64{{1, 12}, {2, 22}, {3, 32}})
	if math.Abs(slope-10) > 1e-9 || math.Abs(intercept-2) > 1e-9 || residual > 1e-9 {
		t.Errorf("%v, %v, %v", slope, intercept, residual)
	}
	if _, _, residual := fit([][2]float64{{1, 10}, {2, 26}, {3, 30}}); math.Abs(residual-4./22) > 1e-9 {
		t.Errorf("a residual of %v", residual)
	}
}

// TestJudge: the time until steady is that of the first window with enough of the remaining nodes'
// rate.
func TestJudge(t *testing.T) {
	course := func(after ...int64) []int64 {
		seconds := []int64{0, 10, 20, 90, 90, 90} // killed in the last of them
		return append(append(seconds, after...), 50, 50, 50, 50, 50, 50, 50, 50)
	}
	for name, c := range map[string]struct {
		after []int64
		want  float64
	}{"at once": {nil, 1}, "dip": {[]int64{0, 0}, 2}, "long": {make([]int64, 20), 20}} {
		r := &harness.Run{}
		if err := judge(r, course(c.after...), 5, 12, 0); err != nil {
			t.Fatal(err)
		}
		if got, _ := r.Median(killed, "recovery", "s until steady"); got != c.want {
			t.Errorf("%s: steady after %v s; want %v", name, got, c.want)
		}
	}
	if judge(&harness.Run{}, []int64{90, 90, 90, 90, 90, 90, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 5, 12, 0) == nil {
		t.Error("no error of a load that never recovers")
	}
}

// TestBreakdown: a sample counts to what the runtime does, or to the innermost known package.
func TestBreakdown(t *testing.T) {
	p := &profile.Profile{}
	id := uint64(0)
	add := func(stack ...string) {
		s := &profile.Sample{Value: []int64{1, int64(time.Millisecond)}}
		for _, name := range stack {
			id++
			s.Location = append(s.Location, &profile.Location{
				ID: id, Line: []profile.Line{{Function: &profile.Function{ID: id, Name: name}}},
			})
		}
		p.Sample = append(p.Sample, s)
	}
	const module = "github.com/percolator-go/percolator/"
	add("slices.Sort", module+"internal/mvcc.Read", module+"actors/tablet.(*group).Step")
	add("runtime.memmove", "github.com/dgraph-io/badger/v4.(*Txn).Get", module+"store.Get")
	add("runtime.nextFreeFast", "runtime.mallocgc", module+"store.Get")
	add("runtime.scanobject", "runtime.gcDrain", "runtime.gcBgMarkWorker")
	add("runtime.futex", "runtime.findRunnable", "runtime.schedule")
	add("syscall.Syscall", "internal/poll.(*FD).Write", "net.(*conn).Write", "google.golang.org/grpc.write")
	add("main.main")
	got := breakdown(p)
	for part, want := range map[string]time.Duration{
		partMVCC: time.Millisecond, partStorage: time.Millisecond, partAllocation: time.Millisecond,
		partCollection: time.Millisecond, partScheduling: time.Millisecond, partSockets: time.Millisecond,
		partOther: time.Millisecond,
	} {
		if got[part] != want {
			t.Errorf("%s: %v; want %v", part, got[part], want)
		}
	}
}
