package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/examples/pipeline/embedder"
	"github.com/percolator-go/percolator/examples/pipeline/vectors"
	"github.com/percolator-go/percolator/percolatortest"
)

// outside holds the services, which run in the test's process.
type outside struct {
	services

	embedding *embedder.Service
	indexing  *vectors.Index
}

func startOutside(t *testing.T, cfg embedder.Config) *outside {
	t.Helper()
	o := &outside{embedding: embedder.New(cfg)}
	var err error
	if o.indexing, err = vectors.Open(filepath.Join(t.TempDir(), "vectors")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = o.indexing.Close() })
	url := func(h http.Handler) string {
		server := httptest.NewServer(h)
		t.Cleanup(server.Close)
		return server.URL
	}
	o.services = services{embedder: url(o.embedding), index: url(o.indexing.Handler()), sweepEvery: time.Second}
	return o
}

// files reads documents of the standard library.
func files(t *testing.T, packages ...string) []file {
	t.Helper()
	all, err := readStandard(t.Context(), packages)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// verifyNow compares the index with a computation from scratch.
func (o *outside) verifyNow(t *testing.T, db *percolator.DB) (got result, err error) {
	t.Helper()
	err = db.View(t.Context(), func(ctx context.Context, s *percolator.Snapshot) (err error) {
		got, err = o.verify(ctx, s)
		return err
	})
	return got, err
}

// TestEqualsComputationFromScratch loads and changes documents while observers and services fail.
// Every text is paid for once.
func TestEqualsComputationFromScratch(t *testing.T) {
	t.Parallel()
	o := startOutside(t, embedder.Config{Latency: time.Millisecond, Rate: 200, Failures: 0.4})
	n := percolatortest.Start(t, o.register)
	for _, observer := range []string{"cut", "embed", "spread", "place", "export"} {
		n.Inject(t, percolatortest.Fault{Kind: percolatortest.CommitConflicts, Observer: observer, Times: 3})
	}
	all := files(t, "strings", "time")
	kept, gone, err := edit(all)
	if err != nil {
		t.Fatal(err)
	}
	step := func(what string, change func() error) {
		t.Helper()
		if err := change(); err != nil {
			t.Fatal(err)
		}
		n.RunUntilIdle(t)
		got, err := o.verifyNow(t, n.DB())
		if err != nil {
			t.Fatal(err)
		}
		bill := o.embedding.Bill()
		if t.Logf("%s: %v; %+v", what, got, bill); bill.Paid != bill.Distinct || bill.Paid < 100 {
			t.Errorf("%d texts paid for, %d distinct", bill.Paid, bill.Distinct)
		}
	}
	load := func(files []file) func() error {
		return func() error {
			_, err := load(t.Context(), n.DB(), files)
			return err
		}
	}
	step("load", load(all))
	step("change", load(kept))
	n.Crash(t)
	step("delete", func() (err error) {
		for _, path := range gone {
			err = errors.Join(err, remove(t.Context(), n.DB(), path))
		}
		return err
	})
	paid := o.embedding.Bill().Paid
	step("back", load(all))
	if now := o.embedding.Bill().Paid; now != paid {
		t.Errorf("%d texts that had been bought before were bought again", now-paid)
	}
	for _, observer := range []string{"cut", "embed", "spread", "place", "export"} {
		if parked := n.Parked(t, observer); len(parked) != 0 {
			t.Errorf("%s: parked: %v", observer, parked)
		}
	}
}

// TestVerifyFindsDifferences makes the index differ from the documents in each possible way.
func TestVerifyFindsDifferences(t *testing.T) {
	t.Parallel()
	o := startOutside(t, embedder.Config{})
	n := percolatortest.Start(t, o.register)
	n.Set(t, "a.go", documents.Column, "First paragraph.\n\nSecond paragraph.")
	n.RunUntilIdle(t)
	newest := uint64(1) << 63
	second := vectors.Entry{ID: "a.go#1", Text: "Second paragraph.", Vector: embedder.Embed("Second paragraph.")}
	set := func(change func(e *vectors.Entry)) {
		t.Helper()
		e := second
		change(&e)
		newest++
		e.Version = newest
		if err := o.indexing.Apply([]vectors.Change{{Entry: e, ReadAt: newest}}); err != nil {
			t.Fatal(err)
		}
	}
	for what, change := range map[string]func(e *vectors.Entry){
		"a missing entry":   func(e *vectors.Entry) { e.Gone = true },
		"another text":      func(e *vectors.Entry) { e.Text = "Other" },
		"another vector":    func(e *vectors.Entry) { e.Vector = embedder.Embed("Other") },
		"an entry too many": func(e *vectors.Entry) { e.ID = "a.go#2" },
	} {
		set(change)
		if _, err := o.verifyNow(t, n.DB()); !errors.Is(err, errDiffers) {
			t.Errorf("%s: %v", what, err)
		}
		set(func(e *vectors.Entry) { e.ID, e.Gone = "a.go#2", true })
		set(func(*vectors.Entry) {})
		if _, err := o.verifyNow(t, n.DB()); err != nil {
			t.Errorf("after %s: %v", what, err)
		}
	}
}

func TestPieces(t *testing.T) {
	t.Parallel()
	long := make([]byte, 2*maxPiece+10)
	for i := range long {
		long[i] = 'a'
	}
	for document, want := range map[string]int{
		"": 0, "\n\n \n\n": 0, "one": 1, "one\nparagraph\n\n\n\nand another": 2, string(long): 3,
	} {
		if got := pieces(document); len(got) != want {
			t.Errorf("%.20q is cut into %d pieces, want %d", document, len(got), want)
		}
	}
}
