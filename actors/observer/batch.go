package observer

// This file runs an observer for several cells in one transaction. A batch is made by the
// dispatcher, in its turn, of what waits in the observer's queue; it waits for nothing more
// to come. From then on the batch belongs to its invocation actor, which alone calls its
// methods, until the outcomes are sent back. A batch that comes to nothing is divided: its
// cells go back to the queue, with half its size as the limit of the batches that they may
// be in from then on. So a cell that fails is alone after log2 of the size more batches,
// and only then its run counts as failed (failed in outcome.go). A function that names the
// cells that fail (percolator.PartialError) spares the others this: they are committed.

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/notify"
)

const (
	// lookahead is how many batches' worth of queued cells are looked through for those of
	// one tablet.
	lookahead = 4
	// atOnce limits the messages of a batch that are for one cell each.
	atOnce = 16
)

// largest returns the size of the largest batch that the entry may be in. A change that has
// failed runs by itself, so that no other pays for it.
func (l *registeredObserver) largest(e *entry) int {
	if l.alone == e || e.attempts > 0 || (e.known != nil && e.known.Attempts > 0) {
		return 1
	}
	return cmp.Or(e.most, max(l.spec.Batch, 1))
}

// batchPeers removes from the queue the cells that are run for together with e: those of its
// tablet and its priority, first come first served. The others keep their order.
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

// divide queues a cell of a batch that came to nothing: after a pause, the same for the
// whole batch, if another transaction or a node was in the way.
func (a *dispatcherActor) divide(e *entry, out outcome) {
	e.most = out.most
	switch {
	case len(a.draining) > 0:
		a.forget(e)
	case transient(out.err):
		e.retried(out.err)
		half := backoff(retryBase, a.cfg.RetryMax, e.retries-1) / 2
		a.delay(e, half+time.Duration(out.share*float64(half)))
	default:
		a.enqueue(e)
	}
}

// disband queues the cells of a batch whose function does not return, each for a run of its
// own. The function's transaction can't commit any more.
func (a *dispatcherActor) disband(r *run) {
	for _, m := range append([]*run{r}, r.batchPeers...) {
		if e, ok := a.runs[m]; ok {
			delete(a.runs, m)
			e.run, e.charged = nil, m.charged
			a.settle(e, outcome{kind: divided, err: errAbandoned, most: 1})
		}
	}
}

// batch is what its invocation actor does: one run, or several of one observer, for
// different cells, that share a transaction and a phase.
type batch struct {
	lead *run
	runs []*run // in the order of their rows
	outs []outcome
	due  []int // indices in runs of those for which the function is called
	ts   []mvcc.Timestamp
}

func newBatch(lead *run) *batch {
	b := &batch{lead: lead, runs: append([]*run{lead}, lead.batchPeers...)}
	slices.SortFunc(b.runs, func(a, b *run) int { return strings.Compare(a.cell.Row, b.cell.Row) })
	b.outs, b.ts = make([]outcome, len(b.runs)), make([]mvcc.Timestamp, len(b.runs))
	return b
}

// do is run.do for several cells.
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
		b.outs[i] = r.awaitRest(tx, r.execute(tx, b.ts[i]))
	default:
		b.execute(tx)
		b.lead.awaitRest(tx, outcome{})
	}
	for i := range b.outs {
		b.outs[i].start = start
	}
}

