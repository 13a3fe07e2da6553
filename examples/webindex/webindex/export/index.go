package export

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/blevesearch/bleve/v2"
	index "github.com/blevesearch/bleve_index_api"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/examples/webindex/schema"
)

// lockTimeout limits the wait for another process to close the index.
const lockTimeout = "5s"

// Keys under which the index stores its format, its cluster, and that it has been filled.
var (
	keyFormat  = []byte("webindex.format")
	keyCluster = []byte("webindex.cluster")
	keyFilled  = []byte("webindex.filled")
)

// Index is the full-text index in a directory. The exporter alone writes it, one batch at a
// time; searches may run concurrently.
type Index struct{ bleve bleve.Index }

// openIndex opens the index of the cluster in dir, and creates it if it does not exist. It replaces
// an index of another format or of another cluster and, with anew, any. If it cannot open the
// index, it returns an error and leaves the index as it is.
func openIndex(dir, cluster string, anew bool) (*Index, error) {
	if anew {
		if err := os.RemoveAll(dir); err != nil {
			return nil, fmt.Errorf("export: %w", err)
		}
	}
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return createIndex(dir, cluster)
	}
	b, err := bleve.OpenUsing(dir, map[string]any{"bolt_timeout": lockTimeout})
	if err != nil {
		return nil, fmt.Errorf("export: open the full-text index in %s (--reindex makes a new one): %w", dir, err)
	}
	for _, is := range []struct {
		key  []byte
		want string
	}{{keyFormat, format}, {keyCluster, cluster}} {
		have, err := b.GetInternal(is.key)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("export: %w", err), b.Close())
		}
		if string(have) != is.want {
			if err := b.Close(); err != nil {
				return nil, fmt.Errorf("export: %w", err)
			}
			return openIndex(dir, cluster, true)
		}
	}
	return &Index{b}, nil
}

// createIndex creates an empty index. It creates it under a temporary name and renames it, so that
// a crash leaves no partial index.
func createIndex(dir, cluster string) (*Index, error) {
	m, err := newMapping()
	if err != nil {
		return nil, err
	}
	draft := dir + ".new"
	if err := os.RemoveAll(draft); err != nil {
		return nil, fmt.Errorf("export: %w", err)
	}
	b, err := bleve.New(draft, m)
	if err != nil {
		return nil, fmt.Errorf("export: create the full-text index: %w", err)
	}
	err = errors.Join(b.SetInternal(keyFormat, []byte(format)),
		b.SetInternal(keyCluster, []byte(cluster)), b.Close())
	if err == nil {
		err = os.Rename(draft, dir)
	}
	if err != nil {
		return nil, fmt.Errorf("export: create the full-text index: %w", err)
	}
	return openIndex(dir, cluster, false)
}

// Bleve returns the underlying Bleve index, for searches.
func (x *Index) Bleve() bleve.Index { return x.bleve }

// Count returns the number of documents.
func (x *Index) Count(ctx context.Context) (uint64, error) {
	q := bleve.NewTermQuery(KindPage)
	q.SetField(FieldKind)
	found, err := x.bleve.SearchInContext(ctx, bleve.NewSearchRequestOptions(q, 0, 0, false))
	if err != nil {
		return 0, fmt.Errorf("export: count: %w", err)
	}
	return found.Total, nil
}

// Close closes the index, which must not be in use.
func (x *Index) Close() error { return x.bleve.Close() }

// version returns the version of the URL's entry or tombstone; 0 if there is neither.
func (x *Index) version(url string) (percolator.Timestamp, error) {
	e, err := x.entry(url)
	return e.version, err
}

// apply writes the changes, whose URLs are distinct, in one batch. It returns nil once they are
// durable. An empty batch makes all earlier batches durable.
func (x *Index) apply(changes []Change) error {
	batch := x.bleve.NewBatch()
	for _, c := range changes {
		if err := batch.Index(c.Row, fields(c)); err != nil {
			return fmt.Errorf("export: %s: %w", c.Row, err)
		}
	}
	if err := x.bleve.Batch(batch); err != nil {
		return fmt.Errorf("export: write a batch: %w", err)
	}
	return nil
}

// fields returns the change as an index entry.
func fields(c Change) map[string]any {
	version := strconv.FormatUint(uint64(c.Version), 10)
	if c.Gone {
		return map[string]any{FieldKind: kindGone, fieldVersion: version}
	}
	d := c.Value
	return map[string]any{
		FieldKind: KindPage, FieldTitle: d.Title, FieldText: d.Text, FieldAnchors: d.Anchors,
		FieldURL: c.Row, FieldRank: float64(d.Rank), fieldDoc: string(d.Encode()),
		fieldVersion: version,
	}
}

// entry is the index entry of one URL: a document, a tombstone (version only), or nothing.
type entry struct {
	version percolator.Timestamp
	doc     *Document
}

// Lookup returns the document of a page; ok is false if the index has none.
func (x *Index) Lookup(url string) (doc Document, ok bool, err error) {
	e, err := x.entry(url)
	if err != nil || e.doc == nil {
		return Document{}, false, err
	}
	return *e.doc, true, nil
}

func (x *Index) entry(url string) (entry, error) {
	stored, err := x.bleve.Document(url)
	if err != nil {
		return entry{}, fmt.Errorf("export: look up %s: %w", url, err)
	}
	if stored == nil {
		return entry{}, nil
	}
	var e entry
	kind, doc := "", Document{URL: url}
	var fault error
	stored.VisitFields(func(f index.Field) {
		value := string(f.Value())
		switch f.Name() {
		case FieldKind:
			kind = value
		case FieldTitle:
			doc.Title = value
		case FieldText:
			doc.Text = value
		case FieldAnchors:
			doc.Anchors = append(doc.Anchors, value)
		case fieldDoc:
			d, err := schema.DecodeDocument(f.Value())
			doc.Document, fault = d, errors.Join(fault, err)
		case fieldVersion:
			n, err := strconv.ParseUint(value, 10, 64)
			e.version, fault = percolator.Timestamp(n), errors.Join(fault, err)
		}
	})
	if fault != nil {
		return entry{}, fmt.Errorf("export: entry of %s: %w", url, fault)
	}
	if kind == KindPage {
		e.doc = &doc
	}
	return e, nil
}

// filled reports whether the index contains every page that was canonical when the index was
// created.
func (x *Index) filled() (bool, error) {
	have, err := x.bleve.GetInternal(keyFilled)
	if err != nil {
		return false, fmt.Errorf("export: %w", err)
	}
	return len(have) > 0, nil
}

func (x *Index) setFilled() error {
	if err := x.bleve.SetInternal(keyFilled, []byte{1}); err != nil {
		return fmt.Errorf("export: %w", err)
	}
	return nil
}
