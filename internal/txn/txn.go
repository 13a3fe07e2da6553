package txn

import (
	"cmp"
	"context"
	"iter"
	"sync/atomic"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/metrics"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn/counters"
)

// Txn is one transaction (§2.2). Its methods may be called concurrently. It drops writes made
// after its end.
//
// It buffers its writes until Commit, so an abandoned transaction leaves nothing behind.
type Txn struct {
	reader
	writeBuffer
	counted  *counters.Named // of the transactions of this name; nil if it has none
	began    metrics.Moment  // for its latency
	ownsSpan bool            // the transaction ends span
	// origin is the timestamp of the user's commit that caused the observer run (docs/adr/0042); 0
	// means not in a run.
	origin mvcc.Timestamp
	// backgroundDone is closed when the background work of a successful commit has ended; nil means
	// that there was none.
	backgroundDone chan struct{}
	left           atomic.Uint64 // see Left

	effects *effectsLog // nil: not recorded
}

// BackgroundDone returns a channel that is closed when the background work of a successful commit
// has ended, or nil if there was none. It must be called after Commit has returned.
func (t *Txn) BackgroundDone() <-chan struct{} { return t.backgroundDone }

// Left returns, after the channel of BackgroundDone is closed, the timestamp of the latest
// notification that the transaction's acknowledgments did not clear, in general because its cell
// changed after the start timestamp; 0 if there is none.
func (t *Txn) Left() mvcc.Timestamp { return mvcc.Timestamp(t.left.Load()) }

// sawLeft updates left with an answer to a commit.
func (t *Txn) sawLeft(res *pb.MutationResult) {
	for left := t.left.Load(); res.GetLeftTs() > left; left = t.left.Load() {
		if t.left.CompareAndSwap(left, res.GetLeftTs()) {
			return
		}
	}
}

// StartTS returns the timestamp of the snapshot that the transaction reads, or 0 if it has none
// yet.
func (t *Txn) StartTS() mvcc.Timestamp { return t.begun() }

// Start returns the timestamp of the snapshot that the transaction reads. If there is none yet
// it requests one from the oracle; if that fails, the transaction cannot commit.
func (t *Txn) Start(ctx context.Context) (mvcc.Timestamp, error) {
	if t.over() && t.begun() == 0 {
		return 0, ErrTxDone
	}
	at, err := t.start(ctx)
	if err != nil {
		t.fail(err)
	}
	return at, err
}

// Failed returns the error that prevents the transaction from committing, from a failed read
// or an invalid write, or nil.
func (t *Txn) Failed() error { return t.failure() }

// beginRead prepares a read. If it returns an error the transaction can no longer commit.
func (t *Txn) beginRead(ctx context.Context) error {
	err := t.resolveTables(ctx)
	if err != nil {
		t.fail(err)
	}
	return err
}

// Get returns the buffered write of a cell, or reads the cell.
func (t *Txn) Get(ctx context.Context, k Key) (value []byte, ok bool, err error) {
	if err := t.beginRead(ctx); err != nil {
		return nil, false, err
	}
	t.effects.noteRead(k.Table, k.Column)
	cell, err := t.c.cell(ctx, k)
	if err != nil {
		t.fail(err)
		return nil, false, err
	}
	// Read your writes: the transaction sees its buffered writes, including deletes.
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

// GetMulti is Get for many cells. It returns one value per key, in the order of keys, also for
// cells that do not exist.
func (t *Txn) GetMulti(ctx context.Context, keys []Key) ([]Value, error) {
	if err := t.beginRead(ctx); err != nil {
		return nil, err
	}
	for _, k := range keys {
		t.effects.noteRead(k.Table, k.Column)
	}
	var done error // set if the transaction has ended concurrently
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

// GetRecords is reader.GetRecords. After a failure the transaction cannot commit.
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
		if len(s.Columns) == 0 {
			t.effects.noteRead(s.Table, "")
		}
		t.effects.noteRead(s.Table, s.Columns...)
		var done error // set if the transaction has ended concurrently
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

// Rollback ends the transaction without committing. There is nothing to undo.
func (t *Txn) Rollback(context.Context) error {
	if t.end() {
		t.record(counters.Undecided, counters.Abandoned)
	}
	return nil
}

// end ends the transaction, and learns from its reads for prefetching. It returns false if the
// transaction had already ended.
func (t *Txn) end() bool {
	t.guard.Lock()
	already := t.ended
	t.ended = true
	t.guard.Unlock()
	if already {
		return false
	}
	// The reads are worth learning from whatever the outcome.
	t.mu.Lock()
	defer t.mu.Unlock()
	t.guesses.finish(&t.reader)
	return true
}
