package counters

import (
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/percolator-go/percolator/internal/metrics"
)

// NameStats are the counters of the transactions of one name; see percolator.NameStats. It has no
// name of its own, so that both packages have the same type.
type NameStats = struct {
	Begun, Committed, Conflicts, Failed uint64
	Seconds                             float64
}

const (
	// maxNames is the maximum number of names that are counted, and maxTimed of those with
	// latencies. Further names are ignored.
	maxNames, maxTimed = 1024, 64
	// maxName is the maximum length of a name, in bytes. Longer names are truncated, and those that
	// then are equal are counted together.
	maxName = 128
)

// Named are the counters behind NameStats and the latencies by outcome: Committed, Conflicted
// (including LockedOut) or Failed. nil counts nothing.
type Named struct {
	begun, committed, conflicts, failed atomic.Uint64
	nanos                               atomic.Int64
	took                                *[outcomes]metrics.Durations
}

// Named returns the counters of the name, or nil if the name is empty or there are too many.
func (s *Counters) Named(name string) *Named {
	if name == "" {
		return nil
	}
	if known, ok := s.names.Load(name); ok {
		return known.(*Named)
	}
	// Programs choose the name, which becomes a label of metrics: bound its length and make it
	// valid UTF-8. Most names need neither.
	if len(name) > maxName || !utf8.ValidString(name) {
		name = strings.ToValidUTF8(name[:min(len(name), maxName)], "\uFFFD")
		if known, ok := s.names.Load(name); ok {
			return known.(*Named)
		}
	}
	n := s.nameCount.Add(1)
	if n > maxNames {
		s.nameCount.Add(-1)
		return nil
	}
	fresh := &Named{}
	if n <= maxTimed {
		fresh.took = &[outcomes]metrics.Durations{}
	}
	known, there := s.names.LoadOrStore(strings.Clone(name), fresh)
	if there {
		s.nameCount.Add(-1)
	}
	return known.(*Named)
}

// Begin counts a transaction that begins.
func (n *Named) Begin() {
	if n != nil {
		n.begun.Add(1)
	}
}

// End counts the end of a transaction and its latency.
func (n *Named) End(o Outcome, took time.Duration) {
	if n == nil {
		return
	}
	n.nanos.Add(int64(took))
	switch o {
	case Committed:
		n.committed.Add(1)
	case Conflicted, LockedOut:
		n.conflicts.Add(1)
		o = Conflicted
	default:
		n.failed.Add(1)
		o = Failed
	}
	if n.took != nil {
		n.took[o].Observe(took)
	}
}

// latenciesByName returns the non-empty latencies of the measured names, by outcome.
func (s *Counters) latenciesByName() map[string]map[Outcome]metrics.Histogram {
	out := make(map[string]map[Outcome]metrics.Histogram)
	s.names.Range(func(name, counted any) bool {
		n := counted.(*Named)
		if n.took == nil {
			return true
		}
		of := make(map[Outcome]metrics.Histogram)
		for o := range outcomes {
			if h := n.took[o].Read(); h.Count() > 0 {
				of[o] = h
			}
		}
		out[name.(string)] = of
		return true
	})
	return out
}

// ByName returns the counters of the names that are counted.
func (s *Counters) ByName() map[string]NameStats {
	out := make(map[string]NameStats)
	s.names.Range(func(name, counted any) bool {
		n := counted.(*Named)
		out[name.(string)] = NameStats{
			Begun: n.begun.Load(), Committed: n.committed.Load(), Conflicts: n.conflicts.Load(),
			Failed: n.failed.Load(), Seconds: time.Duration(n.nanos.Load()).Seconds(),
		}
		return true
	})
	return out
}
