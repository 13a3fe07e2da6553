package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

// ratio compares two kinds. at is the number of callers of the denominator; 0 means that of the
// numerator. target is the intended ratio with 64 callers; 0 means none.
type ratio struct {
	above, below string
	at           int
	target       float64
}

var ratios = []ratio{
	{above: readTxn, below: rawGet, target: 0.95},
	{above: onePhase, below: rawPut, target: 0.5},
	{above: twoPhase, below: rawPut, target: 0.25},
	{above: readTxn, below: badgerGet},
	{above: onePhase, below: badgerGrouped},
	{above: twoPhase, below: badgerGrouped},
	{above: onePhase, below: badgerUpdate, at: 64},
	{above: twoPhase, below: badgerUpdate, at: 64},
	{above: rawPut, below: badgerGrouped},
	{above: rawGet, below: badgerGet},
}

// report prints the best figures, and the median of the rounds' ratios.
func report(out io.Writer, o options, r results) error {
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintf(w, "sync delay %v, %v each, best of %d\n\n", o.syncDelay, o.duration,
		o.rounds)
	_, _ = fmt.Fprintln(w, "kind\tcallers\t/s\tp50\tp99\tp99.9\tlongest\tCPU µs/op\tops/batch\tops/sync\t")
	for _, k := range kinds() {
		for _, callers := range o.callers {
			f, ok := r.best(k.name, callers)
			if !ok {
				continue
			}
			_, _ = fmt.Fprintf(w, "%s\t%d\t%.0f\t%v\t%v\t%v\t%v\t%.1f\t%.1f\t%.1f\t\n", k.name,
				callers, f.PerSecond,
				f.At(0.5).Round(precision), f.At(0.99).Round(precision), f.At(0.999).Round(precision),
				f.At(1).Round(precision), f.cpuMicros(), f.tablet, f.synced)
		}
	}
	_, _ = fmt.Fprintln(w, "\nratio, in the same round\tcallers\tmedian\tlowest\thighest\ttarget\t")
	for _, q := range ratios {
		for _, callers := range o.callers {
			q.line(w, r, callers)
		}
	}
	return w.Flush()
}

func (q ratio) line(w io.Writer, r results, callers int) {
	below := callers
	if q.at != 0 {
		below = q.at
	}
	a, b := r[q.above][callers], r[q.below][below]
	var values []float64
	for i := range min(len(a), len(b)) {
		values = append(values, a[i].PerSecond/b[i].PerSecond)
	}
	if len(values) == 0 {
		return
	}
	slices.Sort(values)
	target := ""
	if q.target > 0 && callers == 64 {
		target = fmt.Sprintf("%.2f", q.target)
	}
	_, _ = fmt.Fprintf(w, "%s / %s\t%d\t%.2f\t%.2f\t%.2f\t%s\t\n", q.above, q.below, callers,
		values[len(values)/2], values[0], values[len(values)-1], target)
}
