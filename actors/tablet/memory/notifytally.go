package memory

import (
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/store"
)

// Counts and ages of a column's notifications and intents. Tallies belong to the tablet's
// turns, except that of a Count, which belongs to its worker until it is merged.

// tally counts one observed column's entries. Counts may be negative while a worker counts the
// entries as of the load: their removal is counted here, but not their addition.
type tally struct {
	pending, parked, intents int
	ages                     ages // ages of the pending notifications
	origins                  ages // of the pending notifications: the least origin of each
}

// countNotify adds n (1 or -1) entries like this one.
func (t *tally) countNotify(e *mvcc.Notify, n int) {
	if e.ParkedTS != 0 {
		t.parked += n
		return
	}
	t.pending += n
	t.ages.add(e.TS, n)
	t.origins.add(e.Origin(), n)
}

// count counts the column's notifications and intents in the span. most limits the number of
// intents, and that of notifications that are not parked.
func (t *tally) count(snap *store.Snap, key columnKey, span mvcc.Span, most int) error {
	err := eachNotify(snap, key, span, func(n mvcc.CellNotify) bool {
		t.countNotify(&n.Notify, 1)
		return t.pending < most
	})
	if err != nil {
		return err
	}
	return eachIntent(snap, key, span, func(mvcc.CellIntent) bool {
		t.intents++
		return t.intents < most
	})
}

// merge adds the other's counts: one contains the entries as of the load, the other the changes
// since.
func (t *tally) merge(o *tally) {
	t.pending += o.pending
	t.parked += o.parked
	t.intents += o.intents
	t.ages.merge(&o.ages)
	t.origins.merge(&o.origins)
}

// maxAges is the maximum number of buckets of ages; beyond it they are merged.
const maxAges = 4096

// ages counts timestamps by time, in buckets of a second, which are doubled in width whenever
// there are too many. It yields the oldest timestamp without a list of all.
type ages struct {
	buckets map[int64]ageBucket // by milliseconds / width
	double  uint                // width is 1000 << double
}

// ageBucket counts the timestamps of one bucket. least is a lower bound of them, and nearly
// always the lowest.
type ageBucket struct {
	n     int
	least mvcc.Timestamp // 0: unknown
}

// width returns the time in one bucket, in milliseconds.
func (a *ages) width() int64 { return 1000 << a.double }

// add adds a timestamp (n is 1) or removes one (-1).
func (a *ages) add(ts mvcc.Timestamp, n int) {
	b := ageBucket{n: n}
	if n > 0 {
		b.least = ts
	}
	a.put(ts.Millis()/a.width(), b)
	for len(a.buckets) > maxAges {
		a.coarsen()
	}
}

// put adds a bucket's count to that of the bucket at the position. A bucket whose count is zero
// is removed; a negative one stays until a merge makes up for it.
func (a *ages) put(at int64, b ageBucket) {
	if a.buckets == nil {
		a.buckets = map[int64]ageBucket{}
	}
	old := a.buckets[at]
	b.n += old.n
	if b.least == 0 || (old.least != 0 && old.least < b.least) {
		b.least = old.least
	}
	if b.n == 0 {
		delete(a.buckets, at)
		return
	}
	a.buckets[at] = b
}

// coarsen doubles the width of the buckets and so nearly halves their number.
func (a *ages) coarsen() {
	fine := a.buckets
	a.double++
	a.buckets = make(map[int64]ageBucket, len(fine)/2)
	for at, b := range fine {
		a.put(at/2, b)
	}
}

// merge adds the other's buckets, some of which may compensate negative ones here; the other
// must not be used afterwards. The result has the coarser width of the two. Unless nothing was
// added or removed here, a bucket of the other gets the start of its time as its least: the least
// of timestamps added here may have been dropped, when removals of the other's timestamps brought
// the count here to zero.
func (a *ages) merge(o *ages) {
	if a.buckets == nil {
		*a = *o
		return
	}
	for a.double < o.double {
		a.coarsen()
	}
	for at, b := range o.buckets {
		at = at * o.width() / a.width()
		b.least = max(mvcc.TimestampAt(at*a.width()), 1)
		a.put(at, b)
	}
	for len(a.buckets) > maxAges {
		a.coarsen()
	}
}

// counted returns the buckets, each with its least timestamp or an earlier one.
func (a *ages) counted() []ageBucket {
	out := make([]ageBucket, 0, len(a.buckets))
	for at, b := range a.buckets {
		if b.least == 0 {
			b.least = mvcc.TimestampAt(at * a.width())
		}
		out = append(out, b)
	}
	return out
}

// oldest returns the oldest timestamp, or one at most a bucket's width before it; 0 if there
// is none.
func (a *ages) oldest() (oldest mvcc.Timestamp) {
	for at, b := range a.buckets {
		if b.least == 0 { // unknown: the start of the bucket
			b.least = max(mvcc.TimestampAt(at*a.width()), 1)
		}
		if oldest == 0 || b.least < oldest {
			oldest = b.least
		}
	}
	return oldest
}
