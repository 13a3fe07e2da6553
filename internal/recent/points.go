package recent

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/percolator-go/percolator/internal/metrics"
	"github.com/percolator-go/percolator/internal/wire"
)

// Every is the time from one point to the next, MaxPoints how many are kept: an hour's.
const (
	Every     = 10 * time.Second
	MaxPoints = 360
)

// Figures is what a node has counted since its start.
type Figures struct {
	// Operations are those of remote clients on tablets that this node has answered.
	Operations metrics.Histogram
	// Transactions are those that this process coordinates and that were committed.
	Transactions metrics.Histogram
	// Backlog is how many cells wait or run in this node's observers now.
	Backlog uint64
	// Findings is how much was wrong with the cluster just now; nil: nobody was looking.
	Findings *uint32
}

// Points are a node's last hour. All methods may be used concurrently.
type Points struct {
	mu     sync.Mutex
	points []*wire.Point // the oldest first; never changed once they are here
	before Figures
	at     time.Time // of before; zero: there was none yet
}

// Add keeps what has happened since the last call. The first one is where counting begins.
func (p *Points) Add(at time.Time, now Figures) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.at.IsZero() {
		if len(p.points) == MaxPoints {
			p.points = slices.Delete(p.points, 0, 1)
		}
		p.points = append(p.points, between(p.before, now, at, at.Sub(p.at)))
	}
	p.before, p.at = now, at
}

// Read returns all points. They must not be changed.
func (p *Points) Read() []*wire.Point {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.points)
}

// between says what happened from one look at the figures to the next.
func between(before, after Figures, at time.Time, took time.Duration) *wire.Point {
	operations := after.Operations.Minus(before.Operations)
	transactions := after.Transactions.Minus(before.Transactions)
	seconds := max(took.Seconds(), 1e-3)
	return &wire.Point{
		UnixMs:           at.UnixMilli(),
		OperationsPerS:   float64(operations.Count()) / seconds,
		OperationP99Ms:   operations.Quantile(0.99) * 1000,
		TransactionsPerS: float64(transactions.Count()) / seconds,
		TransactionP99Ms: transactions.Quantile(0.99) * 1000,
		Backlog:          after.Backlog,
		Findings:         after.Findings,
	}
}

// Together makes one line of several nodes' points: rates and backlogs are sums, latencies
// those of the node where they were worst, and so are findings. Points of the same ten seconds
// belong together; clocks of nodes differ by much less.
func Together(nodes [][]*wire.Point) []*wire.Point {
	slots := map[int64]*wire.Point{}
	for _, points := range nodes {
		for _, p := range points {
			at := p.UnixMs / Every.Milliseconds()
			sum := slots[at]
			if sum == nil {
				sum = &wire.Point{UnixMs: at * Every.Milliseconds()}
				slots[at] = sum
			}
			sum.OperationsPerS += p.OperationsPerS
			sum.TransactionsPerS += p.TransactionsPerS
			sum.Backlog += p.Backlog
			sum.OperationP99Ms = max(sum.OperationP99Ms, p.OperationP99Ms)
			sum.TransactionP99Ms = max(sum.TransactionP99Ms, p.TransactionP99Ms)
			if p.Findings != nil && *p.Findings >= sum.GetFindings() {
				sum.Findings = p.Findings
			}
		}
	}
	all := slices.SortedFunc(maps.Values(slots), func(a, b *wire.Point) int {
		return cmp.Compare(a.UnixMs, b.UnixMs)
	})
	return all[max(0, len(all)-MaxPoints):]
}
