package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/examples/webindex/batch"
	"github.com/percolator-go/percolator/examples/webindex/corpus"
	"github.com/percolator-go/percolator/examples/webindex/index"
	"github.com/percolator-go/percolator/examples/webindex/webindex/export"
	"github.com/percolator-go/percolator/examples/webindex/webindex/search"
	"github.com/percolator-go/percolator/node"
)

const (
	closeTimeout = 20 * time.Second
	showDiffs    = 20
	// workers is the number of concurrent runs of observers. They mostly wait: for locks, and for
	// timestamps and syncs, each of which serves several runs (§2.5).
	workers = 64
	// exporting is the number of additional runs that wait for the full-text index.
	exporting = 1
	// linger is the time after a batch of exports until the next is written, if it is not full.
	linger = 2 * time.Second
	// searchAddr is the default address of the search page.
	searchAddr = "127.0.0.1:7810"
)

var (
	errDifferent   = errors.New("the index differs from the batch program's")
	errNotExported = errors.New("the full-text index differs from the repository")
	errInterrupted = errors.New("interrupted; with --dir the next run continues here")
)

// application is one run of the command.
type application struct {
	options
	node   *node.Node
	db     *percolator.DB
	export *export.Exporter
	server *search.Server // nil: there is no search page
	status waiting

	last    cost   // of the newest crawl
	initial uint64 // runs of rank in the first crawl
}

// run runs the command. It removes the temporary directory when it returns.
func run(ctx context.Context, o options, logger *slog.Logger) (err error) {
	if o.corpus != "" {
		if _, err := os.Stat(o.corpus); err != nil {
			return fmt.Errorf("%w: run `make corpus` first", err)
		}
		o.pages = o.corpus
	}
	if o.pages == "" {
		if o.pages, err = corpus.DefaultDir(); err != nil {
			return err
		}
		fmt.Println("pages: the Go documentation, in", o.pages)
		if err := corpus.Generate(ctx, o.pages); err != nil {
			return err
		}
	}
	if o.dir == "" {
		var work string
		if work, err = os.MkdirTemp("", "webindex-"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
		o.dir = filepath.Join(work, "node")
	}
	a := &application{options: o}
	if err := a.open(ctx, logger); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.close(ctx)) }()
	err = a.index(ctx)
	switch {
	case ctx.Err() != nil && o.exit:
		return errInterrupted
	case ctx.Err() != nil:
		return nil // an interrupt is the usual end; the next run continues
	case err != nil || o.exit:
		return err
	}
	fmt.Println("serving until interrupted")
	<-ctx.Done()
	return nil
}

// edited returns the directory of the edited tree.
func (o options) edited() string { return filepath.Clean(o.dir) + ".edited" }

// fullText returns the directory of the full-text index.
func (o options) fullText() string { return filepath.Clean(o.dir) + ".search" }

// open starts the node with the observers, then the export and the search page.
func (a *application) open(ctx context.Context, logger *slog.Logger) error {
	a.export = export.New()
	cfg := node.DefaultConfig()
	cfg.Dir, cfg.Insecure, cfg.Logger = a.dir, true, logger
	cfg.Observers = func(r *percolator.Registry) {
		index.Register(r)
		a.export.Register(r)
	}
	cfg.ObserverWorkers = workers + exporting
	if a.exit {
		cfg.Listen, cfg.HTTP = "127.0.0.1:0", ""
	}
	if a.listen != "" {
		cfg.Listen = a.listen
	}
	if a.http != "" {
		cfg.HTTP = a.http
	}
	n, err := node.Open(ctx, cfg)
	if err != nil {
		return err
	}
	a.node, a.db = n, n.DB()
	fmt.Printf("node: %s\n  clients  %s\n", a.dir, n.Addr())
	if addr := n.HTTPAddr(); addr != "" {
		fmt.Printf("  console  http://%s/\n", addr)
	}
	if err := a.serve(ctx, logger); err != nil {
		return errors.Join(err, a.close(ctx))
	}
	return nil
}

