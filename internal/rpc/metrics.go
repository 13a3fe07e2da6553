package rpc

import (
	"sync"
	"sync/atomic"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/metrics"
	"github.com/percolator-go/percolator/internal/wire"
)

// Counters of remote clients' operations and connections. Workers of all streams and gRPC's
// goroutines update them; any goroutine may read them.

// serverCounters are the live form of ServerStats.
type serverCounters struct {
	operations  sync.Map // of *metrics.Durations, by the operation's name, a fixed set
	errors      sync.Map // of *atomic.Uint64, by pb.Error_Code, a fixed set
	connections atomic.Int64
	accepted    atomic.Uint64
	unread      atomic.Uint64
	committed   atomic.Uint64
}

// ServerStats are a server's counters since its start.
type ServerStats struct {
	// Operations is the latency of operations on tablets by name, from the start in a worker
	// until the answer is queued.
	Operations map[string]metrics.Histogram
	// Errors counts the operations answered with an error, by code.
	Errors      map[pb.Error_Code]uint64
	Connections int64  // currently open
	Accepted    uint64 // connections accepted in total
	Unread      uint64 // connections closed because their client did not read its answers
	Displaced   uint64 // connections without a call closed to make room for others
	RateRefused uint64 // operations refused by a rate limit; not in Errors
	// Committed counts the clients' committed transactions, by the commits of their primaries. It
	// excludes those that others have committed because their client did not, those of clients of
	// releases before 0.1.0, and transactions of weak notifications alone.
	Committed uint64
}

// performed counts an operation that started at began, and its answer.
func (c *serverCounters) performed(req *pb.TabletRequest, began time.Time,
	resp *pb.TabletResponse) {
	name := wire.OperationOf(req).Name
	took, ok := c.operations.Load(name)
	if !ok {
		took, _ = c.operations.LoadOrStore(name, &metrics.Durations{})
	}
	took.(*metrics.Durations).Since(began)
	if resp.GetError() == nil {
		commit := req.GetCommit()
		if (req.GetOnePhase() != nil || commit.GetDecides() || commit.GetDecided()) &&
			resp.GetMutation().GetStatus() == pb.Status_STATUS_OK {
			c.committed.Add(1)
		}
		return
	}
	// Count codes of later builds as unknown, so that peers cannot create labels.
	code := resp.Error.Code
	if _, known := pb.Error_Code_name[int32(code)]; !known {
		code = pb.Error_CODE_UNKNOWN
	}
	n, _ := c.errors.LoadOrStore(code, &atomic.Uint64{})
	n.(*atomic.Uint64).Add(1)
}

// Stats returns the current counters.
func (s *Server) Stats() ServerStats {
	c := s.service.counters
	out := ServerStats{
		Operations: map[string]metrics.Histogram{}, Errors: map[pb.Error_Code]uint64{},
		Connections: c.connections.Load(), Accepted: c.accepted.Load(), Unread: c.unread.Load(),
		Displaced:   s.service.limiter.Closed(),
		RateRefused: s.service.cfg.Clients.rates.refused.Load(), Committed: c.committed.Load(),
	}
	if l := s.service.others.Load(); l != nil {
		out.Displaced += l.Closed()
	}
	c.operations.Range(func(name, took any) bool {
		out.Operations[name.(string)] = took.(*metrics.Durations).Read()
		return true
	})
	c.errors.Range(func(code, n any) bool {
		out.Errors[code.(pb.Error_Code)] = n.(*atomic.Uint64).Load()
		return true
	})
	return out
}
