package observer

// Batches: one run of an observer for several cells in one transaction. The dispatcher forms a
// batch from the cells already in the observer's queue and does not wait for more. The batch then
// belongs to its invocation actor, the only caller of its methods, until the outcomes are
// returned. A batch that fails or conflicts is split: its cells return to the queue, and their
// later batches are limited to half its size. A failing cell thus runs alone after log2(size)
// more batches, and only then does its run count as failed (failed in outcome.go). A function
// that names the failing cells (percolator.PartialError) avoids the splits: the other cells are
// committed. A batch refused by an external service (outside.go) is not split. If the function
// reports that something is unavailable, no cell is to blame as far as is known: the size of the
// observer's batches is halved, and each commit doubles it again.

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/notify"
)

const (
	// lookahead is the number of batches' worth of queued cells that are searched for cells of
	// the same tablet.
	lookahead = 4
	// atOnce limits a batch's concurrent messages that concern one cell each.
	atOnce = 16
)

// largest returns the size of the largest batch that may include the entry. A change whose runs
// have failed runs alone, so that it fails no other cell, and so does one whose next run counts
// as failed if it has no result.
func (l *registeredObserver) largest(e *entry) int {
	if l.alone == e || e.attempts > 0 || (e.known != nil && e.known.Attempts > 0) ||
		(e.conflicts+1)%l.spec.MaxConflicts == 0 {
		return 1
	}
	size := max(l.spec.Batch, 1)
	return min(cmp.Or(e.most, size), cmp.Or(l.size, size))
}

// resize adapts the size of the observer's batches to the end of a batch: it limits the size to
// half of this batch if the function reported something as unavailable, and doubles a limited size
// after a commit.
func (l *registeredObserver) resize(b *batch) {
	for _, out := range b.outs {
		switch {
		case out.kind == unavailable && out.postponed && out.share > 0:
			half := (len(b.due) + 1) / 2
			l.size = min(half, cmp.Or(l.size, half))
			return
		case out.kind == committed && l.size > 0:
			if l.size *= 2; l.size >= l.spec.Batch {
				l.size = 0
			}
			return
		}
	}
}

// batchPeers removes from the queue the cells that run together with e: the first ones of its
// tablet and its priority that the lookahead finds, up to the size of a batch. The others keep
// their order.
func (l *registeredObserver) batchPeers(e *entry) (peers []*entry) {
	size, seen, kept := l.largest(e), 0, 0
	for seen < min(len(l.queue), lookahead*l.spec.Batch) && len(peers)+1 < size {
		o := l.queue[seen]
		most := l.largest(o)
		if o.tablet == e.tablet && o.priority == e.priority && len(peers)+2 <= most {
			peers, size = append(peers, o), min(size, most)
		} else {
			l.queue[kept] = o
			kept++
		}
		seen++
	}
	first := seen - kept
	copy(l.queue[first:seen], l.queue[:kept])
	clear(l.queue[:first])
	l.queue = l.queue[first:]
	l.stats.queued.Add(-int64(len(peers)))
	return peers
}

// divide queues a cell of a batch that did not commit. After a conflict or an unavailable node it
// is queued after a backoff (retryIn).
func (a *dispatcherActor) divide(e *entry, out outcome) {
	e.most = out.most
	switch {
	case len(a.draining) > 0:
		a.forget(e)
	case transient(out.err):
		e.retried(out)
		a.delay(e, a.retryIn(e, out))
	default:
		a.enqueue(e)
	}
}

// retryIn returns the backoff of an entry whose run is to be repeated: random, so that
// conflicting runs do not coincide again, and the same for cells of a batch with equally many
// retries.
func (a *dispatcherActor) retryIn(e *entry, out outcome) time.Duration {
	d := backoff(retryBase, a.cfg.RetryMax, e.retries-1)
	if out.share == 0 {
		return jitter(d)
	}
	return d/2 + time.Duration(out.share*float64(d/2))
}

// disband queues the cells of a batch whose function does not return, each for a run of its own.
// The function's transaction can no longer commit.
func (a *dispatcherActor) disband(r *run) {
	r.obs.stats.divided.Add(1)
	for _, m := range append([]*run{r}, r.batchPeers...) {
		if e, ok := a.runs[m]; ok {
			delete(a.runs, m)
			e.run, e.charged = nil, m.charged
			a.settle(e, outcome{kind: divided, err: errAbandoned, most: 1})
		}
	}
}

// batch is the work of an invocation actor: one or more runs of one observer, for different
// cells, that share a transaction and a phase.
type batch struct {
	lead *run
	runs []*run // in the order of their rows
	outs []outcome
	due  []int // indices in runs for which the function is called
	ts   []mvcc.Timestamp
}

func newBatch(lead *run) *batch {
	b := &batch{lead: lead, runs: append([]*run{lead}, lead.batchPeers...)}
	slices.SortFunc(b.runs, func(a, b *run) int { return strings.Compare(a.cell.Row, b.cell.Row) })
	b.outs, b.ts = make([]outcome, len(b.runs)), make([]mvcc.Timestamp, len(b.runs))
	return b
}

