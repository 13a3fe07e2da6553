package memory

import (
	"errors"
	"math"
	"runtime/debug"
	"testing"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

func is(n uint64) memlimit.Provider { return func() (uint64, error) { return n, nil } }

func unknown() (uint64, error) { return 0, errors.New("unknown") }

func unlimited() (uint64, error) { return 0, memlimit.ErrNoLimit }

// TestFind: the operator's setting precedes the cgroup's limit, which precedes the machine's memory
// unless it exceeds that.
func TestFind(t *testing.T) {
	const gib = 1 << 30
	for _, c := range []struct {
		name            string
		set             uint64
		cgroup, machine memlimit.Provider
		want            Bound
	}{
		{"said", 2 * gib, is(gib), is(8 * gib), Bound{2 * gib, "--memory"}},
		{"a container", 0, is(gib), is(8 * gib), Bound{gib, "cgroup"}},
		{"no container", 0, unlimited, is(8 * gib), Bound{8 * gib, "machine"}},
		{"no cgroups", 0, unknown, is(8 * gib), Bound{8 * gib, "machine"}},
		{"version 1's none", 0, is(math.MaxInt64 &^ 4095), is(8 * gib), Bound{8 * gib, "machine"}},
		{"a container on an unknown machine", 0, is(gib), unknown, Bound{gib, "cgroup"}},
		{"nothing is known", 0, unknown, unknown, Bound{0, "nowhere"}},
		{"nothing", 0, is(0), unknown, Bound{0, "nowhere"}},
	} {
		if got := find(c.set, c.cgroup, c.machine); got != c.want {
			t.Errorf("%s: %+v, not %+v", c.name, got, c.want)
		}
	}
}

// TestHold: three quarters of the bound are the heap's limit, unless the environment sets one.
func TestHold(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	t.Setenv("GOMEMLIMIT", "")
	Hold(Bound{Bytes: 4 << 30, From: "cgroup"})
	if got := Held(); got != 3<<30 {
		t.Errorf("the heap is held to %d", got)
	}
	Hold(Bound{From: "nowhere"})
	t.Setenv("GOMEMLIMIT", "1GiB")
	Hold(Bound{Bytes: 8 << 30, From: "cgroup"})
	if got := Held(); got != 3<<30 {
		t.Errorf("a limit that was set by the environment becomes %d", got)
	}
	debug.SetMemoryLimit(math.MaxInt64)
	if got := Held(); got != 0 {
		t.Errorf("without a limit it is %d", got)
	}
	if got := heapLimit(math.MaxUint64); got <= 0 {
		t.Errorf("of all memory the heap gets %d", got)
	}
}
