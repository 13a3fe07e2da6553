package history

import (
	"strings"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// A leader's record of its garbage, in a fixed amount of memory. It is plain data of the History
// that contains it, and only the tablet's turns use it.

// garbage records what there is to collect, so that a pass need not survey the tablet when little
// has changed: which cells have records, deletes or rollback records that will be superfluous,
// and from which safepoint on. Beyond MaxRemembered it keeps only counts by time, which decide
// when a survey is worthwhile.
type garbage struct {
	known   map[garbageKey]mvcc.Garbage
	bytes   int  // of the rows and columns in known
	all     bool // known is complete; otherwise a survey finds the rest
	waiting histogram
}

type garbageKey struct {
	group mvcc.Group
	cell  mvcc.Cell
	start mvcc.Timestamp // start timestamp of a rollback record; otherwise 0
}

// Limits on what is remembered.
const (
	// In entries, and in bytes of rows and columns: together about 1 MB of memory.
	MaxRemembered      = 4 << 10
	maxRememberedBytes = 512 << 10
)

func newGarbage() garbage { return garbage{known: map[garbageKey]mvcc.Garbage{}, all: true} }

// add counts garbage as one entry and remembers it.
func (g *garbage) add(m *mvcc.Garbage) {
	g.waiting.add(m.From, 1)
	g.remember(m)
}

// remember keeps garbage that is counted already, unless the memory is full; then it sets all to
// false.
func (g *garbage) remember(m *mvcc.Garbage) {
	k := garbageKey{group: m.Group, cell: m.Cell}
	if m.Group == mvcc.GroupRollback {
		k.start = m.TS
	}
	if old, ok := g.known[k]; ok {
		// The lower timestamps hold for both.
		if m.TS < old.TS || m.From < old.From { // seldom: later garbage has later timestamps
			old.TS, old.From = min(old.TS, m.TS), min(old.From, m.From)
			g.known[k] = old
		}
		return
	}
	size := len(m.Cell.Row) + len(m.Cell.Column)
	if len(g.known) >= MaxRemembered || g.bytes+size > maxRememberedBytes {
		g.all = false
		return
	}
	kept := *m
	// The strings are cloned so that they do not retain the request.
	kept.Cell.Row, kept.Cell.Column = strings.Clone(m.Cell.Row), strings.Clone(m.Cell.Column)
	k.cell = kept.Cell
	g.known[k] = kept
	g.bytes += size
}

// takeDue removes the garbage that the safepoint has reached and returns it in the order of
// collection.
func (g *garbage) takeDue(safepoint mvcc.Timestamp) []mvcc.Garbage {
	var due []mvcc.Garbage
	for k, m := range g.known {
		if m.From > safepoint {
			continue
		}
		due = append(due, m)
		delete(g.known, k)
		g.bytes -= len(m.Cell.Row) + len(m.Cell.Column)
	}
	return mvcc.SortGarbage(due)
}

// surveyWorth reports whether the safepoint has reached enough forgotten garbage for a survey: at
// least MaxRemembered entries, and at least an eighth of all that wait for a safepoint, so that the
// entries examined by a survey stay in proportion to those that it finds.
func (g *garbage) surveyWorth(safepoint mvcc.Timestamp) bool {
	const leastWorth, share = MaxRemembered, 8
	return !g.all && g.waiting.due(safepoint) >= max(leastWorth, g.waiting.total()/share)
}

// histogram counts entries by the safepoint from which on they may be deleted. Its buckets are in
// ascending order.
type histogram struct{ buckets []bucket }

// bucket counts entries up to a timestamp, and above that of the bucket before.
type bucket struct {
	upTo mvcc.Timestamp
	n    int
}

// Limits of a histogram.
const (
	// Buckets of one histogram; when there are more, neighbours are joined.
	maxBuckets = 128
	// Width of the narrowest bucket, in milliseconds.
	bucketMillis = 1000
)

// add counts n entries. They arrive nearly in order, so the search starts from the last bucket.
func (h *histogram) add(from mvcc.Timestamp, n int) {
	at := len(h.buckets)
	for at > 0 && h.buckets[at-1].upTo >= from {
		at--
	}
	if at < len(h.buckets) {
		h.buckets[at].n += n
		return
	}
	h.buckets = append(h.buckets, bucket{upTo: roundUp(from), n: n})
	h.shrink()
}

// roundUp returns the end of a timestamp's bucket.
func roundUp(ts mvcc.Timestamp) mvcc.Timestamp {
	if ts.Millis() >= mvcc.MaxTimestamp.Millis()-bucketMillis {
		return mvcc.MaxTimestamp
	}
	return max(ts, mvcc.TimestampAt(ts.Millis()/bucketMillis*bucketMillis+bucketMillis)-1)
}

// shrink joins each bucket with its neighbour when there are too many, which halves their number.
func (h *histogram) shrink() {
	if len(h.buckets) <= maxBuckets {
		return
	}
	kept := h.buckets[:0]
	for i := 0; i < len(h.buckets); i += 2 {
		b := h.buckets[i]
		if i+1 < len(h.buckets) {
			b = bucket{upTo: h.buckets[i+1].upTo, n: b.n + h.buckets[i+1].n}
		}
		kept = append(kept, b)
	}
	h.buckets = kept
}

// take subtracts n deleted entries, the oldest first.
func (h *histogram) take(n int) {
	for len(h.buckets) > 0 && n > 0 {
		if h.buckets[0].n > n {
			h.buckets[0].n -= n
			return
		}
		n -= h.buckets[0].n
		h.buckets = h.buckets[1:]
	}
}

// due returns the number of entries that a safepoint has reached. A bucket counts only when all
// of it is reached.
func (h *histogram) due(safepoint mvcc.Timestamp) (n int) {
	for _, b := range h.buckets {
		if b.upTo <= safepoint {
			n += b.n
		}
	}
	return n
}

// total returns the number of entries.
func (h *histogram) total() (n int) {
	for _, b := range h.buckets {
		n += b.n
	}
	return n
}
