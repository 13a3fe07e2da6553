package main

import (
	"fmt"
	"syscall"
	"time"
)

// cost is what a crawl has cost.
type cost struct {
	changed int64         // pages that were loaded or removed
	took    time.Duration // until they were indexed
	cpu     time.Duration // of the whole process, user and system, meanwhile
	ranked  uint64        // runs of rank
	initial uint64        // runs of rank in the first crawl; 0 in the first crawl itself
}

// cpu is the processor time that this process has used so far, user and system; 0 if the
// system does not say.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// ranked is the number of runs of rank.
func ranked(all []observerRuns) uint64 {
	for _, o := range all {
		if o.name == "rank" {
			return o.runs
		}
	}
	return 0
}

// String is a line for the speed, if there was anything to do, and one for the ranks.
func (c cost) String() string {
	text := ""
	if c.changed > 0 && c.took > 0 {
		text = fmt.Sprintf("speed: %.0f pages per second", float64(c.changed)/c.took.Seconds())
		if c.cpu > 0 {
			text += fmt.Sprintf(", %s of CPU per page",
				(c.cpu / time.Duration(c.changed)).Round(10*time.Microsecond))
		}
		text += "\n"
	}
	text += fmt.Sprintf("rank: %d runs", c.ranked)
	if c.initial > 0 {
		text += fmt.Sprintf(", %.1f%% of the %d of the first crawl",
			100*float64(c.ranked)/float64(c.initial), c.initial)
	}
	return text + "\n"
}
