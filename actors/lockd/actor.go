package lockd

import (
	"fmt"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/percolator-go/percolator/internal/actorkit"
	"github.com/percolator-go/percolator/internal/wire"
)

// This file has the actor, which owns the lock table. Scanners' requests arrive through
// Lockd.Port from any goroutine; everything here runs on the actor's goroutine. Requests
// of the open batch are the only thing in flight: each is answered when the batch is
// handled, or with ErrStopped.

// call is one request in its envelope.
type call = actorkit.Call[*wire.LockdRequest, *wire.LockdResponse]

// lockdActor owns the table.
type lockdActor struct {
	cfg     Config
	table   *table
	batch   *actorkit.Batcher[*call]
	stats   *counters
	stopped chan struct{}
}

// Receive handles one message; the calls that wait in the mailbox form one batch.
func (a *lockdActor) Receive(c actor.Context) {
	switch m := c.Message().(type) {
	case *call:
		if a.batch.Add(c, m, requestBytes(m.Req)) {
			a.flush()
		}
	case *actorkit.Flush:
		if a.batch.Due(m) {
			a.flush()
		}
	case *forget:
		a.flush() // keep the order of arrival
		a.table.forget(m.first, m.last)
		a.stats.Lock()
		defer a.stats.Unlock()
		a.stats.Held = uint64(len(a.table.entries))
	case *actor.Stopping, *actor.Restarting:
		for _, waiting := range a.batch.Take() {
			waiting.Fail(actorkit.ErrStopped)
		}
	case *actor.Stopped:
		close(a.stopped)
	}
}

// flush handles the open batch in order of arrival, with one reading of the clock.
func (a *lockdActor) flush() {
	batch := a.batch.Take()
	if len(batch) == 0 {
		return
	}
	a.stats.Lock()
	defer a.stats.Unlock()
	now := a.cfg.Now()
	a.stats.Expired += uint64(a.table.expire(now))
	for _, c := range batch {
		if err := check(c.Req); err != nil {
			c.Fail(err)
			continue
		}
		c.Reply(a.handle(c.Req, now))
	}
	a.stats.Held = uint64(len(a.table.entries))
}

// handle performs the unlocks of one request, then its tries.
func (a *lockdActor) handle(req *wire.LockdRequest, now time.Time) *wire.LockdResponse {
	for _, key := range req.Unlock {
		a.table.unlock(string(key), req.Owner)
	}
	resp := &wire.LockdResponse{Granted: make([]bool, len(req.Try))}
	until := now.Add(a.lease(req))
	for i, key := range req.Try {
		// The key is copied: the table outlives the message.
		how := a.table.try(string(key), req.Owner, until)
		resp.Granted[i] = how != heldByOther
		switch how {
		case heldByOther:
			a.stats.Refused++
		case unrecorded:
			a.stats.Unstored++
			a.stats.Granted++
		case granted:
			a.stats.Granted++
		}
	}
	return resp
}

// lease returns the duration of the locks that the request asks for.
func (a *lockdActor) lease(req *wire.LockdRequest) time.Duration {
	if req.LeaseMs == 0 {
		return a.cfg.Lease
	}
	return min(time.Duration(req.LeaseMs)*time.Millisecond, a.cfg.MaxLease)
}

// check returns an error that wraps ErrInvalid if the request breaks a bound.
func check(req *wire.LockdRequest) error {
	if req.Owner == 0 {
		return fmt.Errorf("%w: the owner is missing", ErrInvalid)
	}
	if n := len(req.Try) + len(req.Unlock); n > MaxKeys {
		return fmt.Errorf("%w: %d keys; at most %d are allowed", ErrInvalid, n, MaxKeys)
	}
	for _, keys := range [][][]byte{req.Try, req.Unlock} {
		for _, k := range keys {
			if len(k) > MaxKeyBytes {
				return fmt.Errorf("%w: a key of %d bytes; at most %d are allowed", ErrInvalid, len(k),
					MaxKeyBytes)
			}
		}
	}
	return nil
}

// requestBytes returns roughly how much memory the request holds.
func requestBytes(req *wire.LockdRequest) int {
	n := 32
	for _, k := range req.Try {
		n += len(k)
	}
	for _, k := range req.Unlock {
		n += len(k)
	}
	return n
}
