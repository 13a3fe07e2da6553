package scanner

import (
	"context"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/wire"
)

// This file walks places (a place is one observer's notify entries in one tablet) from random keys,
// as the paper's scanners do (§2.4): where the order in which cells became dirty is not known, and
// for cells that the order may lack. It runs on the scanners' goroutines.

// anywhere walks one place from a random key to its end, and then from its beginning to that
// key. first is the place's first page of dirty cells, in the order of the rows.
func (s *scan) anywhere(ctx context.Context, p *spot, first *pb.WalkResponse) verdict {
	entries := first.Entries
	if len(entries) == 0 {
		return goOn
	}
	if first.Done {
		n := s.rng.IntN(len(entries))
		if v := s.offer(ctx, entries[n:]); v != goOn {
			return v
		}
		return s.offer(ctx, entries[:n])
	}
	known := s.sample(p.place)
	from := known.start(s.rng, p.span)
	if v := s.rows(ctx, p, from, nil); v != goOn {
		return v
	}
	return s.rows(ctx, p, p.span.Start, &from)
}

// rows walks the rows from the given one to until, or to the end.
func (s *scan) rows(ctx context.Context, p *spot, from string, until *string) verdict {
	var after *pb.Cell
	for {
		entries, done, v := s.page(ctx, p, from, after)
		if v == stop {
			s.sample(p.place).cut(from, after)
		}
		if v != goOn {
			return v
		}
		for i, e := range entries {
			if until != nil && wire.String(e.GetCell().GetRow()) >= *until {
				entries, done = entries[:i], true
				break
			}
		}
		sample := s.sample(p.place)
		for _, e := range entries {
			sample.add(s.rng, string(e.GetCell().GetRow()))
		}
		if v := s.offer(ctx, entries); v != goOn || done {
			return v
		}
		after = entries[len(entries)-1].GetCell()
	}
}

// sample returns the sample of a place, an empty one at first. Before the scanner makes one more
// than maxSamples, it forgets all.
func (s *scan) sample(p place) *sample {
	if got, ok := s.samples[p]; ok {
		return got
	}
	if len(s.samples) >= maxSamples {
		clear(s.samples)
	}
	fresh := &sample{}
	s.samples[p] = fresh
	return fresh
}
