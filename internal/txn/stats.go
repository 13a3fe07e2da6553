package txn

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/percolator-go/percolator/internal/metrics"
)

// Stats are a client's counters since it was created. percolator.Stats, which has the same
// fields and to which Stats is converted, documents them.
type Stats struct {
	Begun, OnePhase, TwoPhase, NotifyOnly, ReadOnly  uint64
	Conflicts, Locked, Unknown, Settled, Retries     uint64
	RolledBack, Heartbeats, Leases                   uint64
	Secondaries, InBackground                        uint64
	Timestamps, TimestampRequests, TimestampsRefused uint64
	Reads, ReadCells, CacheHits, ScanPages           uint64
	PrefetchAsked, PrefetchUsed, PrefetchLocked      uint64
	LocksMet, StatusChecks                           uint64
	RolledForward, RolledBackIn                      uint64
	MapMisses, WrongTablet                           uint64

	Messages map[string]uint64
	ByName   map[string]NameStats
}

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
	// maxName is the maximum length of a name, in bytes. Longer names are truncated and
	// counted together.
	maxName = 128
)

// nameCounters are the counters behind NameStats and the latencies by outcome: Committed,
// Conflicted (including LockedOut) or Failed; nil disables measurement.
type nameCounters struct {
	begun, committed, conflicts, failed atomic.Uint64
	nanos                               atomic.Int64
	took                                *[outcomes]metrics.Durations
}

// named returns the counters of the name, or nil if the name is empty or there are too many.
func (s *counters) named(name string) *nameCounters {
	if name == "" {
		return nil
	}
	if known, ok := s.names.Load(name); ok {
		return known.(*nameCounters)
	}
	// Programs choose the name, which becomes a label of metrics: bound its length and make it
	// valid UTF-8. Most names need neither.
	if len(name) > maxName || !utf8.ValidString(name) {
		name = strings.ToValidUTF8(name[:min(len(name), maxName)], "\uFFFD")
		if known, ok := s.names.Load(name); ok {
			return known.(*nameCounters)
		}
	}
	n := s.nameCount.Add(1)
	if n > maxNames {
		s.nameCount.Add(-1)
		return nil
	}
	fresh := &nameCounters{}
	if n <= maxTimed {
		fresh.took = &[outcomes]metrics.Durations{}
	}
	known, there := s.names.LoadOrStore(strings.Clone(name), fresh)
	if there {
		s.nameCount.Add(-1)
	}
	return known.(*nameCounters)
}

// ended counts a commit and its latency.
func (n *nameCounters) ended(o Outcome, took time.Duration) {
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
func (s *counters) latenciesByName() map[string]map[Outcome]metrics.Histogram {
	out := make(map[string]map[Outcome]metrics.Histogram)
	s.names.Range(func(name, counted any) bool {
		n := counted.(*nameCounters)
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

func (s *counters) byName() map[string]NameStats {
	out := make(map[string]NameStats)
	s.names.Range(func(name, counted any) bool {
		n := counted.(*nameCounters)
		out[name.(string)] = NameStats{
			Begun: n.begun.Load(), Committed: n.committed.Load(), Conflicts: n.conflicts.Load(),
			Failed: n.failed.Load(), Seconds: time.Duration(n.nanos.Load()).Seconds(),
		}
		return true
	})
	return out
}

// counters are the counters of Stats that no part of the client owns.
type counters struct {
	begun, retries, rolledBack, secondaries     atomic.Uint64
	reads, readCells, cacheHits, scanPages      atomic.Uint64
	prefetchAsked, prefetchUsed, prefetchLocked atomic.Uint64

	latencies latencies

	names     sync.Map // of *nameCounters, by name
	nameCount atomic.Int64
}

// Stats returns the counters. They are not read atomically and may be a few events apart.
func (c *Client) Stats() Stats {
	s := &c.stats
	whole := &s.latencies.whole
	return Stats{
		Begun: s.begun.Load(), OnePhase: whole[OnePhase][Committed].Read().Count(),
		TwoPhase:   whole[TwoPhase][Committed].Read().Count(),
		NotifyOnly: whole[NotifyOnly][Committed].Read().Count(),
		ReadOnly:   whole[ReadOnly][Committed].Read().Count(),
		Conflicts:  s.latencies.count(Conflicted), Locked: s.latencies.count(LockedOut),
		Unknown: s.latencies.count(Unknown), Settled: c.resolver.settled.Load(),
		Retries: s.retries.Load(), RolledBack: s.rolledBack.Load(), Heartbeats: c.beats.sent.Load(),
		Leases: c.leases.asked.Load(), Secondaries: s.secondaries.Load(),
		InBackground: uint64(c.work.count.Load()),
		Timestamps:   c.oracle.received.Load(), TimestampRequests: c.oracle.requests.Load(),
		TimestampsRefused: c.oracle.refused.Load(),
		Reads:             s.reads.Load(), ReadCells: s.readCells.Load(),
		CacheHits: s.cacheHits.Load(),
		ScanPages: s.scanPages.Load(), PrefetchAsked: s.prefetchAsked.Load(),
		PrefetchUsed: s.prefetchUsed.Load(), PrefetchLocked: s.prefetchLocked.Load(),
		LocksMet: c.resolver.met.Load(), StatusChecks: c.resolver.checked.Load(),
		RolledForward: c.resolver.rolledForward.Load(), RolledBackIn: c.resolver.rolledBack.Load(),
		MapMisses: c.router.mapMisses.Load(), WrongTablet: c.router.wrongTablet.Load(),
		Messages: c.router.messages(), ByName: s.byName(),
	}
}
