package reads

import (
	"log/slog"
	"sync/atomic"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/actorkit"
	"github.com/percolator-go/percolator/internal/metrics"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/tracing"
	"github.com/percolator-go/percolator/store"
)

// Call is an operation on a tablet in its envelope.
type Call = actorkit.Call[*pb.TabletRequest, *pb.TabletResponse]

// Shared is what read workers know of a tablet: what never changes, and what its turns tell
// them. It is safe for concurrent use.
type Shared struct {
	Config

	term atomic.Uint64 // while the tablet leads, else 0
	// safepoint is the tablet's as soon as it is proposed: a worker whose Txn may be
	// without what was below it finds it here.
	safepoint atomic.Uint64

	unfinished atomic.Int32 // jobs in the pool, those under way included
	wanted     atomic.Bool  // the tablet is to be told when half of them are done
}

// Config is what never changes of a Shared.
type Config struct {
	Tablet uint64
	Store  *store.Store
	Limits mvcc.Limits
	Logger *slog.Logger
	// Send sends the tablet a message. It is called on any goroutine and does not block.
	Send   func(message any)
	Took   *metrics.Durations // of a job's reads together
	Traces *tracing.Book      // nil: nothing is traced
}

// NewShared returns the Shared of a tablet that does not lead.
func NewShared(c Config) *Shared { return &Shared{Config: c} }

// SetTerm records that the tablet leads in the term; 0: it does not lead.
func (s *Shared) SetTerm(term uint64) { s.term.Store(term) }

// Term returns the term in which the tablet leads, or 0.
func (s *Shared) Term() uint64 { return s.term.Load() }

// RaiseSafepoint raises the safepoint below which no read is answered; it never falls. Only the
// tablet's turns call it.
func (s *Shared) RaiseSafepoint(safepoint mvcc.Timestamp) {
	s.safepoint.Store(max(s.safepoint.Load(), uint64(safepoint)))
}

// finished counts a job that a worker has done, on the worker's goroutine. Of the workers
// that see room, one sends the message.
func (s *Shared) finished() {
	if s.unfinished.Add(-1) <= MaxJobs/2 && s.wanted.CompareAndSwap(true, false) {
		s.Send(&WorkersFree{})
	}
}
