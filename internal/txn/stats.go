package txn

import (
	"errors"

	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn/counters"
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
	WrittenCells, WrittenBytes                       uint64
	LocksMet, StatusChecks                           uint64
	RolledForward, RolledBackIn                      uint64
	MapMisses, WrongTablet                           uint64

	Messages map[string]uint64
	ByName   map[string]counters.NameStats
}

// Stats returns the counters. They are not read atomically and may be a few events apart.
func (c *Client) Stats() Stats {
	s := &c.stats
	return Stats{
		Begun: s.Begun.Load(), OnePhase: s.Committed(counters.OnePhase),
		TwoPhase:   s.Committed(counters.TwoPhase),
		NotifyOnly: s.Committed(counters.NotifyOnly),
		ReadOnly:   s.Committed(counters.ReadOnly),
		Conflicts:  s.Count(counters.Conflicted), Locked: s.Count(counters.LockedOut),
		Unknown: s.Count(counters.Unknown), Settled: c.resolver.settled.Load(),
		Retries: s.Retries.Load(), RolledBack: s.RolledBack.Load(), Heartbeats: c.beats.sent.Load(),
		Leases: c.leases.Asked.Load(), Secondaries: s.Secondaries.Load(),
		InBackground: uint64(c.work.Running()),
		Timestamps:   c.oracle.Received.Load(), TimestampRequests: c.oracle.Requests.Load(),
		TimestampsRefused: c.oracle.Refused.Load(),
		Reads:             s.Reads.Load(), ReadCells: s.ReadCells.Load(),
		CacheHits: s.CacheHits.Load(),
		ScanPages: s.ScanPages.Load(), PrefetchAsked: s.PrefetchAsked.Load(),
		PrefetchUsed: s.PrefetchUsed.Load(), PrefetchLocked: s.PrefetchLocked.Load(),
		WrittenCells: s.WrittenCells.Load(), WrittenBytes: s.WrittenBytes.Load(),
		LocksMet: c.resolver.met.Load(), StatusChecks: c.resolver.checked.Load(),
		RolledForward: c.resolver.rolledForward.Load(), RolledBackIn: c.resolver.rolledBack.Load(),
		MapMisses: c.router.MapMisses.Load(), WrongTablet: c.router.WrongTablet.Load(),
		Messages: c.router.Messages(), ByName: s.ByName(),
	}
}

// Latencies returns the current histograms.
func (c *Client) Latencies() counters.Latencies {
	out := c.stats.Latencies()
	out.Steps[counters.StepTimestamp] = c.oracle.Waited.Read()
	return out
}

// record counts the transaction and its latency.
func (t *Txn) record(k counters.Kind, o counters.Outcome) {
	took := t.began.Elapsed()
	t.c.stats.End(k, o, took)
	if o != counters.Abandoned {
		t.counted.End(o, took)
	}
	t.traced(k, o)
}

// countWrites counts the cells of a committed transaction, without acknowledgments.
func (t *Txn) countWrites() {
	cells, bytes := 0, 0
	for i := range t.writes[:t.written] {
		if w := &t.writes[i]; w.cell.Class == mvcc.ClassData {
			cells++
			bytes += len(w.cell.Row) + len(w.cell.Column) + len(w.value)
		}
	}
	t.c.stats.WrittenCells.Add(uint64(cells))
	t.c.stats.WrittenBytes.Add(uint64(bytes))
}

// outcomeOf returns the outcome of a commit that returned err.
func outcomeOf(err error) counters.Outcome {
	switch {
	case err == nil:
		return counters.Committed
	case errors.Is(err, ErrCommitUnknown):
		return counters.Unknown
	case errors.Is(err, ErrConflict):
		return counters.Conflicted
	case errors.Is(err, ErrLocked):
		return counters.LockedOut
	}
	return counters.Failed
}
