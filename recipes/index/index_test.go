package index_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/percolatortest"
	"github.com/percolator-go/percolator/recipes/index"
)

var tags = percolator.Column{Table: "pages", Name: "tags"}

// byTag indexes a page under each word of its column "tags".
func byTag() *index.Index {
	return index.New(index.Config{
		Name: "by_tag", Column: tags,
		Keys: func(value []byte) ([]string, error) { return strings.Fields(string(value)), nil },
	})
}

func register(x *index.Index) func(*percolator.Registry) {
	return func(r *percolator.Registry) { x.Register(r) }
}

// Pages are found by their tags.
func Example() {
	x := byTag()
	tagged := func(ctx context.Context, db *percolator.DB, tag string) (pages []string, err error) {
		s, err := db.Snapshot(ctx)
		if err != nil {
			return nil, err
		}
		defer s.Close()
		for page, err := range x.Lookup(ctx, s, tag) {
			if err != nil {
				return nil, err
			}
			pages = append(pages, page)
		}
		return pages, nil
	}
	_, _ = register(x), tagged // register is what app.Main is given
}

// entries reads the index as text, "tag row".
func entries(t *testing.T, n *percolatortest.Node, x *index.Index) (all []string) {
	t.Helper()
	n.Transact(t, func(ctx context.Context, tx *percolator.Tx) error {
		all = nil
		for e, err := range x.All(ctx, tx) {
			if err != nil {
				return err
			}
			all = append(all, e.Key+" "+e.Row)
		}
		return nil
	})
	return all
}

// expected computes the same entries from the pages.
func expected(t *testing.T, n *percolatortest.Node) (all []string) {
	t.Helper()
	for row, text := range n.Column(t, tags) {
		for tag := range strings.FieldsSeq(text) {
			all = append(all, tag+" "+row)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// TestFollowsTheColumn changes pages at random under every fault of a run, and compares the index
// with the pages.
func TestFollowsTheColumn(t *testing.T) {
	for _, kind := range []percolatortest.Kind{
		percolatortest.CommitConflicts, percolatortest.CommitReplyLost, percolatortest.CommitUnknown,
		percolatortest.CommitLost, percolatortest.ClearLost, percolatortest.RunFails,
		percolatortest.RunPanics,
	} {
		t.Run(kind.String(), func(t *testing.T) {
			t.Parallel()
			x := byTag()
			n := percolatortest.Start(t, register(x), percolatortest.DuplicateHints())
			n.Inject(t, percolatortest.Fault{Kind: kind, Observer: "by_tag", Times: 4})
			random := rand.New(rand.NewPCG(1, uint64(kind)))
			for i := range 150 {
				row := fmt.Sprint("page", random.IntN(12))
				if random.IntN(6) == 0 {
					n.Delete(t, row, tags)
				} else {
					n.Set(t, row, tags, fmt.Sprintf("t%d t%d t%d", random.IntN(5), random.IntN(5), i%3))
				}
				if i == 75 {
					n.Crash(t)
				}
			}
			n.RunUntilIdle(t)
			if got, want := entries(t, n, x), expected(t, n); !slices.Equal(got, want) {
				t.Errorf("the index has\n%q, want\n%q", got, want)
			}
		})
	}
}

// TestUpdateAtOnce updates the index in the transaction that writes the column: no snapshot has one
// without the other, and the observer's run changes nothing.
func TestUpdateAtOnce(t *testing.T) {
	t.Parallel()
	x := byTag()
	n := percolatortest.Start(t, register(x))
	for _, text := range []string{"red green", "green blue green"} {
		n.Transact(t, func(ctx context.Context, tx *percolator.Tx) error {
			tx.Set("p", tags, []byte(text))
			if err := x.Update(ctx, tx, "p"); err != nil {
				return err
			}
			var found []string
			for page, err := range x.Lookup(ctx, tx, "green") {
				if err != nil {
					return err
				}
				found = append(found, page)
			}
			if !slices.Equal(found, []string{"p"}) {
				return errors.New("not found in the transaction")
			}
			return nil
		})
		n.RunUntilIdle(t)
		if got, want := entries(t, n, x), expected(t, n); !slices.Equal(got, want) {
			t.Errorf("the index has %q, want %q", got, want)
		}
	}
}

// BenchmarkUpdate changes the tags of rows one after another, 16 at a time.
func BenchmarkUpdate(b *testing.B) {
	x := byTag()
	n := percolatortest.Start(b, register(x))
	b.SetParallelism(8)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			i := rand.IntN(10000)
			n.Transact(b, func(_ context.Context, tx *percolator.Tx) error {
				tx.Set(fmt.Sprint("page", i), tags, fmt.Appendf(nil, "t%d t%d", i%7, rand.IntN(100)))
				return nil
			})
		}
	})
	n.RunUntilIdle(b)
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "per/s")
}
