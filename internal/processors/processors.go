// Package processors sets the number of Go's processors (GOMAXPROCS) of a process that is a node.
//
// Go's scheduler has no priorities: while Badger builds tables, each of its goroutines occupies a
// processor for up to 10 ms at a time, and on a machine with few processors transactions wait behind
// them. The operating system shares a processor fairly among threads. So the process gets a few more
// of Go's processors than the machine has, and the operating system decides (docs/adr/0077).
//
// Called by: app, and measurements that open nodes in their own process. Nothing is kept; a crash
// leaves nothing.
package processors

import (
	"os"
	"runtime"
)

// spare is the number of Go's processors beyond the machine's: one for a flush of a memtable, one for a
// compaction.
const spare = 2

// AddSpare sets GOMAXPROCS to the number of the machine's processors plus 2. It does nothing if the
// environment sets GOMAXPROCS, or if a cgroup limits the process to fewer processors, because the
// kernel would then stop the whole process for the rest of a period.
func AddSpare() {
	if n := runtime.NumCPU(); os.Getenv("GOMAXPROCS") == "" && runtime.GOMAXPROCS(0) == n {
		runtime.GOMAXPROCS(n + spare)
	}
}
