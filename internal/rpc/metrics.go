package rpc

import (
	"sync"
	"sync/atomic"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/metrics"
	"github.com/percolator-go/percolator/internal/wire"
)

// This file counts what remote clients do. Workers of all streams add to it, gRPC's
// goroutines to connections; anybody reads it.

// serverCounters are the live form of ServerStats.
type serverCounters struct {
	operations  sync.Map // of *metrics.Durations, by the operation's name: as many as there are
	errors      sync.Map // of *atomic.Uint64, by pb.Error_Code: likewise
	connections atomic.Int64
	accepted    atomic.Uint64
	unread      atomic.Uint64
}

// ServerStats are a server's figures since it began.
type ServerStats struct {
	// Operations is how long operations on tablets took, by name: from when a worker has
	// taken one until its answer is queued.
	Operations map[string]metrics.Histogram
	// Errors counts the answers to them that are errors, by code.
	Errors      map[pb.Error_Code]uint64
	Connections int64  // now
	Accepted    uint64 // connections in all
	Unread      uint64 // connections closed because their client did not read its answers
	Displaced   uint64 // connections without a call closed to make room for others
	RateRefused uint64 // operations that a bound on rates has refused; not in Errors
}

// performed counts an operation that began then, and its answer.
func (c *serverCounters) performed(req *pb.TabletRequest, began time.Time,
	resp *pb.TabletResponse) {
	name := wire.OperationOf(req).Name
	took, ok := c.operations.Load(name)
	if !ok {
		took, _ = c.operations.LoadOrStore(name, &metrics.Durations{})
	}
	took.(*metrics.Durations).Since(began)
	if resp.GetError() == nil {
		return
	}
	// A code that this build does not know counts as unknown: clients can't make labels.
	code := resp.Error.Code
	if _, known := pb.Error_Code_name[int32(code)]; !known {
		code = pb.Error_CODE_UNKNOWN
	}
	n, _ := c.errors.LoadOrStore(code, &atomic.Uint64{})
	n.(*atomic.Uint64).Add(1)
}

// Stats returns the figures.
func (s *Server) Stats() ServerStats {
	c := s.service.counters
	out := ServerStats{
		Operations: map[string]metrics.Histogram{}, Errors: map[pb.Error_Code]uint64{},
		Connections: c.connections.Load(), Accepted: c.accepted.Load(), Unread: c.unread.Load(),
		Displaced:   s.service.limiter.Closed(),
		RateRefused: s.service.cfg.Clients.rates.refused.Load(),
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
