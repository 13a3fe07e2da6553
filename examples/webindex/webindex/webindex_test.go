package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"testing"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/examples/webindex/corpus"
	"github.com/percolator-go/percolator/examples/webindex/schema"
)

// samples holds parts of the corpus shared by all tests: rendering one takes longer than most
// tests. No test changes one.
var samples = struct {
	sync.Mutex
	dir  string
	made map[int]bool
}{made: map[int]bool{}}

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
		return
	}
	dir, err := os.MkdirTemp("", "webindex-test")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	samples.dir = dir
	code := m.Run()
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

// sample returns a part of the corpus: one page in n of its documentation.
func sample(t *testing.T, n int) string {
	t.Helper()
	samples.Lock()
	defer samples.Unlock()
	dir := filepath.Join(samples.dir, fmt.Sprint(n))
	if !samples.made[n] {
		if err := corpus.Sample(t.Context(), dir, n); err != nil {
			t.Fatal(err)
		}
		samples.made[n] = true
	}
	return dir
}

func logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// opened returns the application on a node that is closed when the test ends.
func opened(t *testing.T, o options) *application {
	t.Helper()
	a := &application{options: o}
	if err := a.open(t.Context(), logger()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		if err := errors.Join(a.node.Close(ctx), a.export.Close()); err != nil {
			t.Error(err)
		}
	})
	return a
}

