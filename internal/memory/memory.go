package memory

import (
	"math"
	"os"
	"runtime/debug"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// Bound is how much memory the process may take.
type Bound struct {
	Bytes uint64 // 0: that is not known
	From  string // where it is from: "--memory", "cgroup", "machine" or "nowhere"
}

// Find returns the bound. set is what the operator says; 0: nothing.
func Find(set uint64) Bound { return find(set, memlimit.FromCgroup, memlimit.FromSystem) }

func find(set uint64, cgroup, system memlimit.Provider) Bound {
	if set != 0 {
		return Bound{set, "--memory"}
	}
	machine, err := system()
	if err != nil {
		machine = 0
	}
	// A cgroup's limit above the machine's memory bounds nothing, such as version 1's for "none".
	if n, err := cgroup(); err == nil && n > 0 && (machine == 0 || n < machine) {
		return Bound{n, "cgroup"}
	}
	if machine == 0 {
		return Bound{0, "nowhere"}
	}
	return Bound{machine, "machine"}
}

// heapPart is the heap's part of the bound, in percent.
const heapPart = 75

// Hold sets the runtime's memory limit to the heap's part of the bound. A limit in the environment
// (GOMEMLIMIT) stays.
func Hold(b Bound) {
	if os.Getenv("GOMEMLIMIT") == "" && b.Bytes != 0 {
		debug.SetMemoryLimit(heapLimit(b.Bytes))
	}
}

// Held is the runtime's memory limit in bytes; 0: there is none.
func Held() uint64 {
	if now := debug.SetMemoryLimit(-1); now != math.MaxInt64 {
		return uint64(now)
	}
	return 0
}

func heapLimit(bytes uint64) int64 {
	return int64(min(bytes, math.MaxInt64/heapPart) * heapPart / 100)
}
