package gateway

import (
	"sync"
	"sync/atomic"

	"connectrpc.com/connect"
)

// counters are the live form of Stats.
type counters struct {
	answered sync.Map // of *atomic.Uint64, by code, a fixed set
	expired  atomic.Uint64
	watches  atomic.Int64
}

// ok is the code of calls without an error.
const ok = "ok"

// count counts a call or a stream that has ended with err, nil if none.
func (c *counters) count(err error) {
	code := ok
	if err != nil {
		code = connect.CodeOf(err).String()
	}
	n, known := c.answered.Load(code)
	if !known {
		n, _ = c.answered.LoadOrStore(code, &atomic.Uint64{})
	}
	n.(*atomic.Uint64).Add(1)
}

// Stats are a gateway's counters since its start.
type Stats struct {
	Answered map[string]uint64 // calls and streams that have ended, by Connect's code, "ok" if there is no error
	Calls    int               // running now
	Clients  int               // identities with a client now
	Sessions int               // now; neither those of runs nor those that Commit has ended
	Watches  int64             // streams of changes now
	Expired  uint64            // sessions that ended with their leases
}

// Stats returns the current counters.
func (s *Server) Stats() Stats {
	sv := s.service
	out := Stats{Answered: map[string]uint64{ok: 0}, Expired: sv.counters.expired.Load(),
		Watches: sv.counters.watches.Load()}
	sv.counters.answered.Range(func(code, n any) bool {
		out.Answered[code.(string)] = n.(*atomic.Uint64).Load()
		return true
	})
	sv.callers.mu.Lock()
	out.Calls, out.Clients = sv.callers.calls, len(sv.callers.byID)
	sv.callers.mu.Unlock()
	sv.sessions.mu.Lock()
	out.Sessions = sv.sessions.open
	sv.sessions.mu.Unlock()
	return out
}
