package node

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/tracing"
)

// stamps gets timestamps for this node's tablets. The tablets' actors call it, and it does not block
// them: each request has a goroutine, which close joins.
type stamps struct {
	life context.Context
	// ask requests n timestamps of the oracle's leader, which may return fewer, and now those that
	// this node's oracle can issue without a message. tablets.start sets ask.
	ask func(ctx context.Context, n int) (first mvcc.Timestamp, got int, err error)
	now func(n int) (first mvcc.Timestamp, ok bool)
	// intercept passes each request on, see nodeparts.Parts.Oracle; nil means none.
	intercept func(ask func(), fail func(error))
	running   sync.WaitGroup
}

// stampTimeout limits a tablet's wait for timestamps. It is short because the cells of one-phase
// commits stay reserved during the wait, which delays other transactions.
const stampTimeout = 3 * time.Second

var errFewTimestamps = errors.New("node: the oracle returned fewer timestamps than requested")

// Timestamps implements tablet.Host.
func (s *stamps) Timestamps(n int, traced *tracing.Span, then func(mvcc.Timestamp, error)) {
	ask := func() {
		s.running.Go(func() {
			ctx, cancel := context.WithTimeout(s.life, stampTimeout)
			defer cancel()
			first, got, err := s.ask(traced.In(ctx), n)
			// The tablet needs all n.
			if err == nil && got < n {
				err = errFewTimestamps
			}
			then(first, err)
		})
	}
	if s.intercept == nil {
		ask()
		return
	}
	s.intercept(ask, func(err error) { then(0, err) })
}

// TimestampsNow implements tablet.Host. It succeeds only if this node's oracle can answer without a
// message, and never while requests are intercepted.
func (s *stamps) TimestampsNow(n int) (mvcc.Timestamp, bool) {
	if s.intercept != nil {
		return 0, false
	}
	return s.now(n)
}

// close waits for the requests. It does not block for long once life has ended.
func (s *stamps) close() { s.running.Wait() }
