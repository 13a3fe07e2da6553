package index

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/percolator-go/percolator/examples/webindex/batch"
	"github.com/percolator-go/percolator/examples/webindex/schema"
)

var (
	webs  = flag.Uint64("webs", 0, "random webs to try; 0: a number that takes some seconds")
	first = flag.Uint64("first", 0, "seed of the first random web")
)

// web is a small random web and its random edits.
type web struct {
	rng    *rand.Rand
	urls   []string
	bodies []string // few, so that there are duplicates
	pages  map[string]string
}

// newWeb creates webs of several sizes: the smaller ones, with one or two different contents,
// collide more often.
func newWeb(seed uint64) *web {
	w := &web{rng: rand.New(rand.NewPCG(seed, 2)), pages: map[string]string{}}
	urls, bodies := 3+w.rng.IntN(6), 2+w.rng.IntN(4)
	if seed%2 == 0 {
		urls, bodies = 2+w.rng.IntN(3), 1+w.rng.IntN(2)
	}
	for i := range urls {
		w.urls = append(w.urls, fmt.Sprintf("http://%c.example/%d.html", 'a'+i%2, i/2))
	}
	for range bodies {
		w.bodies = append(w.bodies, w.body())
	}
	return w
}

func (w *web) url() string { return w.urls[w.rng.IntN(len(w.urls))] }

func (w *web) body() string {
	var b strings.Builder
	fmt.Fprintf(&b, "<title>t%d</title>", w.rng.IntN(3))
	for range w.rng.IntN(4) {
		fmt.Fprintf(&b, "<a href=%q>a%d</a>", w.url(), w.rng.IntN(3))
	}
	return b.String()
}

// edit changes, adds or removes a page and returns its URL.
func (w *web) edit() string {
	url := w.url()
	switch n := w.rng.IntN(10); {
	case n < 5:
		w.pages[url] = w.bodies[w.rng.IntN(len(w.bodies))]
	case n < 6 && w.rng.IntN(2) == 0:
		w.pages[url] = w.body()
	case n < 8:
		w.pages[url] = `<meta http-equiv="refresh" content="0; url=` + w.url() + `">`
	default:
		delete(w.pages, url)
	}
	return url
}

// check compares the index with the batch program's.
func check(s *sim, pages map[string]string) (int, []batch.Difference, error) {
	want, err := batch.Compute(func(yield func(batch.Raw, error) bool) {
		for url, html := range pages {
			if !yield(batch.Raw{URL: url, HTML: []byte(html)}, nil) {
				return
			}
		}
	})
	if err != nil {
		return 0, nil, err
	}
	have, err := batch.Read(context.Background(), s.source)
	if err != nil {
		return 0, nil, err
	}
	n, first := batch.Diff(want, have, 20)
	return n, first, nil
}

// play edits a random web while observers run in random order and concurrency, waits until all
// changes are processed, compares, and repeats; finally it removes all pages.
func play(seed uint64, batched bool) (*sim, error) {
	w, s := newWeb(seed), newSim(seed)
	if batched {
		s.batches = rand.New(rand.NewPCG(seed, 3))
	}
	width := 1 + w.rng.IntN(8)
	drain := func() error {
		for steps := 0; ; steps++ {
			idle, err := s.step(width)
			if err != nil {
				return err
			}
			if idle {
				break
			}
			if steps > 20000 {
				return fmt.Errorf("no end of runs: %v", s.runs)
			}
		}
		n, first, err := check(s, w.pages)
		if err == nil && n > 0 {
			err = fmt.Errorf("%d differences: %v", n, first)
		}
		return err
	}
	for range 3 {
		for range 1 + w.rng.IntN(12) {
			url := w.edit()
			s.load(url, []byte(w.pages[url]))
			for range w.rng.IntN(12) {
				if _, err := s.step(width); err != nil {
					return s, err
				}
			}
		}
		if err := drain(); err != nil {
			return s, err
		}
	}
	for url := range w.pages {
		s.load(url, nil)
	}
	clear(w.pages)
	if err := drain(); err != nil {
		return s, err
	}
	return s, s.residue()
}

// residue reports cells that remain although there are no pages.
func (s *sim) residue() error {
	for key := range s.cells {
		if v, there := s.at(key, s.clock); there && key.Column != schema.Clusters(schema.Many) {
			return fmt.Errorf("left over: %v = %q", key, v.value)
		}
	}
	return nil
}

// For any order and concurrency of loads and runs, of one row or several each, the index equals the
// batch program's.
func TestRandomWebs(t *testing.T) {
	n := *webs
	if n == 0 {
		n = 1000
	}
	// each has found a mistake, or catches one when a safeguard is removed
	seeds := []uint64{
		26, 144, 1201, 3856, 5857, 6138, 11217, 320, 2085,
	}
	for seed := *first; seed < *first+n; seed++ {
		seeds = append(seeds, seed)
	}
	runs, conflicts := 0, 0
	for i := range 2 * len(seeds) {
		seed, batched := seeds[i/2], i%2 == 1
		s, err := play(seed, batched)
		if err != nil {
			t.Fatalf("seed %d, in batches %t: %v", seed, batched, err)
		}
		for _, count := range s.runs {
			runs += count
		}
		conflicts += s.conflicts
	}
	t.Logf("%d webs, %d runs, %d conflicts", n, runs, conflicts)
	if conflicts == 0 {
		t.Error("nothing ever conflicted: the test shows nothing")
	}
}