// do is like run.do for several cells.
func (b *batch) do() {
	ctx, cancel := context.WithTimeout(b.lead.base, b.lead.timeout)
	defer cancel()
	tx, err := b.lead.client.Begin(ctx, b.lead.obs.spec.Name)
	if err != nil {
		b.fail(err)
		return
	}
	for _, r := range b.runs {
		r.tx = tx
	}
	if err := b.check(ctx, tx); err != nil {
		b.lead.drop(tx)
		b.fail(err)
		return
	}
	cancel()
	start := tx.StartTS()
	switch len(b.due) {
	case 0:
		b.lead.drop(tx)
	case 1:
		i := b.due[0]
		r := b.runs[i]
		b.outs[i] = r.awaitBackground(tx, r.execute(tx, b.ts[i]))
	default:
		b.execute(tx)
		b.lead.awaitBackground(tx, outcome{})
	}
	for i := range b.outs {
		b.outs[i].start = start
	}
}

// check decides which cells are dirty and sets the outcomes of the others. It reads all cells with
// one message to each tablet, then the entries that run.admit needs, also with one message to each
// tablet. A suspected cell, and a hinted one that is clean, cost further messages. An error applies
// to all cells.
func (b *batch) check(ctx context.Context, tx Txn) error {
	weak := b.lead.obs.spec.Weak
	rows := make([]mvcc.Cell, len(b.runs))
	for i, r := range b.runs {
		rows[i] = r.cell
	}
	tx.Expect(rows...)
	var recs []mvcc.ReadResult
	var entries map[mvcc.Cell]mvcc.Notify
	var err error
	if !weak {
		cells := make([]mvcc.Cell, 0, 2*len(b.runs))
		for _, r := range b.runs {
			cells = append(cells, r.obs.observed(r.cell), r.obs.ack(r.cell))
		}
		if recs, err = tx.GetRecords(ctx, cells...); err != nil {
			return err
		}
	} else {
		// The transaction must start before the entries are read, as in checkWeak.
		if _, err = tx.Start(ctx); err != nil {
			return err
		}
		if entries, err = b.lead.client.Notifications(ctx, rows); err != nil {
			return err
		}
	}
	due := make([]bool, len(b.runs))
	_ = each(len(b.runs), func(i int) error {
		r := b.runs[i]
		if weak {
			n, there := entries[r.cell]
			due[i], b.ts[i], b.outs[i] = r.compareWeak(tx, n, there)
		} else {
			due[i], b.ts[i], b.outs[i] = r.compare(ctx, recs[2*i], recs[2*i+1])
		}
		if due[i] {
			due[i], b.outs[i] = r.debounceElapsed(b.ts[i])
		}
		if due[i] {
			due[i], b.outs[i] = r.loopPaused()
		}
		return nil
	})
	admitted, err := b.entriesToAdmit(ctx, due)
	if err != nil {
		return err
	}
	_ = each(len(b.runs), func(i int) error {
		if due[i] {
			n, there := admitted[b.runs[i].cell]
			due[i], b.outs[i] = b.runs[i].charge(ctx, b.ts[i], n, there)
		}
		return nil
	})
	for i := range due {
		if due[i] {
			b.due = append(b.due, i)
		}
	}
	return nil
}

// execute calls the user's function once for all due cells, in one transaction, and commits it
// unless it has failed or the function reports all cells as failed. The changes of cells that the
// function reports as failed stay unacknowledged.
func (b *batch) execute(tx Txn) {
	lead, stats := b.runs[b.due[0]], &b.lead.obs.stats
	changes := make([]percolator.Notification, 0, len(b.due))
	due := make([]*run, 0, len(b.due))
	for _, i := range b.due {
		r, ts := b.runs[i], b.ts[i]
		changes, due = append(changes, r.notification(ts)), append(due, r)
		stats.started(tx.StartTS(), ts)
		r.noteCause(tx.StartTS())
		// Each change's trace has its own run span; the transaction belongs to the first of them.
		if r.span = r.traces.Run(ts, r.obs.spec.Name); lead.span == nil {
			lead = r
		}
	}
	// The origin of the writes is the oldest origin of the batch's changes.
	for _, i := range b.due {
		lead.origin = min(lead.origin, b.runs[i].origin)
	}
	tx.SetOrigin(lead.origin)
	stats.sizes.Observe(len(b.due))
	defer stats.took.Since(time.Now())
	defer b.trace()
	tx.Trace(lead.span)
	failed, err := failures(lead.user(tx, changes), due)
	if err != nil {
		lead.drop(tx)
		b.give(b.verdict(lead, err))
		return
	}
	err = tx.Failed() // a failed transaction may be why single changes failed
	if err != nil || len(failed) == len(b.due) {
		lead.drop(tx)
	} else {
		err = b.commit(tx, lead, failed)
	}
	if err != nil {
		b.fail(err)
		return
	}
	if len(failed) == 0 {
		return
	}
	_ = each(len(b.due), func(i int) error {
		r := b.runs[b.due[i]]
		if err := failed[r]; err != nil {
			b.outs[b.due[i]] = r.blamed(tx, err)
		}
		return nil
	})
}

