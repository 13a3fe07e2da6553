package heap

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"time"
)

// Slack is how much garbage there may be beside what lives, in bytes.
const Slack = 64 << 20

const (
	tick  = 100 * time.Millisecond // between looks at what lives
	calm  = 5 * time.Second        // without a crowd, until all is as before
	least = 10                     // percent: below it a collector does little else
)

// bound is the process's: the runtime has one heap and one GOGC.
var bound crowds

type crowds struct {
	mu      sync.Mutex
	count   int
	on      bool
	percent int // GOGC as it was
	now     int // and as it is
	since   time.Time
}

// Crowd reports that much memory is taken by clients; the function, which is called once,
// that this is over.
func Crowd() (over func()) {
	bound.mu.Lock()
	defer bound.mu.Unlock()
	bound.count++
	if !bound.on {
		bound.on = true
		bound.percent = debug.SetGCPercent(100)
		debug.SetGCPercent(bound.percent)
		bound.now = bound.percent
		bound.adjust()
		time.AfterFunc(tick, bound.look)
	}
	return bound.over
}

func (c *crowds) over() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count--
	c.since = time.Now()
}

// look adjusts GOGC, or restores it, and comes again unless that is done.
func (c *crowds) look() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.count > 0 || time.Since(c.since) < calm {
		c.adjust()
		time.AfterFunc(tick, c.look)
		return
	}
	c.on = false
	c.set(c.percent)
	go func() { // nobody waits for it
		runtime.GC() // what lies in pools of the library's survives one collection
		debug.FreeOSMemory()
	}()
}

func (c *crowds) adjust() {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	c.set(percentFor(live[0].Value.Uint64(), c.percent))
}

// percentFor is the GOGC at which there is Slack of garbage at most; never more than was asked for.
func percentFor(live uint64, asked int) int {
	if asked < 0 {
		return asked // the operator has bounded the heap in another way
	}
	return min(asked, max(least, int(100*Slack/max(live, 1))))
}

func (c *crowds) set(percent int) {
	if percent != c.now {
		debug.SetGCPercent(percent)
		c.now = percent
	}
}

// Gauge counts what clients take of a budget, and reports a crowd while that is much.
type Gauge struct {
	size  int64
	taken atomic.Int64

	mu   sync.Mutex
	over func() // ends the crowd; nil: there is none
}

// Parts of the budget at which it is crowded, and not any more.
const (
	crowdedAt = 8
	emptyAt   = 16
)

// NewGauge is the gauge of a budget of so many bytes.
func NewGauge(size int64) *Gauge { return &Gauge{size: size} }

// Crowded reports whether much is taken.
func (g *Gauge) Crowded() bool { return g.taken.Load() >= g.size/crowdedAt }

// Add notes that n bytes more are taken, or less.
func (g *Gauge) Add(n int64) {
	taken := g.taken.Add(n)
	before := taken - n
	if (taken >= g.size/crowdedAt) == (before >= g.size/crowdedAt) && (taken >= g.size/emptyAt) == (before >= g.size/emptyAt) {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	switch taken := g.taken.Load(); {
	case g.over == nil && taken >= g.size/crowdedAt:
		g.over = Crowd()
	case g.over != nil && taken < g.size/emptyAt:
		g.over()
		g.over = nil
	}
}
