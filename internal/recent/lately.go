package recent

import (
	"slices"
	"sync"
	"time"

	"github.com/percolator-go/percolator/internal/metrics"
	"github.com/percolator-go/percolator/internal/wire"
)

// LatelyMinutes is the approximate period that Lately covers, in minutes.
const LatelyMinutes = 5

// Totals are a node's counters of its mailboxes and contended rows since its start.
type Totals struct {
	Mailboxes []*wire.Mailbox
	Contended []*wire.ContendedRow
}

// Lately records a node's totals of the last minutes. All methods may be called concurrently.
// Callers must not change the totals that they pass to Add.
type Lately struct {
	mu    sync.Mutex
	marks []mark // a minute apart, oldest first
}

type mark struct {
	at time.Time
	Totals
}

// Add records the totals at a time. It is called at the start and then once a minute.
func (l *Lately) Add(at time.Time, t Totals) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.marks = append(l.marks, mark{at, t})
	l.marks = slices.Delete(l.marks, 0, max(0, len(l.marks)-LatelyMinutes))
}

// Tell adds the counts of the last minutes to each mailbox and row, and returns the length of
// that period; 0 before the first Add.
func (l *Lately) Tell(now time.Time, t Totals) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.marks) == 0 {
		return 0
	}
	before := l.marks[0]
	for _, m := range t.Mailboxes {
		var was *wire.Mailbox // nil: the actor has started since
		for _, o := range before.Mailboxes {
			if o.Actor == m.Actor {
				was = o
			}
		}
		m.Lately = &wire.Mailbox{
			Actor: m.Actor, Queued: m.Queued, Longest: m.Longest, Took: since(was.GetTook(), m.Took),
			Batches: since(was.GetBatches(), m.Batches), Waits: since(was.GetWaits(), m.Waits),
		}
	}
	for _, r := range t.Contended {
		r.Lately = r.Conflicts + r.Locked
		for _, was := range before.Contended {
			if was.Table == r.Table && string(was.Row) == string(r.Row) &&
				was.Conflicts+was.Locked <= r.Lately && was.AtMost == r.AtMost {
				r.Lately -= was.Conflicts + was.Locked
				break
			}
		}
	}
	return now.Sub(before.at)
}

// since returns the observations after an earlier reading, or all if the actor has restarted
// since.
func since(was, is *wire.Histogram) *wire.Histogram {
	before, after := histogram(was), histogram(is)
	if after.Count() < before.Count() {
		return is
	}
	between := after.Minus(before)
	return &wire.Histogram{Bounds: between.Bounds, Counts: between.Counts, Sum: between.Sum}
}

func histogram(h *wire.Histogram) metrics.Histogram {
	return metrics.Histogram{Bounds: h.GetBounds(), Counts: h.GetCounts(), Sum: h.GetSum()}
}
