package tablet

import (
	"math"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// tally counts one observed column's entries. Counts may be below zero while a worker counts what was there before.
type tally struct {
	pending, parked, intents int
	ages                     ages // of pending ones
}

// countNotify adds n (1 or -1) entries like this one.
func (t *tally) countNotify(e *mvcc.Notify, n int) {
	if e.ParkedTS != 0 {
		t.parked += n
		return
	}
	t.pending += n
	t.ages.add(e.TS, n)
}

func (t *tally) merge(o *tally) {
	t.pending += o.pending
	t.parked += o.parked
	t.intents += o.intents
	t.ages.merge(&o.ages)
}

// maxAges bounds the buckets of ages; beyond it they get coarser.
const maxAges = 4096

// ages counts timestamps by the time they were given out, so that the oldest is known without a list of them: in buckets
// of a second, doubled whenever there are too many buckets.
type ages struct {
	buckets map[int64]int // by milliseconds / width
	double  uint          // width is 1000 << double
}

func (a *ages) width() int64 { return 1000 << a.double }

func (a *ages) add(ts mvcc.Timestamp, n int) {
	if a.buckets == nil {
		a.buckets = map[int64]int{}
	}
	a.put(ts.Millis()/a.width(), n)
	for len(a.buckets) > maxAges {
		a.coarsen()
	}
}

func (a *ages) put(bucket int64, n int) {
	if n += a.buckets[bucket]; n == 0 {
		delete(a.buckets, bucket)
		return
	}
	a.buckets[bucket] = n
}

func (a *ages) coarsen() {
	fine := a.buckets
	a.double++
	a.buckets = make(map[int64]int, len(fine)/2)
	for b, n := range fine {
		a.put(b/2, n)
	}
}

func (a *ages) merge(o *ages) {
	for a.double < o.double {
		a.coarsen()
	}
	for b, n := range o.buckets {
		a.add(mvcc.TimestampAt(b*o.width()), n)
	}
}

// oldest is a timestamp at most one bucket's width before the oldest one counted; 0 if there is none.
func (a *ages) oldest() mvcc.Timestamp {
	least := int64(math.MaxInt64)
	for b := range a.buckets {
		least = min(least, b)
	}
	if least == math.MaxInt64 {
		return 0
	}
	return max(mvcc.TimestampAt(least*a.width()), 1)
}
