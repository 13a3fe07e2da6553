package txn

import (
	"cmp"
	"context"
	"iter"
	"sync/atomic"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/metrics"
	"github.com/percolator-go/percolator/internal/mvcc"
)

// Txn is one transaction (§2.2). Its methods may be called concurrently; what is written
// after the end is dropped.
//
// Its writes are buffered here until Commit. Nothing is sent before, so a transaction
// that is dropped leaves nothing behind.
type Txn struct {
	reader
	writeBuffer
	counted *nameCounters // of the transaction's name; nil without one
	// ctx is that of Begin. It is kept for StartTS alone, whose signature has none.
	ctx      context.Context
	began    metrics.Moment // for its latency
	ownsSpan bool           // span is this transaction's own, and ends with it
	// origin is what a run's transaction goes back to (docs/adr/0042); 0: it is a user's.
	origin mvcc.Timestamp
	// rest is closed when what the commit has left to the background has ended; nil: nothing
	// was left. Commit sets it.
	rest chan struct{}
	left atomic.Uint64 // see Left
}

// Rest returns a channel that is closed when what the commit has left to the background has
// ended, and nil if it has left nothing. It is called after Commit.
func (t *Txn) Rest() <-chan struct{} { return t.rest }

// Left returns, once the channel is closed, the latest of the notifications that the
// transaction's acknowledgments have not cleared, since their cells have changed after its
// start; 0 if there is none.
func (t *Txn) Left() mvcc.Timestamp { return mvcc.Timestamp(t.left.Load()) }

// sawLeft takes in an answer to a commit.
func (t *Txn) sawLeft(res *pb.MutationResult) {
	for left := t.left.Load(); res.GetLeftTs() > left; left = t.left.Load() {
		if t.left.CompareAndSwap(left, res.GetLeftTs()) {
			return
		}
	}
}

// StartTS is the snapshot that the transaction reads. It asks the oracle if the
// transaction has not read anything yet; if that fails, the transaction cannot commit,
// and StartTS is 0.
func (t *Txn) StartTS() mvcc.Timestamp {
	if t.over() {
		return t.begun()
	}
	at, err := t.Start(t.ctx)
	if err != nil {
		t.fail(err)
	}
	return at
}

// Start is StartTS with a context and an error.
func (t *Txn) Start(ctx context.Context) (mvcc.Timestamp, error) { return t.start(ctx) }

// Failed returns why the transaction cannot commit, after a failed read or an impossible
// write, or nil.
func (t *Txn) Failed() error { return t.failure() }

// beginRead prepares a read. Its error has already failed the transaction.
func (t *Txn) beginRead(ctx context.Context) error {
	err := t.resolveTables(ctx)
	if err != nil {
		t.fail(err)
	}
	return err
}

// Get reads one cell, or what is buffered for it.
func (t *Txn) Get(ctx context.Context, k Key) (value []byte, ok bool, err error) {
	if err := t.beginRead(ctx); err != nil {
		return nil, false, err
	}
	cell, err := t.c.cell(ctx, k)
	if err != nil {
		t.fail(err)
		return nil, false, err
	}
	// Read your writes: what is buffered is what the transaction sees, deletes too.
	w, ok, err := t.buffered(cell)
	switch {
	case err != nil:
		return nil, false, err
	case ok:
		if w.kind == mvcc.KindDelete {
			return nil, false, nil
		}
		return handOut(w.value), true, nil
	}
	res, err := t.readOne(ctx, cell)
	if err != nil {
		t.fail(err)
		return nil, false, err
	}
	if !res.Found {
		return nil, false, nil
	}
	return handOut(res.Value), true, nil
}

// GetMulti reads many cells, or what is buffered for them.
// The values are in the order of keys, also for cells that do not exist.
func (t *Txn) GetMulti(ctx context.Context, keys []Key) ([]Value, error) {
	if err := t.beginRead(ctx); err != nil {
		return nil, err
	}
	var done error // the transaction has ended meanwhile
	values, err := t.getMulti(ctx, keys, func(cell mvcc.Cell) (Value, bool) {
		w, ok, err := t.buffered(cell)
		done = cmp.Or(done, err)
		if ok && w.kind == mvcc.KindPut {
			return Value{Bytes: handOut(w.value), Found: true}, true
		}
		return Value{}, ok
	})
	if err = cmp.Or(done, err); err != nil {
		t.fail(err)
		return nil, err
	}
	return values, nil
}

// GetRecords is reader.GetRecords; a failure sticks.
func (t *Txn) GetRecords(ctx context.Context, cells ...mvcc.Cell) ([]mvcc.ReadResult, error) {
	return t.records(ctx, cells, false)
}

func (t *Txn) records(ctx context.Context, cells []mvcc.Cell,
	origins bool) ([]mvcc.ReadResult, error) {
	if err := t.beginRead(ctx); err != nil {
		return nil, err
	}
	results, err := t.getRecords(ctx, cells, origins)
	if err != nil {
		t.fail(err)
	}
	return results, err
}

// Scan yields the cells of a range, overlaid with the writes that are buffered when the
// iteration begins.
func (t *Txn) Scan(ctx context.Context, s ScanSpec) iter.Seq2[mvcc.ReadCell, error] {
	return func(yield func(mvcc.ReadCell, error) bool) {
		if err := t.beginRead(ctx); err != nil {
			yield(mvcc.ReadCell{}, err)
			return
		}
		var done error // the transaction has ended meanwhile
		buffered := func(span mvcc.Span, columns []string) (in []bufferedWrite) {
			in, done = t.bufferedIn(span, columns)
			return in
		}
		for cell, err := range t.scan(ctx, s, buffered) {
			if err = cmp.Or(done, err); err != nil {
				t.fail(err)
				cell = mvcc.ReadCell{}
			}
			if !yield(cell, err) {
				return
			}
		}
	}
}

// Rollback ends the transaction without committing. Nothing has been written, so nothing is undone.
func (t *Txn) Rollback(context.Context) error {
	if t.end() {
		t.record(Undecided, Abandoned)
	}
	return nil
}

// end ends the transaction, and learns from what it has read.
func (t *Txn) end() bool {
	t.guard.Lock()
	already := t.ended
	t.ended = true
	t.guard.Unlock()
	if already {
		return false
	}
	// What the transaction read is worth learning from, however it ends.
	t.mu.Lock()
	defer t.mu.Unlock()
	t.guesses.finish(&t.reader)
	return true
}
