package reads

import (
	"log/slog"
	"sync/atomic"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/actorkit"
	"github.com/percolator-go/percolator/internal/metrics"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/tracing"
	"github.com/percolator-go/percolator/store"
)

// Call is an operation on a tablet in its envelope.
type Call = actorkit.Call[*pb.TabletRequest, *pb.TabletResponse]

// Shared is the part of a tablet that read workers access: constants, and values that the
// tablet's turns set. It is safe for concurrent use.
type Shared struct {
	Config

	term atomic.Uint64 // while the tablet leads, otherwise 0
	// safepoint is raised as soon as the tablet's is proposed: a worker's Txn may already lack
	// entries below it.
	safepoint atomic.Uint64

	unfinished atomic.Int32 // jobs in the pool, including running ones
	wanted     atomic.Bool  // the tablet requests a message when at most MaxJobs/2 of them are left
}

// Config is the constant part of a Shared.
type Config struct {
	Tablet uint64
	Store  *store.Store
	Limits mvcc.Limits
	Logger *slog.Logger
	// Send sends a message to the tablet. It is called on any goroutine and does not block.
	Send   func(message any)
	Took   *metrics.Durations // duration of all reads of a job
	Feed   *Feed
	Traces *tracing.Book // nil: no tracing
}

// Feed measures the answers to requests for changes. The zero value is empty. It is safe for
// concurrent use.
type Feed struct {
	Answers, Changes atomic.Uint64
	Bytes            atomic.Uint64     // of the changes' rows and values
	Lag              metrics.Durations // from the resolved timestamp of an answer to that of the read
}

// note counts an answer that was read at the timestamp; a nil answer counts nothing.
func (f *Feed) note(r *pb.ChangesResponse, at mvcc.Timestamp) {
	if r == nil {
		return
	}
	bytes := 0
	for _, c := range r.Changes {
		bytes += len(c.GetCell().GetRow()) + len(c.Value)
	}
	f.Answers.Add(1)
	f.Changes.Add(uint64(len(r.Changes)))
	f.Bytes.Add(uint64(bytes))
	if resolved := mvcc.Timestamp(r.Resolved); resolved != 0 {
		f.Lag.Observe(time.Duration(at.Millis()-resolved.Millis()) * time.Millisecond)
	}
}

// NewShared returns the Shared of a tablet that does not lead.
func NewShared(c Config) *Shared { return &Shared{Config: c} }

// SetTerm records that the tablet leads in the term; 0 means it does not lead.
func (s *Shared) SetTerm(term uint64) { s.term.Store(term) }

// Term returns the term in which the tablet leads, or 0.
func (s *Shared) Term() uint64 { return s.term.Load() }

// RaiseSafepoint raises the safepoint below which no read is answered; it is never lowered. Only
// the tablet's turns call it.
func (s *Shared) RaiseSafepoint(safepoint mvcc.Timestamp) {
	s.safepoint.Store(max(s.safepoint.Load(), uint64(safepoint)))
}

// finished counts a job that a worker has done, on the worker's goroutine. Only one of the
// workers that see room sends the message.
func (s *Shared) finished() {
	if s.unfinished.Add(-1) <= MaxJobs/2 && s.wanted.CompareAndSwap(true, false) {
		s.Send(&WorkersFree{})
	}
}
