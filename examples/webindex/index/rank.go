package index

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/bits"
	"strconv"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/examples/webindex/schema"
)

// unit is a rank of 1 in the arithmetic of package schema.
const unit = 1 << 20

// errShare reports that a cell of the column share has a value that no run of rank has written.
var errShare = errors.New("index: not a share")

// scores has one element per round: a URL's rank after the round, or the share of it that each
// target receives.
type scores [schema.Rounds + 1]uint64

// round rounds to the leading schema.Digits binary digits. Shares are rounded too, so that small
// changes do not propagate.
func round(x uint64) uint64 {
	n := bits.Len64(x) - schema.Digits
	if n <= 0 {
		return x
	}
	return (x + 13<<n>>5) >> n << n // rounded up from 19/32 of a step on
}

// after returns the ranks, after each round, of a URL that receives the shares.
func after(passed scores) (r scores) {
	r[0] = unit
	for k := 1; k < len(r); k++ {
		r[k] = round(unit/2 + passed[k-1]/2)
	}
	return r
}

// share returns the share that each of n targets receives from a URL with these ranks.
func (r scores) share(n int) (s scores) {
	for k := range s {
		s[k] = round(r[k] / uint64(n))
	}
	return s
}

// encodeShare encodes the value of the column share: one number per round.
func encodeShare(s scores) []byte {
	var b []byte
	for _, x := range s[:schema.Rounds] { // after the last round nothing is passed on
		b = strconv.AppendUint(append(b, ' '), x, 10)
	}
	return b[1:]
}

// addShare adds the share received from a source.
func (r *scores) addShare(value []byte) error {
	parts := schema.Parts(string(value))
	if len(parts) != schema.Rounds {
		return fmt.Errorf("%w: %q", errShare, value)
	}
	for k, text := range parts {
		x, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return fmt.Errorf("%w: %q", errShare, value)
		}
		r[k] += x
	}
	return nil
}

// rank runs when the set of pages that link here, the share of one of them, or the number of the
// page's targets changed. It computes all rounds again from the current shares of the sources. It
// always writes share (rule 1).
//
// The targets depend on share. They are looked up in links by the same transaction,
// although rule 3 wants a later one: it would have to be one for every change. Instead
// process writes share as well when it changes the targets, so that the two conflict:
// targets that came before share changed are found here, and those that come afterwards
// read the new one.
func rank(ctx context.Context, t Tx, url string) error {
	old, err := row(ctx, t, url, schema.Pages(schema.Rank), schema.Pages(schema.Share),
		schema.Pages(schema.Out))
	if err != nil {
		return err
	}
	passed, err := inherited(ctx, t, url)
	if err != nil {
		return err
	}
	r := after(passed)
	value := ""
	if final := r.final(); final != schema.BaseRank {
		value = strconv.Itoa(final)
	}
	if put(t, old, url, schema.Pages(schema.Rank), []byte(value)) {
		// also if it is set already, to conflict with a concurrent publish, which deletes it
		t.Set(url, schema.Pages(schema.Moved), []byte{1})
		t.Notify(url, schema.Pages(schema.Publish))
	}
	var share []byte
	if out := string(old.get(url, schema.Pages(schema.Out))); out != "" {
		n, err := strconv.Atoi(out)
		if err != nil {
			return fmt.Errorf("index: %s of %s: %w", schema.Out, url, err)
		}
		share = encodeShare(r.share(n))
	}
	write(t, url, schema.Pages(schema.Share), share)
	if string(old.get(url, schema.Pages(schema.Share))) == string(share) {
		return nil
	}
	return pass(ctx, t, url)
}

// final returns the stored form of a rank, in thousandths.
func (r scores) final() int { return int(r[schema.Rounds] * 1000 / unit) }

// pass triggers the rank of all targets by weak notifications, because many changing pages link to
// popular ones (§2.4). They are committed with the change of share; a page has a bounded number of
// targets.
func pass(ctx context.Context, t Tx, url string) error {
	v, err := row(ctx, t, url, schema.Pages(schema.Links))
	if err != nil {
		return err
	}
	for _, l := range schema.DecodeLinks(v.get(url, schema.Pages(schema.Links))) {
		t.Notify(l.Target, schema.Pages(schema.Rerank))
	}
	return nil
}

// inherited returns the sum of the shares of all pages that link to the URL.
func inherited(ctx context.Context, t Tx, url string) (sum scores, err error) {
	sources := second(t.Prefix(ctx, schema.Prefix(url), schema.LinkFrom()))
	err = lookup(ctx, t, sources, schema.Pages(schema.Share), func(_ string, value []byte) error {
		return sum.addShare(value)
	})
	return sum, err
}

// lookup reads one column of many rows, a few hundred per request, and calls do with the row and
// the value of each existing cell.
func lookup(ctx context.Context, t Tx, rows iter.Seq2[string, error], col percolator.Column,
	do func(row string, value []byte) error) error {
	var keys []percolator.CellKey
	flush := func() error {
		if len(keys) == 0 {
			return nil
		}
		cells, err := t.GetMulti(ctx, keys...)
		if err != nil {
			return err
		}
		for _, c := range cells {
			if err := do(c.Row, c.Value); err != nil {
				return err
			}
		}
		keys = keys[:0]
		return nil
	}
	for row, err := range rows {
		if err != nil {
			return err
		}
		if keys = append(keys, percolator.CellKey{Row: row, Column: col}); len(keys) == chunk {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return flush()
}
