package export

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/examples/webindex/schema"
	recipe "github.com/percolator-go/percolator/recipes/export"
)

// atOnce is the maximum number of changes in a run of the observer, and so of documents in memory.
const atOnce = 512

// patience is the number of retries for a page that is newer than its document before that counts
// as a failed run: about four minutes, since the writers of documents may lag during a load.
const patience = 500

// errNotStarted reports that the full-text index has no writer, not yet or no longer. It wraps
// percolator.ErrUnavailable, so that the observer retries and nothing is parked.
var errNotStarted = fmt.Errorf("export: the exporter does not run: %w", percolator.ErrUnavailable)

// Change is a version of a page's document, or its deletion.
type Change = recipe.Change[Document]

// sink is the part of *Index that the exporter uses; tests have another implementation.
type sink interface {
	version(url string) (percolator.Timestamp, error)
	apply(changes []Change) error
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

// Since returns the counts since an earlier reading.
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
	index *Index // nil before Start

	// turn has capacity 1 and serves as a mutex: the goroutine that writes or closes the index
	// holds it. It guards sink, linger, last and doubt.
	turn   chan struct{}
	sink   sink          // nil before Start and after Close
	linger time.Duration // see Config
	last   time.Time     // when a batch was written
	// the last batch failed, so what the sink shows may not be durable
	doubt bool

	written, removed, batches, repeated, stale, moved, failed atomic.Uint64
}

// New returns an exporter that has not started. Register its observer before the node opens, and
// call Start afterwards.
func New() *Exporter { return &Exporter{turn: make(chan struct{}, 1)} }

// Register registers the observer. It is called once per registry.
func (x *Exporter) Register(r *percolator.Registry) {
	cfg := x.config()
	cfg.Apply = func(ctx context.Context, changes []Change) error {
		return x.apply(ctx, changes, len(changes) < atOnce)
	}
	recipe.Register(r, cfg, percolator.Batch(atOnce), percolator.Concurrency(1),
		percolator.MaxConflicts(patience))
}

func (x *Exporter) config() recipe.Config[Document] {
	return recipe.Config[Document]{
		Name: "export", Column: schema.Pages(schema.Doc), Read: x.read, Apply: x.Apply,
	}
}

// read reads a page's document. If the page has changed since doc was written, doc is about to
// change too: the error then wraps percolator.ErrUnavailable, so that the run is retried and does
// not count as failed.
func (x *Exporter) read(ctx context.Context, r percolator.Reader, url string,
	value []byte) (Document, error) {
	doc, err := schema.DecodeDocument(value)
	if err != nil {
		return Document{}, err
	}
	d, err := read(ctx, r, url, doc)
	if errors.Is(err, errMoved) {
		x.moved.Add(1)
		err = fmt.Errorf("%w: %w", percolator.ErrUnavailable, err)
	}
	return d, err
}

// Apply returns nil once the changes, which are of distinct pages, or newer versions of them, are
// durable. Repeated and outdated changes are harmless. An error that wraps
// percolator.ErrUnavailable means that the caller should retry later.
func (x *Exporter) Apply(ctx context.Context, changes []Change) error {
	return x.apply(ctx, changes, false)
}

// apply implements Apply. If linger is set, it delays a batch, so that the next one has more changes. It does not
// delay a single change: after a crash the changes that were running run one by one.
func (x *Exporter) apply(ctx context.Context, changes []Change, linger bool) error {
	select {
	case x.turn <- struct{}{}:
		defer func() { <-x.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if x.sink == nil {
		return errNotStarted
	}
	news, err := x.news(changes)
	if err != nil || len(news) == 0 && !x.doubt {
		return err
	}
	if linger && len(changes) > 1 {
		select {
		case <-time.After(time.Until(x.last.Add(x.linger))):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return x.write(news)
}

// news returns the changes that the index does not contain.
func (x *Exporter) news(changes []Change) (news []Change, err error) {
	for _, c := range changes {
		version, err := x.sink.version(c.Row)
		switch {
		case err != nil:
			return nil, fmt.Errorf("%w: %w", percolator.ErrUnavailable, err)
		case c.Version < version:
			x.stale.Add(1)
		case c.Version == version:
			x.repeated.Add(1)
		default:
			news = append(news, c)
		}
	}
	return news, nil
}

// write writes one batch. If the last batch failed, it writes even an empty one, which makes what
// the index shows durable.
func (x *Exporter) write(changes []Change) error {
	err := x.sink.apply(changes)
	x.doubt, x.last = err != nil, time.Now()
	if err != nil {
		x.failed.Add(1)
		return fmt.Errorf("%w: %w", percolator.ErrUnavailable, err)
	}
	x.batches.Add(1)
	for _, c := range changes {
		if c.Gone {
			x.removed.Add(1)
		} else {
			x.written.Add(1)
		}
	}
	return nil
}

// Stats returns the counters.
func (x *Exporter) Stats() Stats {
	return Stats{
		Written: x.written.Load(), Removed: x.removed.Load(), Batches: x.batches.Load(),
		Repeated: x.repeated.Load(),
		Stale:    x.stale.Load(), Moved: x.moved.Load(), Failed: x.failed.Load(),
	}
}

// Index returns the index; nil before Start. Close closes it.
func (x *Exporter) Index() *Index { return x.index }

// Close closes the index after the current batch. Later exports fail with errNotStarted. Close may
// be called repeatedly, and without Start.
func (x *Exporter) Close() error {
	x.turn <- struct{}{}
	defer func() { <-x.turn }()
	if x.sink == nil {
		return nil
	}
	x.sink = nil
	return x.index.Close()
}
