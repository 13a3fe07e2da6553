package cluster

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/percolator-go/percolator/bench/turns"
)

// The operations.
const (
	put = "put"
	get = "get"
	rmw = "rmw"
	two = "two tablets"

	failOver    = "fail-over"
	failOverGet = "fail-over of reads"
)

// figures are the measurements of each workload and variant, one per round.
type figures map[measured][]turns.Figure

type measured struct {
	workload
	variant int
}

func (f figures) add(w workload, variant int, figure turns.Figure) {
	f[measured{w, variant}] = append(f[measured{w, variant}], figure)
}

// row is one line of the table of aims: a figure of a build over that of the baseline, which is
// etcd or, if own, another workload of the same build.
type row struct {
	title     string
	of, base  workload
	own       bool
	perSecond bool // rates; otherwise medians of latencies
	longest   bool // seconds of the longest latency, without a baseline
	aim       string
}

// rows returns the rows that were measured.
func (f figures) rows() (out []row) {
	var all []conditions
	for m := range f {
		if !slices.Contains(all, m.conditions) {
			all = append(all, m.conditions)
		}
	}
	slices.SortFunc(all, func(a, b conditions) int {
		return strings.Compare(workload{conditions: a}.String(), workload{conditions: b}.String())
	})
	for _, under := range all {
		for _, r := range []struct{ operation, one, many string }{
			{get, "≤ 0.8", "≥ 2"}, {put, "≤ 1.0", "≥ 1.3"}, {rmw, "≤ 0.8", "≥ 2"},
		} {
			one, many := workload{r.operation, 1, under}, workload{r.operation, 64, under}
			out = append(out,
				row{title: fmt.Sprintf("%v: p50 / etcd's", one), of: one, base: one, aim: r.one},
				row{title: fmt.Sprintf("%v: rate / etcd's", many), of: many, base: many, perSecond: true, aim: r.many})
		}
		both, one := workload{two, 1, under}, workload{put, 1, under}
		out = append(out, row{title: fmt.Sprintf("%v: p50 / one tablet's", both), of: both, base: one, own: true, aim: "≤ 1.5"})
		for _, name := range []string{failOver, failOverGet} {
			killed := workload{name, failOverCallers, under}
			out = append(out, row{
				title: fmt.Sprintf("%v: longest %s, s", killed, killing[name]), of: killed, longest: true, aim: "≤ 1.5",
			})
		}
	}
	return slices.DeleteFunc(out, func(r row) bool {
		base := r.base
		if r.longest {
			base = r.of
		}
		return len(f[measured{r.of, 0}]) == 0 || len(f[measured{base, 0}]) == 0
	})
}

// print prints, for each row and build, the median and the range of the rounds.
func (f figures) print(out io.Writer, variants []string) error {
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	_, _ = fmt.Fprint(w, "\nfigure\taim")
	for _, name := range variants {
		_, _ = fmt.Fprintf(w, "\t%s", name)
	}
	_, _ = fmt.Fprintln(w)
	for _, r := range f.rows() {
		_, _ = fmt.Fprintf(w, "%s\t%s", r.title, r.aim)
		for v := range variants {
			values := f.values(r, v)
			slices.Sort(values)
			if len(values) == 0 || v == 0 && !r.own && !r.longest {
				_, _ = fmt.Fprint(w, "\t")
				continue
			}
			_, _ = fmt.Fprintf(w, "\t%.2f (%.2f–%.2f)", values[len(values)/2], values[0], values[len(values)-1])
		}
		_, _ = fmt.Fprintln(w)
	}
	return w.Flush()
}

// values returns the row's value in each round.
func (f figures) values(r row, variant int) (out []float64) {
	base := variant
	if !r.own {
		base = 0
	}
	for i, figure := range f[measured{r.of, variant}] {
		if r.longest {
			out = append(out, figure.At(1).Seconds())
			continue
		}
		if i >= len(f[measured{r.base, base}]) {
			continue // the base of this round has failed
		}
		to := f[measured{r.base, base}][i]
		if r.perSecond {
			out = append(out, figure.PerSecond/to.PerSecond)
		} else {
			out = append(out, figure.At(0.5).Seconds()/to.At(0.5).Seconds())
		}
	}
	return out
}
