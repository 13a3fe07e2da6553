package main

import (
	"fmt"
	"syscall"
	"time"
)

// cost is the cost of a crawl: its duration, processor time and runs of rank.
type cost struct {
	changed int64         // pages that were loaded or removed
	took    time.Duration // until they were indexed
	cpu     time.Duration // of the whole process, user and system, meanwhile
	ranked  uint64        // runs of rank
	initial uint64        // runs of rank in the first crawl; 0 in the first crawl itself
}

// cpu returns the user and system processor time used by this process, or 0 if it cannot be
// determined.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// ranked returns the number of runs of rank.
func ranked(all []observerRuns) uint64 {
	for _, o := range all {
		if o.name == "rank" {
			return o.runs
		}
	}
	return 0
}

// String returns a line with the speed, if pages were loaded, and one with the rank computations.
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
