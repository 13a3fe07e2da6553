package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/examples/webindex/batch"
	"github.com/percolator-go/percolator/examples/webindex/corpus"
	"github.com/percolator-go/percolator/examples/webindex/index"
	"github.com/percolator-go/percolator/examples/webindex/page"
	"github.com/percolator-go/percolator/examples/webindex/schema"
	"github.com/percolator-go/percolator/test/torture/soak"
)

// observersEnv selects the observers that a node links in addition to the counting ones, or instead
// of them. (Variables with the prefix PERCOLATOR_ are settings of a node.)
const observersEnv = "TORTURE_OBSERVERS"

// observers registers the observers of this process, a node.
func observers(r *percolator.Registry) {
	switch os.Getenv(observersEnv) {
	case "soak":
		soak.Register(r)
		return
	case "webindex":
		index.Register(r)
	}
	counting.Register(r)
}

// webindex loads pages while nodes are killed and added, waits until they are indexed,
// and compares the index with what a batch program computes from the pages alone.
func webindex(ctx context.Context, a *arena) (c Counts, err error) {
	ctx, cancel := context.WithTimeout(ctx, a.o.duration+15*time.Minute)
	defer cancel()
	db, err := a.dial(ctx)
	if err != nil {
		return c, err
	}
	defer func() {
		s := db.Stats()
		c = Counts{
			Done:      s.OnePhase + s.TwoPhase + s.ReadOnly + s.NotifyOnly,
			Conflicts: s.Conflicts + s.Locked, Unknown: s.Unknown,
		}
		err = errors.Join(err, db.Close())
	}()
	pages := filepath.Join(a.dir, "pages")
	if err := corpus.Sample(ctx, pages, a.o.oneIn); err != nil {
		return c, err
	}
	l := &pageLoader{arena: a, db: db, pages: pages}
	if err := l.again(ctx, "load", l.load); err != nil {
		return c, err
	}
	if err := l.again(ctx, "index", db.WaitIdle); err != nil {
		return c, err
	}
	return c, l.again(ctx, "verify", l.verify)
}

// pageLoader brings the repository to what a tree of pages holds.
type pageLoader struct {
	*arena
	db    *percolator.DB
	pages string
}

// again repeats a step until it succeeds or finds a difference, since nodes are being killed.
func (l *pageLoader) again(ctx context.Context, what string,
	step func(ctx context.Context) error) error {
	for {
		began := time.Now()
		err := step(ctx)
		l.log("webindex: %s, after %v: %v", what, time.Since(began), err)
		if err == nil || errors.Is(err, errDifferent) || ctx.Err() != nil {
			return err
		}
		_ = l.wait(ctx, time.Second)
	}
}

// load writes the pages that are not there yet. One whose outcome is unknown is looked at
// by the next attempt.
func (l *pageLoader) load(ctx context.Context) (err error) {
	have, err := l.have(ctx)
	if err != nil {
		return err
	}
	files, _, err := page.Tree(l.pages)
	if err != nil {
		return err
	}
	work := l.db.Loader(percolator.LoaderConfig{Name: "webindex.load", Workers: 16})
	defer func() { err = errors.Join(err, work.Close()) }()
	loaded := 0
	for _, f := range files {
		raw, err := f.Read()
		if err != nil {
			return err
		}
		sum := page.Hash(raw)
		if have[f.URL] == sum {
			continue
		}
		loaded++
		err = work.Load(ctx, func(_ context.Context, tx *percolator.Tx) error {
			tx.Set(f.URL, schema.Pages(schema.Raw), raw)
			tx.Set(f.URL, schema.Pages(schema.Sum), []byte(sum))
			return nil
		})
		if err != nil {
			return err
		}
	}
	l.log("webindex: %d of %d pages were not there", loaded, len(files))
	return nil
}

// have returns the content hashes of the loaded pages by URL.
func (l *pageLoader) have(ctx context.Context) (map[string]string, error) {
	snapshot, err := l.db.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = snapshot.Close() }()
	have := map[string]string{}
	for c, err := range snapshot.Scan(ctx, percolator.Rows(schema.TablePages),
		schema.Pages(schema.Sum)) {
		if err != nil {
			return nil, err
		}
		have[c.Row] = string(c.Value)
	}
	return have, nil
}

var errDifferent = errors.New("the index differs from the batch program's")

func (l *pageLoader) verify(ctx context.Context) error {
	snapshot, err := l.db.Snapshot(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = snapshot.Close() }()
	result, err := batch.Verify(ctx, l.pages, 0, snapshot, 20)
	if err != nil {
		return err
	}
	l.log("webindex: %v", result)
	if result.Differences > 0 {
		return fmt.Errorf("%w: %v", errDifferent, result)
	}
	return nil
}
