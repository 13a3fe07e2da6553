package turns

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"text/tabwriter"
)

// Plan measures workloads with each of several variants, round after round: what is compared is
// measured within the same minutes.
type Plan struct {
	Workloads []string
	Variants  []string // such as builds; the first is the baseline of ratios
	Columns   []string // of a measurement, with units; ratios are of the first
	Rounds    int
	// Measure measures a workload with a variant, by their indices, and returns a value per column.
	Measure func(ctx context.Context, workload, variant int) ([]float64, error)
}

// Flags defines the flags -rounds, which defaults to rounds, and -only, which selects workloads.
func (p *Plan) Flags(rounds int) (only *string) {
	flag.IntVar(&p.Rounds, "rounds", rounds, "number of measurements of each kind, in turns")
	return flag.String("only", "", "measure only the workloads whose name contains this")
}

// Run prints each measurement, then a table of the medians with the lowest, highest and median
// ratio of a variant to the baseline in the same round.
func (p Plan) Run(ctx context.Context, out io.Writer) error {
	if p.Rounds < 1 || len(p.Workloads) == 0 {
		return errors.New("-rounds must be at least 1, and -only must select a workload")
	}
	type cell struct{ workload, variant int }
	all := map[cell][][]float64{}
	for round := range p.Rounds {
		// In another order each time, so that periodic work does not always hit the same workload.
		for _, w := range rand.Perm(len(p.Workloads)) {
			for v := range p.Variants {
				row, err := p.Measure(ctx, w, v)
				if err != nil {
					return fmt.Errorf("%s, %s: %w", p.Workloads[w], p.Variants[v], err)
				}
				all[cell{w, v}] = append(all[cell{w, v}], row)
				_, _ = fmt.Fprintf(out, "round %d, %s, %s:", round+1, p.Workloads[w], p.Variants[v])
				for i, value := range row {
					_, _ = fmt.Fprintf(out, " %s %s", format(value), p.Columns[i])
				}
				_, _ = fmt.Fprintln(out)
			}
		}
	}
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintf(w, "\nworkload\tvariant\t%s\tratio\tlowest\thighest\t\n", strings.Join(p.Columns, "\t"))
	for i, workload := range p.Workloads {
		for v, variant := range p.Variants {
			_, _ = fmt.Fprintf(w, "%s\t%s", workload, variant)
			rows, base := all[cell{i, v}], all[cell{i, 0}]
			for c := range p.Columns {
				values := sorted(p.Rounds, func(r int) float64 { return rows[r][c] })
				_, _ = fmt.Fprintf(w, "\t%s", format(values[p.Rounds/2]))
			}
			ratios := sorted(p.Rounds, func(r int) float64 { return rows[r][0] / base[r][0] })
			_, _ = fmt.Fprintf(w, "\t%.2f\t%.2f\t%.2f\t\n", ratios[p.Rounds/2], ratios[0], ratios[p.Rounds-1])
		}
	}
	return w.Flush()
}

// sorted returns the value of each round, in ascending order.
func sorted(rounds int, of func(round int) float64) []float64 {
	all := make([]float64, rounds)
	for r := range all {
		all[r] = of(r)
	}
	slices.Sort(all)
	return all
}

// format prints small values with more digits.
func format(v float64) string {
	if v >= 100 || v == float64(int(v)) {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}
