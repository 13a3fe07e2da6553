package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"syscall"
	"time"

	percolator "github.com/percolator-go/percolator"
)

// cost is the cost of a crawl: its duration, processor time and runs of rank.
type cost struct {
	changed int64         // pages that were loaded or removed
	took    time.Duration // until they were indexed
	cpu     time.Duration // of the whole process in that time, user and system
	ranked  uint64        // runs of rank
	initial uint64        // runs of rank in the first crawl; 0 in the first crawl itself
	sent    percolator.Stats
}

// messages returns the messages to tablets per page, by operation, and how many cells were read:
// without the cache, prefetching and several cells in a message, each cell would be a message.
func (c cost) messages() string {
	pages, total := float64(c.changed), 0.0
	names := slices.SortedFunc(maps.Keys(c.sent.Messages), func(a, b string) int {
		return cmp.Compare(c.sent.Messages[b], c.sent.Messages[a])
	})
	text := ""
	for i, name := range names {
		n := float64(c.sent.Messages[name]) / pages
		if total += n; i < 6 {
			text += fmt.Sprintf(", %s %.1f", name, n)
		}
	}
	reads := float64(c.sent.ReadCells-c.sent.PrefetchAsked+c.sent.CacheHits) / pages
	return fmt.Sprintf("messages: %.1f per page%s; %.1f cells read, %.1f of them from the cache, %.1f prefetched\n",
		total, text, reads, float64(c.sent.CacheHits)/pages, float64(c.sent.PrefetchUsed)/pages)
}

// statsSince subtracts the earlier counters of messages.
func statsSince(before, after percolator.Stats) percolator.Stats {
	for name, n := range before.Messages {
		after.Messages[name] -= n
	}
	after.ReadCells -= before.ReadCells
	after.WrittenCells -= before.WrittenCells
	after.WrittenBytes -= before.WrittenBytes
	after.CacheHits -= before.CacheHits
	after.PrefetchAsked -= before.PrefetchAsked
	after.PrefetchUsed -= before.PrefetchUsed
	return after
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
		text += "\n" + c.messages()
	}
	text += fmt.Sprintf("written: %d cells of %d bytes\nrank: %d runs", c.sent.WrittenCells,
		c.sent.WrittenBytes, c.ranked)
	if c.initial > 0 {
		text += fmt.Sprintf(", %.1f%% of the %d of the first crawl",
			100*float64(c.ranked)/float64(c.initial), c.initial)
	}
	return text + "\n"
}
