package memory

import (
	"math"
	"os"
	"runtime/debug"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// Bound is the maximum memory of the process.
type Bound struct {
	Bytes uint64 // 0: unknown
	From  string // source: "--memory", "cgroup", "machine" or "nowhere"
}

// Find returns the bound. set is the operator's setting in bytes; 0 means none.
func Find(set uint64) Bound { return find(set, memlimit.FromCgroup, memlimit.FromSystem) }

func find(set uint64, cgroup, system memlimit.Provider) Bound {
	if set != 0 {
		return Bound{set, "--memory"}
	}
	machine, err := system()
	if err != nil {
		machine = 0
	}
	// Ignore a cgroup limit above the machine's memory, such as version 1's value for "none".
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

// Hold sets the runtime's memory limit to heapPart of the bound, unless GOMEMLIMIT is set or the
// bound is unknown.
func Hold(b Bound) {
	if os.Getenv("GOMEMLIMIT") == "" && b.Bytes != 0 {
		debug.SetMemoryLimit(heapLimit(b.Bytes))
	}
}

// Held returns the runtime's memory limit in bytes; 0 means no limit.
func Held() uint64 {
	if now := debug.SetMemoryLimit(-1); now != math.MaxInt64 {
		return uint64(now)
	}
	return 0
}

func heapLimit(bytes uint64) int64 {
	return int64(min(bytes, math.MaxInt64/heapPart) * heapPart / 100)
}
