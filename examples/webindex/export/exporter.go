package export

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/examples/webindex/schema"
)

// Bounds.
const (
	// concurrency is how many observer runs wait for the index at once, and so about how
	// many pages a batch holds.
	concurrency = 64
	maxBatch    = 256     // changes in one batch
	maxBytes    = 8 << 20 // of text in one batch; one document may exceed it
)

// errNotStarted: nobody writes the full-text index, or nobody does any more. It wraps
// percolator.ErrUnavailable, so that the observer tries again and nothing is parked.
var errNotStarted = fmt.Errorf("export: the exporter does not run: %w", percolator.ErrUnavailable)

// sink is what the worker needs of *Index; tests have another.
type sink interface {
	version(url string) (percolator.Timestamp, error)
	apply(changes []change) error
}

// item is a change on its way, with whoever waits for it.
type item struct {
	change
	done chan error // buffered: the worker never waits for whoever asked
}

// Stats are counters since the exporter started.
type Stats struct {
	Written uint64 // documents, also those of a fill
	Removed uint64 // tombstones
	Batches uint64
	// exports of a version that the index had already: after a crash, or a commit that
	// failed
	Repeated uint64
	Stale    uint64 // exports of an older version than the index had
	Moved    uint64 // runs that found the page newer than its doc, and came back later
	Failed   uint64 // batches that Bleve refused
}

// Since subtracts earlier counters.
func (s Stats) Since(before Stats) Stats {
	return Stats{
		Written: s.Written - before.Written, Removed: s.Removed - before.Removed,
		Batches:  s.Batches - before.Batches,
		Repeated: s.Repeated - before.Repeated, Stale: s.Stale - before.Stale,
		Moved:  s.Moved - before.Moved,
		Failed: s.Failed - before.Failed,
	}
}

// Exporter writes the index. Its methods may be used concurrently.
type Exporter struct {
	queue   chan item
	running atomic.Bool
	stop    chan struct{} // closed by Close
	stopped sync.WaitGroup
	once    sync.Once

	index  *Index // nil before Start
	sink   sink
	linger time.Duration // see Config
	// the worker's: the last batch failed, so what the sink shows may not be durable
	doubt bool

	written, removed, batches, repeated, stale, moved, failed atomic.Uint64
}

// New returns an exporter that has not started. Register its observer before the node
// opens, and start it after.
func New() *Exporter {
	return &Exporter{queue: make(chan item, concurrency), stop: make(chan struct{})}
}

// Register registers the observer. It is called once per registry.
func (x *Exporter) Register(r *percolator.Registry) {
	r.Strong("export", schema.Pages(schema.Doc), x.observe, percolator.Concurrency(concurrency))
}

// observe runs after a page's doc was written or deleted. It has no effect that may not
// be repeated, see invariant 2.
func (x *Exporter) observe(ctx context.Context, tx *percolator.Tx,
	n percolator.Notification) error {
	value, ok, err := tx.Get(ctx, n.Row, n.Column)
	if err != nil {
		return err
	}
	var doc *Document
	if ok {
		if doc, err = x.document(ctx, tx, n.Row, value); err != nil {
			return err
		}
	}
	return x.Export(ctx, n.Row, n.TS, doc)
}

// document reads a page's document. A page that has moved on is tried again later: a
// writer is about to change doc. That is no failure of the run, so the error wraps
// percolator.ErrUnavailable.
func (x *Exporter) document(ctx context.Context, r percolator.Reader, url string,
	value []byte) (*Document, error) {
	doc, err := schema.DecodeDocument(value)
	if err != nil {
		return nil, err
	}
	d, err := read(ctx, r, url, doc)
	if errors.Is(err, errMoved) {
		x.moved.Add(1)
		return nil, fmt.Errorf("%w: %w", percolator.ErrUnavailable, err)
	}
	if err != nil {
		return nil, err
	}
	return &d, nil
}

// Export hands a version of a page over, nil for one that is gone, and waits until it, or
// a newer version of the page, is durable. It may be repeated, and come late. An error
// that wraps percolator.ErrUnavailable: try again later.
func (x *Exporter) Export(ctx context.Context, url string, version percolator.Timestamp,
	doc *Document) error {
	if !x.running.Load() {
		return errNotStarted
	}
	it := item{change: change{url, version, doc}, done: make(chan error, 1)}
	select {
	case x.queue <- it:
	case <-x.stop:
		return errNotStarted
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-it.done:
		return err
	case <-x.stop: // it may be durable or not; the next run finds out
		return errNotStarted
	case <-ctx.Done():
		return ctx.Err()
	}
}

