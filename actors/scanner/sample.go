package scanner

import (
	"math/rand/v2"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/notify"
)

const (
	sampleRows = 16   // rows that a scanner remembers of a place
	maxSamples = 1024 // places that a scanner remembers
)

// place is the notify entries of one observer in one tablet.
type place struct {
	tablet uint64
	target notify.Target
}

// sample is a uniform sample of the dirty rows found in a place (reservoir sampling). Its rows
// may be clean by now; a walk from there finds the next dirty one.
type sample struct {
	rows []string
	seen int
	// rest is the row at which the last walk ended early, if hasRest.
	rest    string
	hasRest bool
}

func (s *sample) add(rng *rand.Rand, row string) {
	s.seen++
	if len(s.rows) < sampleRows {
		s.rows = append(s.rows, row)
		return
	}
	if i := rng.IntN(s.seen); i < sampleRows {
		s.rows[i] = row
	}
	// Forget slowly, so that the sample follows the dirty rows as they come and go.
	if s.seen > 64*sampleRows {
		s.seen = 32 * sampleRows
	}
}

// cut records the position of a walk when the turn's requests were used up.
func (s *sample) cut(from string, after *pb.Cell) {
	s.rest, s.hasRest = from, true
	if after != nil {
		s.rest = string(after.GetRow())
	}
}

// start returns the row where a walk of more than a page begins, as doc.go describes.
func (s *sample) start(rng *rand.Rand, span mvcc.Span) string {
	if s.hasRest && rng.IntN(2) == 0 {
		s.hasRest = false
		if span.Contains(s.rest) {
			return s.rest
		}
	}
	if len(s.rows) > 0 && rng.IntN(4) != 0 {
		if row := s.rows[rng.IntN(len(s.rows))]; span.Contains(row) {
			return row
		}
	}
	return between(rng, span)
}

// between returns a random row of the span: the common prefix of its ends, and then eight
// random bytes between them as numbers.
func between(rng *rand.Rand, span mvcc.Span) string {
	n := 0
	if span.HasEnd {
		for n < len(span.Start) && n < len(span.End) && span.Start[n] == span.End[n] {
			n++
		}
	}
	lo, hi := number(span.Start, n), ^uint64(0)
	if span.HasEnd {
		hi = number(span.End, n)
	}
	at := lo
	if hi > lo {
		at += rng.Uint64N(hi - lo)
	}
	row := span.Start[:n]
	for shift := 56; shift >= 0; shift -= 8 {
		row += string([]byte{byte(at >> shift)})
	}
	if !span.Contains(row) { // rounding at the edges
		return span.Start
	}
	return row
}

// number returns the eight bytes of row from position at, padded with zeros, as a number.
func number(row string, at int) uint64 {
	var v uint64
	for i := range 8 {
		b := byte(0)
		if at+i < len(row) {
			b = row[at+i]
		}
		v = v<<8 | uint64(b)
	}
	return v
}