// check decides which of the cells are dirty, and fills in the outcomes of the others. What
// it reads of strong observers' cells takes one message for each tablet. An error is about
// all of them.
func (b *batch) check(ctx context.Context, tx Txn) error {
	weak := b.lead.obs.spec.Weak
	var recs []mvcc.ReadResult
	if !weak {
		cells := make([]mvcc.Cell, 0, 2*len(b.runs))
		for _, r := range b.runs {
			cells = append(cells, r.cell, r.obs.ack(r.cell))
		}
		var err error
		if recs, err = tx.GetRecords(ctx, cells...); err != nil {
			return err
		}
	} else if _, err := tx.Start(ctx); err != nil {
		return err
	}
	due := make([]bool, len(b.runs))
	_ = each(len(b.runs), func(i int) error {
		r := b.runs[i]
		if weak {
			due[i], b.ts[i], b.outs[i] = r.checkWeak(ctx, tx)
		} else {
			due[i], b.ts[i], b.outs[i] = r.compare(ctx, recs[2*i], recs[2*i+1])
		}
		if due[i] {
			due[i], b.outs[i] = r.rested(b.ts[i])
		}
		if due[i] {
			due[i], b.outs[i] = r.charge(ctx, b.ts[i])
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

// execute calls the user's function for all cells that are due, in one transaction, and
// commits what it has done for those that it doesn't name as failed.
func (b *batch) execute(tx Txn) {
	lead, stats := b.runs[b.due[0]], &b.lead.obs.stats
	changes := make([]percolator.Notification, 0, len(b.due))
	due := make([]*run, 0, len(b.due))
	for _, i := range b.due {
		r, ts := b.runs[i], b.ts[i]
		changes, due = append(changes, r.notification(ts)), append(due, r)
		stats.started(tx.StartTS(), ts)
		// Each change's trace has a run, and the first one's the transaction.
		if r.span = r.traces.Run(ts, r.obs.spec.Name); lead.span == nil {
			lead = r
		}
	}
	// What is written goes back to the oldest of what it is for.
	for _, i := range b.due {
		lead.origin = min(lead.origin, b.runs[i].origin)
	}
	tx.SetOrigin(lead.origin)
	stats.sizes.Observe(len(b.due))
	defer stats.took.Since(time.Now())
	defer b.trace()
	tx.Trace(lead.span)
	failed, err := failures(lead.user(tx, changes), due)
	if err == nil {
		err = tx.Failed() // which may be why changes have failed
	}
	if err != nil || len(failed) == len(b.due) {
		lead.drop(tx)
	} else {
		err = b.commit(tx, lead, failed)
	}
	if err != nil {
		b.fail(err)
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

// commit acknowledges the changes that have not failed and commits, in one transaction. The
// acknowledgments clear the notifications; those of weak observers are cleared together.
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
			tx.SetCell(lead.obs.ack(cell), notify.EncodeAck(tx.StartTS()))
		}
	}
	ended, err := tx.Commit(ctx)
	if err != nil {
		return err
	}
	lead.obs.stats.commits.Add(uint64(len(cells)))
	for _, i := range b.due {
		b.outs[i] = outcome{kind: committed} // but for those that have failed
	}
	// What has changed since stays, and is found by its hint or by a scan.
	if !lead.obs.spec.Weak {
		return nil
	}
	cleared, stop := context.WithTimeout(lead.base, lead.timeout)
	defer stop()
	err = lead.client.ClearNotifies(cleared, cells, mvcc.ClearNotifyRequest{
		UpTo: tx.StartTS(), Origin: lead.origin, Ended: ended,
	})
	if err != nil {
		lead.obs.logger.Debug("observer: notifications not cleared", "observer",
			lead.obs.spec.Name, "error", err)
	}
	return nil
}

// fail is the outcome of all runs that were due, or of all if that is not known yet.
func (b *batch) fail(err error) {
	if b.due == nil {
		for i := range b.runs {
			b.due = append(b.due, i)
		}
	}
	out := outcome{kind: divided, err: err, most: (len(b.due) + 1) / 2, share: rand.Float64()}
	switch {
	case errors.Is(err, errAbandoned):
		out.kind = abandoned
	case b.lead.base.Err() != nil:
		out.kind = interrupted
	}
	for _, i := range b.due {
		b.outs[i] = out
	}
	if out.kind == interrupted {
		_ = each(len(b.due), func(i int) error {
			b.runs[b.due[i]].uncharge()
			return nil
		})
	}
}

// exited fills in the outcomes when the user's function has ended the goroutine, or
// something around it has panicked: do did not return.
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

// each calls do for all indices below n, several at once, and returns one of the errors.
func each(n int, do func(i int) error) error {
	var group errgroup.Group
	group.SetLimit(atOnce)
	for i := range n {
		group.Go(func() error { return do(i) })
	}
	return group.Wait()
}
