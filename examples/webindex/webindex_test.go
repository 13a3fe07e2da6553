package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/examples/webindex/corpus"
	"github.com/percolator-go/percolator/examples/webindex/schema"
)

func sample(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "pages")
	if err := corpus.Sample(t.Context(), dir, 200); err != nil {
		t.Fatal(err)
	}
	return dir
}

func logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// opened is the app on a node that is closed when the test ends.
func opened(t *testing.T, o options) *app {
	t.Helper()
	a := &app{options: o}
	if err := a.open(t.Context(), logger()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		if err := a.node.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return a
}

// The whole example on a part of its corpus: load, verify, edit, verify; then all of it again in the same directory, and
// again with fewer pages.
func TestWebindex(t *testing.T) {
	o := options{
		pages: sample(t), dir: filepath.Join(t.TempDir(), "node"), exit: true, verify: true, quiet: true, edit: 0.05, seed: 1,
	}
	for range 2 {
		if err := run(t.Context(), o, logger()); err != nil {
			t.Fatal(err)
		}
	}
	o.limit, o.edit = 100, 0
	if err := run(t.Context(), o, logger()); err != nil {
		t.Fatal(err)
	}
}

// Loading what is loaded already writes nothing and wakes nobody.
func TestLoadAgain(t *testing.T) {
	a := opened(t, options{pages: sample(t), dir: filepath.Join(t.TempDir(), "node"), exit: true, quiet: true, limit: 50})
	if err := a.crawl(t.Context(), a.pages); err != nil {
		t.Fatal(err)
	}
	before := a.runs()
	again := loader{app: a, dir: a.pages}
	if err := errors.Join(again.load(t.Context()), a.db.WaitIdle(t.Context())); err != nil {
		t.Fatal(err)
	}
	if c := again.counts(); c != (changes{unchanged: 50}) {
		t.Errorf("%+v", c)
	}
	after := a.runs()
	for _, o := range since(before, after) {
		if o.runs != 0 {
			t.Errorf("%s ran %d times", o.name, o.runs)
		}
	}
}

// A single changed anchor is found by the verifier.
func TestVerifyFinds(t *testing.T) {
	a := opened(t, options{pages: sample(t), dir: filepath.Join(t.TempDir(), "node"), exit: true, quiet: true, limit: 300})
	if err := errors.Join(a.crawl(t.Context(), a.pages), a.check(t.Context(), a.pages)); err != nil {
		t.Fatal(err)
	}
	err := a.db.Transact(t.Context(), func(ctx context.Context, tx *percolator.Tx) error {
		for c, err := range tx.Scan(ctx, percolator.Rows(schema.TableAnchors).Limit(1), schema.Anchor()) {
			if err != nil {
				return err
			}
			tx.Set(c.Row, c.Column, append(c.Value, '!'))
			return nil
		}
		return errors.New("no anchors")
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.check(t.Context(), a.pages); !errors.Is(err, errDifferent) {
		t.Errorf("a changed anchor was not found: %v", err)
	}
}

func TestShare(t *testing.T) {
	for text, want := range map[string]share{"1%": 0.01, "0.5": 0.5, "100%": 1, "0": 0} {
		var s share
		if err := s.Set(text); err != nil || s != want {
			t.Errorf("%s: %v, %v", text, s, err)
		}
	}
	for _, text := range []string{"", "x", "101%", "-1", "NaN"} {
		var s share
		if s.Set(text) == nil {
			t.Errorf("%q was taken for %v", text, s)
		}
	}
}

// Pages that all meet in one place, a cluster of duplicates and a page that everybody links to, do not make each other
// run again and again (§2.4).
func TestHotSpots(t *testing.T) {
	const n = 300
	dir := t.TempDir()
	write := func(name, html string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "h.example", name), []byte(html), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "h.example"), 0o755); err != nil {
		t.Fatal(err)
	}
	write("hub.html", "<title>Hub</title>")
	for i := range n {
		write(fmt.Sprintf("copy%03d.html", i), "<title>The same</title>")
		write(fmt.Sprintf("link%03d.html", i), fmt.Sprintf(
			`<title>Link %d</title><a href="hub.html">hub %d</a><a href="copy%03d.html">copy</a>`, i, i, i%7+100))
	}
	a := opened(t, options{pages: dir, dir: filepath.Join(t.TempDir(), "node"), exit: true, quiet: true, verify: true})
	if err := a.crawl(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	all := a.runs()
	for _, o := range all {
		if o.conflicts > o.commits/2+workers {
			t.Errorf("%s: %d conflicts, %d commits", o.name, o.conflicts, o.commits)
		}
		if (o.name == "elect" || o.name == "rank") && o.commits > n {
			t.Errorf("%s ran %d times for a few hot spots: its notifications do not collapse", o.name, o.commits)
		}
	}
}
