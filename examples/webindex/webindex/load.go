package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/examples/webindex/page"
	"github.com/percolator-go/percolator/examples/webindex/schema"
)

// loader loads one tree of pages (§2.4's loader transactions). It may be interrupted and started
// again: pages whose content hash is unchanged are not written again, so they trigger no observer.
type loader struct {
	*application
	dir  string
	from percolator.Timestamp // before the first page is loaded

	loaded, unchanged, removed atomic.Int64
}

// changes counts pages.
type changes struct{ loaded, unchanged, removed int64 }

// counts returns the numbers of pages so far.
func (l *loader) counts() changes {
	return changes{l.loaded.Load(), l.unchanged.Load(), l.removed.Load()}
}

// load makes the database equal to the tree: it writes new and changed pages and deletes missing
// ones. It returns when all writes are committed; observers may still be running then.
func (l *loader) load(ctx context.Context) (err error) {
	files, skipped, err := page.Tree(l.dir)
	if err != nil {
		return err
	}
	if l.limit > 0 && l.limit < len(files) {
		files = files[:l.limit]
	}
	if skipped > 0 {
		fmt.Printf("skipped %d files that are no pages\n", skipped)
	}
	have, err := l.have(ctx)
	if err != nil {
		return err
	}
	work := l.db.Loader(percolator.LoaderConfig{Name: "webindex.load"})
	defer func() { err = errors.Join(err, work.Close()) }()
	bar := newProgress("load", len(files), l.quiet)
	defer bar.end()
	for _, f := range files {
		raw, err := f.Read()
		if err != nil {
			return err
		}
		sum := page.Hash(raw)
		before, there := have[f.URL]
		delete(have, f.URL)
		if there && before == sum {
			l.unchanged.Add(1)
			bar.add(1)
			continue
		}
		if err := work.Load(ctx, l.put(f.URL, raw, sum, bar)); err != nil {
			return err
		}
	}
	for url := range have { // pages that are in no file of the tree
		if err := work.Load(ctx, l.remove(url)); err != nil {
			return err
		}
	}
	return nil
}

// have reads the URLs of the loaded pages with their content hashes. It uses about 200 bytes of
// memory per page.
func (l *loader) have(ctx context.Context) (map[string]string, error) {
	snapshot, err := l.db.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = snapshot.Close() }() // only a lease, which ends by itself
	l.from = snapshot.StartTS()
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

// put loads one page in a transaction.
func (l *loader) put(url string, raw []byte, sum string, bar *progress) func(context.Context,
	*percolator.Tx) error {
	counted := false // whether the page is counted: after a conflict the function runs again
	return func(_ context.Context, tx *percolator.Tx) error {
		tx.Set(url, schema.Pages(schema.Raw), raw)
		tx.Set(url, schema.Pages(schema.Sum), []byte(sum))
		if !counted {
			counted = true
			l.loaded.Add(1)
			bar.add(1)
		}
		return nil
	}
}

// remove deletes one page in a transaction.
func (l *loader) remove(url string) func(context.Context, *percolator.Tx) error {
	counted := false
	return func(_ context.Context, tx *percolator.Tx) error {
		tx.Delete(url, schema.Pages(schema.Raw))
		tx.Delete(url, schema.Pages(schema.Sum))
		if !counted {
			counted = true
			l.removed.Add(1)
		}
		return nil
	}
}
