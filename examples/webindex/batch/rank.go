package batch

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/percolator-go/percolator/examples/webindex/schema"
)

// one is a rank of 1 while it is computed: 20 binary digits are behind the point.
const one = 1 << 20

// rank computes all ranks, one round after the other over the whole graph; the observers instead
// compute one page at a time. All numbers are integers below 2^53, so that floating-point
// arithmetic on them is exact on every machine.
func (c *computation) rank() {
	now := map[string]float64{}
	for source, p := range c.pages {
		now[source] = one
		for _, l := range p.Links {
			now[l.Target] = one
		}
	}
	for range schema.Rounds {
		passed := make(map[string]float64, len(now))
		for source, p := range c.pages {
			if len(p.Links) == 0 {
				continue
			}
			share := significant(math.Floor(now[source] / float64(len(p.Links))))
			for _, l := range p.Links { // a page has each target once
				passed[l.Target] += share
			}
		}
		for url := range now {
			now[url] = significant(one/2 + math.Floor(passed[url]/2))
		}
	}
	c.ranks = make(map[string]int, len(now))
	for url, r := range now {
		c.ranks[url] = int(math.Floor(r * 1000 / one))
		if c.ranks[url] != schema.BaseRank {
			c.out.Ranks[url] = strconv.Itoa(c.ranks[url])
		}
	}
}

// significant rounds an integer to its leading schema.Digits binary digits; a fraction of 19/32 or
// more is rounded up.
func significant(x float64) float64 {
	fraction, exponent := math.Frexp(x)
	if exponent <= schema.Digits {
		return x
	}
	return math.Ldexp(math.Floor(math.Ldexp(fraction, schema.Digits)+13.0/32),
		exponent-schema.Digits)
}

// document builds the documents of the canonical pages with content.
func (c *computation) document() {
	rows := map[string][]string{} // canonical URL -> rows of anchors, in order
	for _, row := range slices.Sorted(maps.Keys(c.out.Anchors)) {
		canon := schema.Parts(row)[0]
		rows[canon] = append(rows[canon], row)
	}
	for hash, head := range c.out.Heads {
		sources, text := map[string]bool{}, strings.Builder{}
		for _, row := range rows[head] {
			sources[schema.Parts(row)[1]] = true
			text.WriteString(row + "\n" + c.out.Anchors[row] + "\n")
		}
		d := schema.Document{
			Hash: hash, Rank: c.ranks[head], Linking: len(sources),
			Anchors: fingerprint(text.String()),
		}
		c.out.Docs[head] = string(d.Encode())
	}
}
