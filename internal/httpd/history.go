package httpd

import (
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/percolator-go/percolator/internal/metrics"
)

// The last hour of this node, for the console's lines: a ring of points in memory. One
// goroutine of the Server adds them, from counters that the node has anyway; requests read
// them on theirs. A restart forgets them.

// historyPoints is how many there are: an hour's, at defaultTiming.
const historyPoints = 360

// Figures is what a node has counted since its start.
type Figures struct {
	// Operations are those of remote clients on tablets that this node has answered.
	Operations metrics.Histogram
	// Transactions are those that this process coordinates and that were committed.
	Transactions metrics.Histogram
	// Backlog is how many cells wait or run in this node's observers now.
	Backlog uint64
}

// historyPoint is some seconds of a node's life.
type historyPoint struct {
	UnixMs           int64   `json:"unix_ms"` // their end
	OperationsPerS   float64 `json:"operations_per_s"`
	OperationP99Ms   float64 `json:"operation_p99_ms"` // 0: there were none
	TransactionsPerS float64 `json:"transactions_per_s"`
	TransactionP99Ms float64 `json:"transaction_p99_ms"`
	Backlog          uint64  `json:"backlog"`
	Findings         *int    `json:"findings"` // null: nobody was looking
}

type history struct {
	figures func() Figures
	watch   *clusterWatch
	every   time.Duration

	mu     sync.Mutex
	points []historyPoint // the oldest first, historyPoints at most
}

// run adds points until stop is closed.
func (h *history) run(stop <-chan struct{}) {
	tick := time.NewTicker(h.every)
	defer tick.Stop()
	before, at := h.figures(), time.Now()
	for {
		select {
		case <-tick.C:
		case <-stop:
			return
		}
		now, figures := time.Now(), h.figures()
		h.add(between(before, figures, now, now.Sub(at)))
		before, at = figures, now
	}
}

// between says what happened from one look at the figures to the next.
func between(before, after Figures, at time.Time, took time.Duration) historyPoint {
	operations := after.Operations.Minus(before.Operations)
	transactions := after.Transactions.Minus(before.Transactions)
	seconds := max(took.Seconds(), 1e-3)
	return historyPoint{
		UnixMs:           at.UnixMilli(),
		OperationsPerS:   float64(operations.Count()) / seconds,
		OperationP99Ms:   operations.Quantile(0.99) * 1000,
		TransactionsPerS: float64(transactions.Count()) / seconds,
		TransactionP99Ms: transactions.Quantile(0.99) * 1000,
		Backlog:          after.Backlog,
	}
}

// add keeps the point, with what is known anyway of the cluster's findings.
func (h *history) add(p historyPoint) {
	if news, ok := h.watch.recent(h.every); ok && !news.failed {
		p.Findings = &news.findings
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.points) == historyPoints {
		h.points = append(h.points[:0], h.points[1:]...)
	}
	h.points = append(h.points, p)
}

// serve answers with all points.
func (h *history) serve(w http.ResponseWriter, _ *http.Request) {
	h.mu.Lock()
	points := append([]historyPoint{}, h.points...)
	h.mu.Unlock()
	body, err := json.Marshal(struct {
		EveryMs int64          `json:"every_ms"`
		Points  []historyPoint `json:"points"`
	}{h.every.Milliseconds(), points})
	if err != nil {
		text(w, http.StatusInternalServerError, err.Error())
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(body, '\n'))
}
