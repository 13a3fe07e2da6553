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

// Every is the interval between points, MaxPoints the maximum number of points: one hour.
const (
	Every     = 10 * time.Second
	MaxPoints = 360
)

// Figures are a node's counters since its start.
type Figures struct {
	// Operations are the latencies of remote clients' operations on tablets that this node has
	// answered.
	Operations metrics.Histogram
	// Transactions are the latencies of committed transactions of this process, and
	// ClientTransactions the number of those that remote clients committed through this node.
	Transactions       metrics.Histogram
	ClientTransactions uint64
	// Backlog is the current number of cells queued, in backoff or debounce, or running in this
	// node's observers.
	Backlog uint64
	// Findings is the number of findings (package health) in the last status of the cluster that a
	// user requested from this node; nil means that none was requested within Every.
	Findings *uint32
	// Observers are the counters of each observer. A point has the first MaxObservers of them, by
	// name.
	Observers map[string]ObserverFigures
}

// MaxObservers is the maximum number of observers in a point.
const MaxObservers = 64

// ObserverFigures are a node's counters of one observer since its start.
type ObserverFigures struct {
	Runs, Failures, Conflicts uint64
	// OldestMS is the current age of the oldest notification of the tablets that the node leads,
	// in milliseconds; 0 means there is none; nil means unknown.
	OldestMS *uint64
}

// Points holds the points of a node's last hour. All methods may be called concurrently.
type Points struct {
	mu     sync.Mutex
	points []*wire.Point // oldest first; immutable
	before Figures
	at     time.Time // time at which before was taken; zero: not yet
}

// Add adds a point with the changes since the last call. The first call only sets the
// baseline.
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

// Read returns all points, each with the figures of the named observer only; "" for none. They
// must not be changed.
func (p *Points) Read(observer string) []*wire.Point {
	p.mu.Lock()
	points := slices.Clone(p.points)
	p.mu.Unlock()
	for i, all := range points {
		one := &wire.Point{
			UnixMs: all.UnixMs, OperationsPerS: all.OperationsPerS, OperationP99Ms: all.OperationP99Ms,
			TransactionsPerS: all.TransactionsPerS, TransactionP99Ms: all.TransactionP99Ms,
			Backlog: all.Backlog, Findings: all.Findings,
		}
		for _, o := range all.Observers {
			if o.Name == observer {
				one.Observers = []*wire.ObserverPoint{o}
			}
		}
		points[i] = one
	}
	return points
}

// between returns the point for the changes between two readings of the figures.
func between(before, after Figures, at time.Time, took time.Duration) *wire.Point {
	operations := after.Operations.Minus(before.Operations)
	transactions := after.Transactions.Minus(before.Transactions)
	seconds := max(took.Seconds(), 1e-3)
	point := &wire.Point{
		UnixMs:         at.UnixMilli(),
		OperationsPerS: float64(operations.Count()) / seconds,
		OperationP99Ms: operations.Quantile(0.99) * 1000,
		TransactionsPerS: float64(transactions.Count()+
			after.ClientTransactions-before.ClientTransactions) / seconds,
		TransactionP99Ms: transactions.Quantile(0.99) * 1000,
		Backlog:          after.Backlog,
		Findings:         after.Findings,
	}
	names := slices.Sorted(maps.Keys(after.Observers))
	for _, name := range names[:min(len(names), MaxObservers)] {
		was, is := before.Observers[name], after.Observers[name]
		if is.Runs < was.Runs { // the counters start at zero when the node links the observer again
			was = ObserverFigures{}
		}
		point.Observers = append(point.Observers, &wire.ObserverPoint{
			Name: name, RunsPerS: float64(is.Runs-was.Runs) / seconds,
			FailuresPerS:  float64(is.Failures-was.Failures) / seconds,
			ConflictsPerS: float64(is.Conflicts-was.Conflicts) / seconds, OldestMs: is.OldestMS,
		})
	}
	return point
}

// Together merges several nodes' points: it sums rates and backlogs, and takes the maximum of
// latencies, ages and findings. It merges points of the same ten seconds; the clocks of nodes
// differ by much less.
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
			for _, o := range p.Observers {
				addObserver(sum, o)
			}
		}
	}
	all := slices.SortedFunc(maps.Values(slots), func(a, b *wire.Point) int {
		return cmp.Compare(a.UnixMs, b.UnixMs)
	})
	return all[max(0, len(all)-MaxPoints):]
}

// addObserver adds one node's figures of an observer to the sum of all nodes.
func addObserver(sum *wire.Point, o *wire.ObserverPoint) {
	at := slices.IndexFunc(sum.Observers, func(s *wire.ObserverPoint) bool { return s.Name == o.Name })
	if at < 0 {
		sum.Observers = append(sum.Observers, &wire.ObserverPoint{Name: o.Name})
		at = len(sum.Observers) - 1
	}
	s := sum.Observers[at]
	s.RunsPerS += o.RunsPerS
	s.FailuresPerS += o.FailuresPerS
	s.ConflictsPerS += o.ConflictsPerS
	if o.OldestMs != nil && *o.OldestMs >= s.GetOldestMs() {
		s.OldestMs = o.OldestMs
	}
}