// The whole example on a part of its corpus: load, verify, edit, verify; then the same in the same
// directory, and again with fewer pages.
func TestWebindex(t *testing.T) {
	o := options{
		pages: sample(t, 200), dir: filepath.Join(t.TempDir(), "node"), exit: true, verify: true,
		quiet: true, edit: 0.05, seed: 1,
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

// Loading unchanged pages writes nothing and runs no observer.
func TestLoadAgain(t *testing.T) {
	a := opened(t, options{
		pages: sample(t, 200), dir: filepath.Join(t.TempDir(), "node"), exit: true, quiet: true,
		limit: 50,
	})
	if err := a.crawl(t.Context(), a.pages); err != nil {
		t.Fatal(err)
	}
	before := a.runs()
	again := loader{application: a, dir: a.pages}
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

// corruptCell changes the first cell of the column accepted by wrong, as a faulty observer would.
func corruptCell(t *testing.T, db *percolator.DB, col percolator.Column,
	wrong func(tx *percolator.Tx, c percolator.Cell) bool) {
	t.Helper()
	err := db.Transact(t.Context(), func(ctx context.Context, tx *percolator.Tx) error {
		for c, err := range tx.Scan(ctx, percolator.Rows(col.Table), col) {
			if err != nil || wrong(tx, c) {
				return err
			}
		}
		return errors.New("no cell to corrupt")
	})
	if err != nil {
		t.Fatal(err)
	}
}

// The verifier finds any single wrong cell.
func TestVerifyFinds(t *testing.T) {
	a := opened(t, options{
		pages: sample(t, 200), dir: filepath.Join(t.TempDir(), "node"), exit: true, quiet: true,
	})
	if err := errors.Join(a.crawl(t.Context(), a.pages),
		a.check(t.Context(), a.pages)); err != nil {
		t.Fatal(err)
	}
	set := func(value func(percolator.Cell) string) func(*percolator.Tx, percolator.Cell) bool {
		return func(tx *percolator.Tx, c percolator.Cell) bool {
			tx.Set(c.Row, c.Column, []byte(value(c)))
			return true
		}
	}
	for name, fault := range map[string]struct {
		col   percolator.Column
		wrong func(*percolator.Tx, percolator.Cell) bool
	}{
		"anchor": {schema.Anchor(), set(func(c percolator.Cell) string {
			return string(c.Value) + "!"
		})},
		"rank": {schema.Pages(schema.Rank), set(func(percolator.Cell) string { return "1" })},
		"doc": {schema.Pages(schema.Doc), set(func(percolator.Cell) string {
			return "x 1 1 x"
		})},
		"canonical": {schema.Pages(schema.Canon), set(func(c percolator.Cell) string {
			return c.Row
		})},
		"cluster": {schema.Clusters(schema.Canonical), set(func(percolator.Cell) string {
			return "http://go.example/no.html"
		})},
		"forwarded anchor": {schema.Anchor(), func(tx *percolator.Tx, c percolator.Cell) bool {
			canon, target := schema.Parts(c.Row)[0], schema.Parts(c.Row)[2]
			if canon == target {
				return false
			}
			tx.Delete(c.Row, c.Column)
			return true
		}},
		"anchor that was not forwarded": {schema.Anchor(),
			func(tx *percolator.Tx, c percolator.Cell) bool {
				parts := schema.Parts(c.Row)
				if parts[0] == parts[2] {
					return false
				}
				tx.Delete(c.Row, c.Column)
				tx.Set(schema.Row(parts[2], parts[1], parts[2]), c.Column, c.Value)
				return true
			}},
	} {
		t.Run(name, func(t *testing.T) {
			var before percolator.Cell
			corruptCell(t, a.db, fault.col, func(tx *percolator.Tx, c percolator.Cell) bool {
				before = c
				return fault.wrong(tx, c)
			})
			if err := a.check(t.Context(), a.pages); !errors.Is(err, errDifferent) {
				t.Errorf("%v of %s was spoilt and not found: %v", fault.col, before.Row, err)
			}
			corruptCell(t, a.db, schema.Pages(schema.Content),
				func(tx *percolator.Tx, _ percolator.Cell) bool {
					parts := schema.Parts(before.Row)
					if len(parts) == 3 {
						tx.Delete(schema.Row(parts[2], parts[1], parts[2]), before.Column)
					}
					tx.Set(before.Row, before.Column, before.Value)
					return true
				})
			if err := errors.Join(a.db.WaitIdle(t.Context()),
				a.check(t.Context(), a.pages)); err != nil {
				t.Fatalf("after it was mended: %v", err)
			}
		})
	}
}

// Editing some pages costs little compared with ranking all of them: a change below one digit does
// not propagate (§1).
func TestEditRanksLittle(t *testing.T) {
	a := opened(t, options{
		pages: sample(t, 40), dir: filepath.Join(t.TempDir(), "node"), exit: true, quiet: true,
		verify: true, edit: 0.01, seed: 1,
	})
	if err := a.index(t.Context()); err != nil {
		t.Fatal(err)
	}
	if a.last.ranked == 0 || a.last.changed == 0 || a.last.ranked*10 >= a.initial {
		t.Errorf("rank ran %d times for %d edited pages, %d times for all", a.last.ranked,
			a.last.changed, a.initial)
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
			t.Errorf("%q was mistaken for %v", text, s)
		}
	}
}

// Pages that share one place, a cluster of duplicates and a page that all others link to, do not
// make each other run repeatedly (§2.4).
func TestHotSpots(t *testing.T) {
	const n = 300
	dir := t.TempDir()
	write := func(name, html string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "h.example", name), []byte(html),
			0o644); err != nil {
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
			`<title>Link %d</title><a href="hub.html">hub %d</a><a href="copy%03d.html">copy</a>`,
			i, i, i%7+100))
	}
	a := opened(t, options{
		pages: dir, dir: filepath.Join(t.TempDir(), "node"), exit: true, quiet: true, verify: true,
	})
	if err := a.crawl(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	all := a.runs()
	for _, o := range all {
		if o.conflicts > o.commits/2+workers {
			t.Errorf("%s: %d conflicts, %d commits", o.name, o.conflicts, o.commits)
		}
		t.Logf("%s: %d", o.name, o.commits)
		// The rank share of each page is computed once; hot spots add little to it.
		if o.name == "elect" && o.commits > n || o.name == "rank" && o.commits > 2*n {
			t.Errorf("%s ran %d times for a few hot spots: its notifications do not collapse",
				o.name, o.commits)
		}
	}
}

// TestLimitGarbage: the command collects garbage earlier than Go's default unless it is configured
// otherwise.
func TestLimitGarbage(t *testing.T) {
	const asked = 123
	before := debug.SetGCPercent(asked)
	defer debug.SetGCPercent(before)
	t.Setenv("GOGC", "123")
	limitGarbage()
	if got := debug.SetGCPercent(asked); got != asked {
		t.Errorf("GOGC=%d becomes %d", asked, got)
	}
	t.Setenv("GOGC", "")
	if err := start(t.Context(), options{corpus: "/nonexistent"}); err == nil {
		t.Error("there is a corpus that does not exist")
	}
	if got := debug.SetGCPercent(asked); got != gcPercent {
		t.Errorf("the command runs at GOGC=%d, want %d", got, gcPercent)
	}
}
