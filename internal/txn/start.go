package txn

import (
	"context"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// A transaction needs its start timestamp before its first read, not before it begins.
// Asking the oracle for it first would be a trip of its own, as long as the read itself;
// instead the first read carries no timestamp, and the tablet asks for one on its behalf,
// together with all others of its batch, before it looks at anything. The answer says
// which one it was. That it was requested before anything was read, and after the
// transaction had begun, is all that the proof of order needs (§2.3, invariant 10 of
// design section 4).

// opening is the state of a reader that has no timestamp yet.
type opening struct {
	taking bool          // a read that takes it is under way
	taken  chan struct{} // closed when that read has ended; nil: nobody waits for it
}

// begun returns the reader's timestamp, or 0 if it has none yet.
func (r *reader) begun() mvcc.Timestamp {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.at
}

// claim returns the timestamp to read at. If it is 0 the caller has to obtain one and
// call opened; other callers wait here until then.
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

// tryClaim is claim without waiting; claimed is false if there is something to wait for.
// The caller holds mu.
func (r *reader) tryClaim() (at mvcc.Timestamp, claimed bool) {
	if r.at == 0 && r.opening.taking {
		return 0, false
	}
	r.opening.taking = r.at == 0
	return r.at, true
}

// opened ends a claim with the timestamp, or with 0 if none was obtained: the next caller
// may try then.
func (r *reader) opened(at mvcc.Timestamp) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at, r.opening.taking = at, false
	if r.opening.taken != nil {
		close(r.opening.taken)
		r.opening.taken = nil
	}
}

// start returns the reader's timestamp, which it gets from the oracle if there is none
// yet.
func (r *reader) start(ctx context.Context) (mvcc.Timestamp, error) {
	at, err := r.claim(ctx)
	if at != 0 || err != nil {
		return at, err
	}
	asked := r.span.Child(spanOracle)
	at, err = r.c.oracle.get(ctx)
	endSpan(asked, err)
	r.opened(at)
	return at, err
}

// readBatch reads at the reader's timestamp, or obtains one with the read.
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
	if b.opens { // the read has failed before it had one
		r.opened(0)
	}
	endSpan(span, err)
	return err
}

// tookTimestamp sets the timestamp that came with the reader's first read.
func (r *reader) tookTimestamp(b *readBatch, at mvcc.Timestamp) {
	r.opened(at)
	b.opens = false
}