// commit commits the batch. A strong observer's acknowledgments of the changes that have not
// failed are in the same transaction, and clear their notifications. A weak observer has none:
// its notifications are cleared together afterwards.
func (b *batch) commit(tx Txn, lead *run, failed map[*run]error) error {
	ctx, cancel := context.WithTimeout(lead.base, lead.timeout)
	defer cancel()
	cells := make([]mvcc.Cell, 0, len(b.due))
	for _, i := range b.due {
		if failed[b.runs[i]] != nil {
			continue
		}
		cell := b.runs[i].cell
		cells = append(cells, cell)
		if !lead.obs.spec.Weak {
			tx.SetCell(lead.obs.ack(cell), notify.EncodeAck(tx.StartTS(), lead.obs.version()))
		}
	}
	ended, err := tx.Commit(ctx)
	if err != nil {
		return err
	}
	lead.obs.stats.commits.Add(uint64(len(cells)))
	effects := tx.Effects()
	for _, i := range b.due {
		b.runs[i].noteEffects(effects, len(b.due))
		b.outs[i] = outcome{kind: committed} // execute then sets those that failed
	}
	// Cells changed since the transaction's start stay dirty; a hint or a scan finds them.
	if !lead.obs.spec.Weak {
		return nil
	}
	cleared, stop := context.WithTimeout(lead.base, lead.timeout)
	defer stop()
	err = lead.client.ClearNotifies(cleared, cells, mvcc.ClearNotifyRequest{
		UpTo: tx.StartTS(), Origin: lead.origin, Ended: ended, Observer: lead.obs.spec.Name,
	})
	if err != nil {
		lead.obs.logger.Debug("observer: notifications not cleared", "observer",
			lead.obs.spec.Name, "error", err)
	}
	return nil
}

// fail sets the outcome of all due runs, or of all runs if check has not finished, because of an
// error that does not come from the user's function.
func (b *batch) fail(err error) {
	if b.due == nil {
		for i := range b.runs {
			b.due = append(b.due, i)
		}
	}
	b.give(b.split(err))
}

// split returns the outcome of the due runs, whose batch failed with err: abandoned if the
// dispatcher has abandoned it, interrupted if the dispatcher stops, and otherwise divided, so that
// they run again in batches of at most half as many changes.
func (b *batch) split(err error) outcome {
	out := outcome{kind: divided, err: err, most: (len(b.due) + 1) / 2, share: share()}
	switch {
	case errors.Is(err, errAbandoned):
		out.kind = abandoned
	case b.lead.base.Err() != nil:
		out.kind = interrupted
	}
	return out
}

// verdict returns the outcome of runs whose function failed with err. A function that was refused
// by an external service, or reported that something is unavailable, fails no change.
func (b *batch) verdict(lead *run, err error) outcome {
	out := b.split(err)
	wait, refusal := refusalOf(err)
	var late *deadlineError
	switch {
	case out.kind != divided:
	case refusal:
		return outcome{kind: refused, err: err, wait: wait}
	case !errors.As(err, &late) && transient(err) && !conflicting(err) &&
		!errors.Is(err, percolator.ErrClosed) && !lead.owns(err):
		return outcome{kind: unavailable, err: err, postponed: true, share: out.share}
	}
	return out
}

// share returns a random number above 0 and at most 1.
func share() float64 { return 1 - rand.Float64() }

// give sets the outcome of all due runs to out. If out is interrupted or refused, which count as no
// attempt, it calls uncharge for them.
func (b *batch) give(out outcome) {
	for _, i := range b.due {
		b.outs[i] = out
	}
	if out.kind == interrupted || out.kind == refused {
		_ = each(len(b.due), func(i int) error {
			b.runs[b.due[i]].uncharge()
			return nil
		})
	}
}

// exited sets the outcomes if do did not return: the user's function ended the goroutine, or the
// code around it panicked.
func (b *batch) exited() {
	lead := b.lead
	switch {
	case len(b.runs) == 1:
		b.outs[0] = lead.exited()
	case lead.tx != nil && lead.phase.CompareAndSwap(phaseUser, phaseReturned):
		lead.drop(lead.tx)
		b.fail(errExited)
	default:
		b.fail(errAbandoned)
	}
}

// trace ends the spans of the runs.
func (b *batch) trace() {
	for _, i := range b.due {
		b.runs[i].traced(b.outs[i])
	}
}

// each calls do for all indices below n, up to atOnce concurrently, and returns one of the errors.
// Most calls send nothing and return at once, so that a goroutine for each would cost more than they do.
func each(n int, do func(i int) error) error {
	var group errgroup.Group
	var next atomic.Int64
	for range min(n, atOnce) {
		group.Go(func() (err error) {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				err = cmp.Or(err, do(i))
			}
			return err
		})
	}
	return group.Wait()
}
