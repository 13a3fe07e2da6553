package main

import (
	"os"
	"path/filepath"
	"testing"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/examples/webindex/schema"
	"github.com/percolator-go/percolator/examples/webindex/webindex/export"
)

// A lost full-text index, or one that is to be rebuilt, is filled from the repository; an index of
// another repository is refused.
func TestFullTextIndexAnew(t *testing.T) {
	o := options{
		pages: sample(t, 200), dir: filepath.Join(t.TempDir(), "node"), exit: true, verify: true,
		quiet: true, limit: 100,
	}
	for _, step := range []struct {
		name   string
		before func() error
		anew   bool
	}{
		{"first", func() error { return nil }, false},
		{"lost", func() error { return os.RemoveAll(o.fullText()) }, false},
		{"anew", func() error { return nil }, true},
		{"another repository's", func() error { return os.RemoveAll(o.dir) }, false},
	} {
		if err := step.before(); err != nil {
			t.Fatal(err)
		}
		o.reindex = step.anew
		if err := run(t.Context(), o, logger()); err != nil {
			t.Errorf("%s: %v", step.name, err)
		}
	}
}

// Repeated exports, as after a kill between the index's batch and the acknowledgment, and late ones
// change nothing.
func TestExportRepeated(t *testing.T) {
	a := opened(t, options{
		pages: sample(t, 200), dir: filepath.Join(t.TempDir(), "node"), exit: true, quiet: true,
		limit: 100,
	})
	if err := a.crawl(t.Context(), a.pages); err != nil {
		t.Fatal(err)
	}
	snapshot, err := a.db.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer snapshot.Close()
	before, documents := a.export.Stats(), uint64(0)
	for c, err := range snapshot.Scan(t.Context(), percolator.Rows(schema.TablePages),
		schema.Pages(schema.Doc)) {
		if err != nil {
			t.Fatal(err)
		}
		documents++
		d, ok, err := a.export.Index().Lookup(c.Row)
		if err != nil || !ok {
			t.Fatalf("%s: %v, %v", c.Row, ok, err)
		}
		d.Title = "from an earlier life"
		for _, version := range []percolator.Timestamp{c.CommitTS, c.CommitTS - 1} {
			if err := a.export.Apply(t.Context(), []export.Change{
				{Row: c.Row, Version: version, Value: d},
			}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if s := a.export.Stats().Since(before); documents == 0 ||
		s != (export.Stats{Repeated: documents, Stale: documents}) {
		t.Errorf("%+v after exports of %d documents that were there", s, documents)
	}
	if err := a.check(t.Context(), a.pages); err != nil {
		t.Error(err)
	}
}

// A document that differs in any way from the repository is found.
func TestVerifyFindsDocument(t *testing.T) {
	a := opened(t, options{
		pages: sample(t, 200), dir: filepath.Join(t.TempDir(), "node"), exit: true, quiet: true,
		limit: 100,
	})
	if err := a.crawl(t.Context(), a.pages); err != nil {
		t.Fatal(err)
	}
	snapshot, err := a.db.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer snapshot.Close()
	var url string
	for c, err := range snapshot.Scan(t.Context(), percolator.Rows(schema.TablePages).Limit(1),
		schema.Pages(schema.Doc)) {
		if err != nil {
			t.Fatal(err)
		}
		url = c.Row
	}
	right, ok, err := a.export.Index().Lookup(url)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	for name, spoil := range map[string]func(*export.Document){
		"title":   func(d *export.Document) { d.Title += "!" },
		"text":    func(d *export.Document) { d.Text += "!" },
		"anchors": func(d *export.Document) { d.Anchors = append([]string{"!"}, d.Anchors...) },
		"rank":    func(d *export.Document) { d.Rank++ },
		"hash":    func(d *export.Document) { d.Hash = "other" },
		"nothing": func(*export.Document) {},
	} {
		d := right
		spoil(&d)
		write := func(url string, d *export.Document) {
			t.Helper()
			c := export.Change{Row: url, Version: a.now(t), Gone: d == nil}
			if d != nil {
				c.Value = *d
			}
			if err := a.export.Apply(t.Context(), []export.Change{c}); err != nil {
				t.Fatal(err)
			}
		}
		write(url, &d)
		want := 1
		if name == "nothing" {
			want = 0
		}
		if r, err := a.export.Index().Verify(t.Context(), snapshot, 5); err != nil ||
			r.Differences != want {
			t.Errorf("%s: %v, %v", name, r, err)
		}
		write(url, nil) // missing, and therefore not superfluous either
		if r, err := a.export.Index().Verify(t.Context(), snapshot, 5); err != nil ||
			r.Differences != 1 {
			t.Errorf("removed: %v, %v", r, err)
		}
		write(url, &right)
	}
	if err := a.export.Apply(t.Context(), []export.Change{
		{Row: "http://h.example/too-many", Version: a.now(t), Value: right},
	}); err != nil {
		t.Fatal(err)
	}
	if r, err := a.export.Index().Verify(t.Context(), snapshot, 5); err != nil ||
		r.Differences != 1 {
		t.Errorf("one too many: %v, %v", r, err)
	}
}

// now returns a new timestamp.
func (a *application) now(t *testing.T) percolator.Timestamp {
	t.Helper()
	s, err := a.db.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	return s.StartTS()
}
