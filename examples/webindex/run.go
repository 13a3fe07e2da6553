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
	"github.com/percolator-go/percolator/examples/webindex/schema"
	"github.com/percolator-go/percolator/node"
)

const (
	closeTimeout = 20 * time.Second
	showDiffs    = 20
	// workers is how many observers run at once. They mostly wait, for timestamps, locks and syncs that are shared with
	// whoever else waits (§2.5).
	workers = 64
)

var (
	errDifferent   = errors.New("the index is not what the batch program computes")
	errInterrupted = errors.New("interrupted; with --dir the next run goes on from here")
)

// app is one run of the command.
type app struct {
	options
	node *node.Node
	db   *percolator.DB
}

// run is the whole command. The throw-away directory goes with it, unless it is killed.
func run(ctx context.Context, o options, logger *slog.Logger) (err error) {
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
	a := &app{options: o}
	if err := a.open(ctx, logger); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.close(ctx)) }()
	err = a.index(ctx)
	switch {
	case ctx.Err() != nil && o.exit:
		return errInterrupted
	case ctx.Err() != nil:
		return nil // as it is meant to end; nothing is lost, the next run goes on
	case err != nil || o.exit:
		return err
	}
	fmt.Println("serving until interrupted")
	<-ctx.Done()
	return nil
}

// edited is where the edited tree goes.
func (o options) edited() string { return filepath.Clean(o.dir) + ".edited" }

// open starts the node with the observers linked in and makes sure of the tables.
func (a *app) open(ctx context.Context, logger *slog.Logger) error {
	cfg := node.DefaultConfig()
	cfg.Dir, cfg.Insecure, cfg.Logger, cfg.Observers = a.dir, true, logger, index.Register
	cfg.ObserverWorkers = workers
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
	if err := a.createTables(ctx); err != nil {
		return errors.Join(err, a.close(ctx))
	}
	return nil
}

// createTables makes the tables that no observer looks at; the others the node has made.
func (a *app) createTables(ctx context.Context) error {
	for _, name := range schema.Tables() {
		if err := a.db.CreateTable(ctx, percolator.TableSpec{Name: name}); err != nil {
			return err
		}
	}
	return nil
}

// close stops the node, also if ctx has ended.
func (a *app) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	return a.node.Close(ctx)
}

// index loads the pages, and the edited pages if asked to.
func (a *app) index(ctx context.Context) error {
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
func (a *app) crawl(ctx context.Context, dir string) error {
	before := a.runs()
	began := time.Now()
	l := loader{app: a, dir: dir}
	if err := l.load(ctx); err != nil {
		return err
	}
	loaded := time.Since(began)
	if err := a.settle(ctx); err != nil {
		return err
	}
	s, err := a.summarize(ctx, l.from)
	if err != nil {
		return err
	}
	s.loading, s.indexing, s.changes = loaded, time.Since(began), l.counts()
	after := a.runs()
	s.runs = since(before, after)
	fmt.Print(s)
	if parked(after) {
		return errParked
	}
	if !a.verify {
		return nil
	}
	return a.check(ctx, dir)
}

// check compares the index with the batch program's result.
func (a *app) check(ctx context.Context, dir string) error {
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
	if result.Differences > 0 {
		return errDifferent
	}
	return nil
}
