package batch

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/percolator-go/percolator/examples/webindex/page"
	"github.com/percolator-go/percolator/examples/webindex/schema"
)

// graph is a random graph with cycles, pages without links, targets without a page, and hubs.
func graph(rng *rand.Rand, n int) *computation {
	c := &computation{out: newIndex(), pages: map[string]page.Page{}}
	for i := range n {
		var links []page.Link
		seen := map[int]bool{i: true} // links to the page itself do not count
		for range rng.IntN(8) {
			target := rng.IntN(n + n/10)
			if rng.IntN(4) == 0 {
				target = rng.IntN(1 + n/50) // a hub
			}
			if !seen[target] {
				seen[target] = true
				links = append(links, page.Link{Target: strconv.Itoa(target)})
			}
		}
		c.pages[strconv.Itoa(i)] = page.Page{Links: links}
	}
	return c
}

// converged is PageRank with a damping of 1/2, in floating point, with many more rounds.
func converged(c *computation) map[string]float64 {
	now := map[string]float64{}
	for url := range c.ranks {
		now[url] = 1
	}
	for range 60 {
		next := map[string]float64{}
		for url := range now {
			next[url] = 0.5
		}
		for source, p := range c.pages {
			for _, l := range p.Links {
				next[l.Target] += 0.5 * now[source] / float64(len(p.Links))
			}
		}
		now = next
	}
	return now
}

// The rank is PageRank up to the rounding and the omitted rounds described in package schema.
func TestRankIsPageRank(t *testing.T) {
	digit := math.Pow(2, -schema.Digits)
	for seed := range uint64(30) {
		c := graph(rand.New(rand.NewPCG(seed, 5)), 20+int(seed)*30)
		c.rank()
		exact := converged(c)
		off, all := 0.0, 0.0
		for url, r := range c.ranks {
			off += math.Abs(float64(r)/1000 - exact[url])
			all += max(float64(r)/1000, exact[url])
			if r < schema.BaseRank {
				t.Errorf("seed %d: rank %d of %s", seed, r, url)
			}
		}
		// In addition each rank is rounded down to thousandths.
		bound := all*(3*1.2*digit+2*math.Pow(2, -schema.Rounds)) + float64(len(c.ranks))/1000
		if off > bound {
			t.Errorf("seed %d: off by %f of %f, bound %f", seed, off, all, bound)
		}
		if off > 0.05*all {
			t.Errorf("seed %d: off by %f of %f: far more than roundings that go either way", seed,
				off, all)
		}
	}
}

// Cycles, pages without links, and a page whose only link is to itself.
func TestRankSmall(t *testing.T) {
	link := func(to ...string) (s string) {
		for _, url := range to {
			s += fmt.Sprintf("<a href=%q>x</a>", url)
		}
		return s
	}
	x := compute(t, map[string]string{
		// each has rank 1
		"http://x/1.html": link("2.html"), "http://x/2.html": link("3.html"),
		"http://x/3.html":    link("1.html"),
		"http://x/self.html": link("self.html"),
		"http://x/in.html":   link("end.html"), "http://x/end.html": "",
		"http://x/pair.html":  link("pairs.html"),
		"http://x/pairs.html": link("pair.html", "gone.html"),
	})
	want := map[string]string{
		"http://x/1.html": "1000", "http://x/2.html": "1000", "http://x/3.html": "1000",
		"http://x/end.html": "750",
		// pair = 1/2 + pairs/4 and pairs = 1/2 + pair/2: 5/7 and 6/7 before rounding: 45/64 and
		// 27/32 are rounded down.
		"http://x/pair.html": "687", "http://x/pairs.html": "812", "http://x/gone.html": "687",
	}
	for url, rank := range want {
		if x.Ranks[url] != rank {
			t.Errorf("%s: %q, want %q", url, x.Ranks[url], rank)
		}
	}
	if len(x.Ranks) != len(want) {
		t.Errorf("%q", x.Ranks)
	}
}

func TestSignificant(t *testing.T) {
	for x, want := range map[float64]float64{0: 0, 1: 1, 15: 15, 16: 16, 17: 16, 18: 18, 19: 18,
		31: 30, 33: 32, 34: 32, 35: 36, 1000: 1024, 933: 896, 934: 960} {
		if got := significant(x); got != want {
			t.Errorf("%v: %v, want %v", x, got, want)
		}
	}
}