// serve starts the export and, if requested, the search page.
func (a *application) serve(ctx context.Context, logger *slog.Logger) error {
	err := a.export.Start(ctx, export.Config{
		Dir: a.fullText(), Cluster: a.node.Status().GetClusterId(), DB: a.db, Anew: a.reindex,
		Linger: linger,
	})
	if err != nil {
		return err
	}
	addr := a.search
	if addr == "" && !a.exit {
		addr = searchAddr
	}
	if addr == "" {
		return nil
	}
	a.server, err = search.Open(search.Config{
		Addr: addr, Index: a.export.Index(), DB: a.db, Status: a.indexed, Logger: logger,
	})
	if err != nil {
		return err
	}
	fmt.Printf("  search   http://%s/\n", a.server.Addr())
	return nil
}

// close stops everything, even if ctx has ended: the search page first, because it reads the
// full-text index and the node, and the export last, because the node's observers wait for it.
func (a *application) close(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	if a.server != nil {
		err = a.server.Close(ctx)
	}
	return errors.Join(err, a.node.Close(ctx), a.export.Close())
}

// index loads the pages and, if requested, the edited pages.
func (a *application) index(ctx context.Context) error {
	if err := a.crawl(ctx, a.pages); err != nil || a.edit == 0 {
		return err
	}
	edits, err := corpus.Edit(ctx, a.pages, a.edited(), float64(a.edit), a.seed)
	if err != nil {
		return err
	}
	fmt.Printf("\nedited %s of the pages (seed %d): %d changes, %d added, %d removed; crawling again\n",
		a.edit.String(), a.seed, edits.Changed, edits.Added, edits.Removed)
	return a.crawl(ctx, a.edited())
}

// crawl loads the tree, waits until it is indexed, prints the summary and verifies.
func (a *application) crawl(ctx context.Context, dir string) error {
	before, exported, sent := a.runs(), a.export.Stats(), a.db.Stats()
	began, worked := time.Now(), cpu()
	l := loader{application: a, dir: dir}
	loaded, err := a.fill(ctx, &l)
	if err != nil {
		return err
	}
	indexed, used := time.Since(began), cpu()-worked
	s, err := a.summarize(ctx, l.from)
	if err != nil {
		return err
	}
	s.loading, s.indexing, s.changes = loaded, indexed, l.counts()
	after := a.runs()
	s.runs, s.exports = since(before, after), a.export.Stats().Since(exported)
	s.cost = cost{s.changes.loaded + s.changes.removed, indexed, used, ranked(s.runs), a.initial, statsSince(sent, a.db.Stats())}
	a.last = s.cost
	if a.initial == 0 {
		a.initial = s.cost.ranked
	}
	fmt.Print(s)
	if parked(after) {
		return errParked
	}
	if !a.verify {
		return nil
	}
	return a.check(ctx, dir)
}

// fill loads the tree and waits until it is indexed and exported. It returns the duration of the
// load.
func (a *application) fill(ctx context.Context, l *loader) (loaded time.Duration, err error) {
	began := time.Now()
	err = l.load(ctx)
	loaded = time.Since(began)
	if err == nil {
		err = a.settle(ctx)
	}
	if err == nil {
		_, err = a.export.Fill(ctx, a.db) // the pages that Start omitted, since they were changing
	}
	return loaded, err
}

// check compares the index with the batch program's result, and the full-text index with the index.
func (a *application) check(ctx context.Context, dir string) error {
	snapshot, err := a.db.Snapshot(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = snapshot.Close() }() // only a lease, which ends by itself
	result, err := batch.Verify(ctx, dir, a.limit, snapshot, showDiffs)
	if err != nil {
		return err
	}
	fmt.Println(result)
	exported, err := a.export.Index().Verify(ctx, snapshot, showDiffs)
	if err != nil {
		return err
	}
	fmt.Println(exported)
	switch {
	case result.Differences > 0:
		return errDifferent
	case exported.Differences > 0:
		return errNotExported
	}
	return nil
}
