package bulk

import (
	"os"
	"strconv"
	"syscall"
)

// background is the niceness of a background process: under contention it gets about a tenth of the
// processor time of a normal one.
const background = 10

// giveWay lowers the priority of this process, as far as permitted.
func giveWay() {
	// Linux keeps niceness per thread. New threads inherit it from those that start them; the second
	// pass covers threads started during the first.
	for range 2 {
		threads, _ := os.ReadDir("/proc/self/task")
		for _, t := range threads {
			id, err := strconv.Atoi(t.Name())
			if err != nil {
				continue
			}
			// The system call returns 20 minus the niceness.
			if now, err := syscall.Getpriority(syscall.PRIO_PROCESS, id); err == nil && 20-now < background {
				_ = syscall.Setpriority(syscall.PRIO_PROCESS, id, background)
			}
		}
	}
}
