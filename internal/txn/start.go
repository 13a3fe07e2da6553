package txn

import (
	"context"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// A transaction needs its start timestamp by its first read. Requesting it from the oracle
// first would be a separate round trip, as long as the read itself. Instead the first read
// carries no timestamp: the tablet requests one, together with those of the other reads of its
// batch, before it reads anything, and returns it in the answer. The proof of order only needs
// that it was requested after the transaction began and before anything was read (§2.3).

// opening is the state of a reader that has no timestamp yet.
type opening struct {
	taking bool          // a caller is obtaining it
	taken  chan struct{} // closed when that caller has it or has failed; nil: no waiters
}

// begun returns the reader's timestamp, or 0 if it has none yet.
func (r *reader) begun() mvcc.Timestamp {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.at
}

// claim returns the reader's timestamp. If it is 0 the caller must obtain one and call opened;
// other callers block in claim until then.
func (r *reader) claim(ctx context.Context) (mvcc.Timestamp, error) {
	for {
		r.mu.Lock()
		at, claimed := r.tryClaim()
		if claimed {
			r.mu.Unlock()
			return at, nil
		}
		o := &r.opening
		if o.taken == nil {
			o.taken = make(chan struct{})
		}
		taken := o.taken
		r.mu.Unlock()
		select {
		case <-taken:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// tryClaim is claim without blocking; claimed is false if claim would block. The caller holds
// mu.
func (r *reader) tryClaim() (at mvcc.Timestamp, claimed bool) {
	if r.at == 0 && r.opening.taking {
		return 0, false
	}
	r.opening.taking = r.at == 0
	return r.at, true
}

// opened ends a claim with the timestamp, or with 0 if none was obtained: then the next caller
// tries.
func (r *reader) opened(at mvcc.Timestamp) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at, r.opening.taking = at, false
	if r.opening.taken != nil {
		close(r.opening.taken)
		r.opening.taken = nil
	}
}

// start returns the reader's timestamp. If there is none yet it obtains one from the oracle.
func (r *reader) start(ctx context.Context) (mvcc.Timestamp, error) {
	at, err := r.claim(ctx)
	if at != 0 || err != nil {
		return at, err
	}
	at, err = r.timestamp(ctx)
	r.opened(at)
	return at, err
}

// timestamp requests a timestamp from the oracle, in a span of its own.
func (r *reader) timestamp(ctx context.Context) (mvcc.Timestamp, error) {
	asked := r.span.Child(spanOracle)
	at, err := r.c.oracle.Get(asked.In(ctx))
	endSpan(asked, err)
	return at, err
}

// readBatch reads at the reader's timestamp. If there is none, readAll obtains it.
func (r *reader) readBatch(ctx context.Context, b *readBatch) error {
	at, err := r.claim(ctx)
	if err != nil {
		return err
	}
	return r.readClaimed(ctx, at, b)
}

// readClaimed is readBatch with the result of claim.
func (r *reader) readClaimed(ctx context.Context, at mvcc.Timestamp, b *readBatch) error {
	span := r.span.Child(spanRead)
	span.Number("percolator.cells", uint64(len(b.cells)))
	b.opens = at == 0
	err := r.readAll(ctx, at, b)
	if b.opens { // the read failed before it obtained a timestamp
		r.opened(0)
	}
	endSpan(span, err)
	return err
}

// tookTimestamp sets the timestamp that the reader's first read has obtained.
func (r *reader) tookTimestamp(b *readBatch, at mvcc.Timestamp) {
	r.opened(at)
	b.opens = false
}
