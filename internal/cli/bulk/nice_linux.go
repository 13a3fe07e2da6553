package bulk

import (
	"os"
	"strconv"
	"syscall"
)

// background is the niceness of a process that gives way to others: it gets a tenth of what they
// get while all want more than there is.
const background = 10

// giveWay lets other processes of the machine go before this one. What can't be changed stays:
// it is a courtesy.
func giveWay() {
	// Linux keeps the niceness of threads. Those that are started later inherit it from the
	// ones that start them; the second look finds those that were started during the first.
	for range 2 {
		threads, _ := os.ReadDir("/proc/self/task")
		for _, t := range threads {
			id, err := strconv.Atoi(t.Name())
			if err != nil {
				continue
			}
			// The system call answers with 20 less the niceness.
			if now, err := syscall.Getpriority(syscall.PRIO_PROCESS, id); err == nil && 20-now < background {
				_ = syscall.Setpriority(syscall.PRIO_PROCESS, id, background)
			}
		}
	}
}