// start starts the worker over the sink.
func (x *Exporter) start(s sink) {
	x.sink = s
	x.stopped.Add(1)
	go x.work()
	x.running.Store(true)
}

// work is the worker: it writes what is waiting as one batch, again and again, until Close.
func (x *Exporter) work() {
	defer x.stopped.Done()
	for {
		select {
		case <-x.stop:
			return
		case first := <-x.queue:
			x.write(x.waiting(first))
		}
	}
}

// waiting collects the batch: the first change, those that wait behind it, and those that
// come while it lingers.
func (x *Exporter) waiting(first item) []item {
	items, size := []item{first}, first.size()
	timer := time.NewTimer(x.linger)
	defer timer.Stop()
	for over := x.linger == 0; len(items) < maxBatch && size < maxBytes; {
		select {
		case it := <-x.queue:
			items = append(items, it)
			size += it.size()
			continue
		default:
		}
		if over || len(items) >= concurrency { // nobody is left who could come
			break
		}
		select {
		case it := <-x.queue:
			items = append(items, it)
			size += it.size()
		case <-timer.C:
			over = true
		case <-x.stop:
			over = true
		}
	}
	return items
}

// size is about how many bytes of text the change holds.
func (c change) size() int {
	if c.doc == nil {
		return 0
	}
	return len(c.doc.Title) + len(c.doc.Text)
}

// write makes the items durable and answers them.
func (x *Exporter) write(items []item) {
	changes, err := x.news(items)
	if err == nil && (len(changes) > 0 || x.doubt) {
		err = x.apply(changes)
	}
	answer(items, err)
}

// news are the changes that the index does not have, the newest of each URL.
func (x *Exporter) news(items []item) ([]change, error) {
	newest, have := map[string]int{}, map[string]percolator.Timestamp{}
	var changes []change
	for _, it := range items {
		version, known := have[it.url]
		if !known {
			var err error
			if version, err = x.sink.version(it.url); err != nil {
				return nil, fmt.Errorf("%w: %w", percolator.ErrUnavailable, err)
			}
			have[it.url] = version
		}
		switch {
		case it.version < version:
			x.stale.Add(1)
			continue
		case it.version == version:
			x.repeated.Add(1)
			continue
		}
		have[it.url] = it.version
		if at, there := newest[it.url]; there {
			changes[at] = it.change
			x.stale.Add(1)
			continue
		}
		newest[it.url] = len(changes)
		changes = append(changes, it.change)
	}
	return changes, nil
}

// apply writes one batch. While in doubt also an empty one: it says whether what the
// index shows is durable.
func (x *Exporter) apply(changes []change) error {
	if err := x.sink.apply(changes); err != nil {
		x.doubt = true
		x.failed.Add(1)
		return fmt.Errorf("%w: %w", percolator.ErrUnavailable, err)
	}
	x.doubt = false
	x.batches.Add(1)
	for _, c := range changes {
		if c.doc == nil {
			x.removed.Add(1)
		} else {
			x.written.Add(1)
		}
	}
	return nil
}

// answer tells those who wait, unless they have been told.
func answer(items []item, err error) {
	for _, it := range items {
		select {
		case it.done <- err:
		default:
		}
	}
}

// Stats are the counters.
func (x *Exporter) Stats() Stats {
	return Stats{
		Written: x.written.Load(), Removed: x.removed.Load(), Batches: x.batches.Load(),
		Repeated: x.repeated.Load(),
		Stale:    x.stale.Load(), Moved: x.moved.Load(), Failed: x.failed.Load(),
	}
}

// Index is the index; nil before Start. It is closed by Close.
func (x *Exporter) Index() *Index { return x.index }

// Close stops the worker, after the batch that it writes, and closes the index. Exports
// that wait are told to come again. Harmless when repeated, or without Start.
func (x *Exporter) Close() (err error) {
	x.once.Do(func() {
		x.running.Store(false)
		close(x.stop)
		x.stopped.Wait()
		if x.index != nil {
			err = x.index.Close()
		}
	})
	return err
}
