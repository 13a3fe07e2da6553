package batch

import (
	"context"
	"fmt"
	"strings"

	percolator "github.com/percolator-go/percolator"
)

// Result is the outcome of a comparison.
type Result struct {
	Pages, Clusters, Links int // as computed from the files
	Differences            int
	First                  []Difference // the first differences
}

// Verify computes the index of the first limit pages below dir (0 means all), reads the index in
// the database, and compares the two. It returns at most show differences. An error means that the
// comparison could not be made.
func Verify(ctx context.Context, dir string, limit int, r percolator.Reader,
	show int) (Result, error) {
	want, err := Files(dir, limit)
	if err != nil {
		return Result{}, err
	}
	have, err := Read(ctx, FromReader(r))
	if err != nil {
		return Result{}, err
	}
	res := Result{Pages: len(want.Pages), Clusters: want.Clusters(), Links: len(want.Anchors)}
	res.Differences, res.First = Diff(want, have, show)
	return res, nil
}

// String returns the counts, then one line per difference.
func (r Result) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "verify: %d pages, %d clusters, %d links computed from the files: %d differences",
		r.Pages, r.Clusters, r.Links, r.Differences)
	for _, d := range r.First {
		b.WriteString("\n  " + d.String())
	}
	if more := r.Differences - len(r.First); more > 0 {
		fmt.Fprintf(&b, "\n  and %d more", more)
	}
	return b.String()
}
