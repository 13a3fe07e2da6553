package node

import (
	"context"
	"errors"
	"time"

	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/tracing"
)

// stampTimeout limits a tablet's wait for timestamps. It is short because the cells of one-phase
// commits stay reserved during the wait, which delays other transactions.
const stampTimeout = 3 * time.Second

var errFewTimestamps = errors.New("node: the oracle returned fewer timestamps than requested")

// Timestamps implements tablet.Host. It does not block the tablet's actor: the request has a
// goroutine, which close joins.
func (t *tablets) Timestamps(n int, traced *tracing.Span, then func(mvcc.Timestamp, error)) {
	ask := func() {
		t.asking.Go(func() {
			ctx, cancel := context.WithTimeout(t.life, stampTimeout)
			defer cancel()
			first, got, err := t.ask(traced.In(ctx), n)
			// The tablet needs all n.
			if err == nil && got < n {
				err = errFewTimestamps
			}
			then(first, err)
		})
	}
	if t.intercept == nil {
		ask()
		return
	}
	t.intercept(ask, func(err error) { then(0, err) })
}

// TimestampsNow implements tablet.Host. It succeeds only if this node's oracle can answer without a
// message, and never while requests are intercepted.
func (t *tablets) TimestampsNow(n int) (mvcc.Timestamp, bool) {
	if t.intercept != nil {
		return 0, false
	}
	return t.oracle.now(n)
}
