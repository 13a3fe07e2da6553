package counters

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/percolator-go/percolator/internal/metrics"
)

// Counters are those counters of a client that belong to none of its parts. They count from the
// client's creation. The zero value is ready to use.
type Counters struct {
	Begun, Retries, RolledBack, Secondaries     atomic.Uint64
	Reads, ReadCells, CacheHits, ScanPages      atomic.Uint64
	PrefetchAsked, PrefetchUsed, PrefetchLocked atomic.Uint64
	WrittenCells, WrittenBytes                  atomic.Uint64

	whole [kinds][outcomes]metrics.Durations
	steps [steps]metrics.Durations // StepTimestamp is measured by the client's oracle

	names     sync.Map // of *Named, by name
	nameCount atomic.Int64
}

// End counts the end of a transaction and its latency.
func (s *Counters) End(k Kind, o Outcome, took time.Duration) { s.whole[k][o].Observe(took) }

// StepSince counts a step that began at the time and ends now.
func (s *Counters) StepSince(step Step, began time.Time) { s.steps[step].Since(began) }

// Committed returns the number of transactions of the kind that have committed.
func (s *Counters) Committed(k Kind) uint64 { return s.whole[k][Committed].Read().Count() }

// Count returns the number of transactions of any kind with the outcome.
func (s *Counters) Count(o Outcome) (n uint64) {
	for k := range kinds {
		n += s.whole[k][o].Read().Count()
	}
	return n
}

// Latencies are a client's latency histograms since it was created.
type Latencies struct {
	// Whole is the latency from begin to end, by kind and outcome. It has entries for the
	// combinations that occurred and, except for the kind Undecided, always for Committed and
	// Unknown.
	Whole map[Kind]map[Outcome]metrics.Histogram
	Steps map[Step]metrics.Histogram
	// ByName is by Options.Name, for the first maxTimed names used, and by outcome: Committed,
	// Conflicted or Failed.
	ByName map[string]map[Outcome]metrics.Histogram
}

// Latencies returns the current histograms, without that of StepTimestamp.
func (s *Counters) Latencies() Latencies {
	out := Latencies{
		Whole: map[Kind]map[Outcome]metrics.Histogram{}, Steps: map[Step]metrics.Histogram{},
	}
	for k := range kinds {
		out.Whole[k] = map[Outcome]metrics.Histogram{}
		for o := range outcomes {
			if h := s.whole[k][o].Read(); h.Count() > 0 ||
				k != Undecided && (o == Committed || o == Unknown) {
				out.Whole[k][o] = h
			}
		}
	}
	for step := range steps {
		out.Steps[step] = s.steps[step].Read()
	}
	out.ByName = s.latenciesByName()
	return out
}
