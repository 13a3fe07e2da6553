package soak

import "fmt"

// limits bounds a run's figures after the warm-up: by their maximum during the warm-up plus an
// allowance. The workload bounds the live data, so no figure has a reason to grow.
type limits struct {
	warm bool
	most figures // during the warm-up
}

// allowance is the limit of a figure, relative to its maximum during the warm-up: maximum × times + plus.
type allowance struct {
	times float64
	plus  int64
}

// allowances of the limited figures; the others are only reported. They cover temporary usage:
// memtables to be flushed, a compaction's output next to its input, tablets created by splits, and
// data written since the oldest open snapshot.
var allowances = map[figure]allowance{
	heap:        {1.5, 64 << 20},
	anonymous:   {1.5, 128 << 20},
	goroutines:  {1.2, 24},
	client:      {1.2, 24},
	lag:         {1.5, 60_000},
	descriptors: {1.5, 32},
	disk:        {1.5, 128 << 20},
	files:       {1.5, 32},
	live:        {1.5, 1 << 20},
	garbage:     {3, 200_000},
}

// goroutinesPerTablet is the number of additional goroutines allowed per tablet beyond the warm-up's.
const goroutinesPerTablet = 4

// check records a measurement, and after the warm-up returns the figures over their limits.
func (l *limits) check(f figures) []string {
	if !l.warm {
		for i := range f {
			l.most[i] = max(l.most[i], f[i])
		}
		return nil
	}
	var out []string
	for i := range numFigures {
		a, bounded := allowances[i]
		if !bounded {
			continue
		}
		limit := int64(a.times*float64(l.most[i])) + a.plus
		if i == goroutines {
			limit += goroutinesPerTablet * max(0, f[tablets]-l.most[tablets])
		}
		if f[i] > limit {
			out = append(out, fmt.Sprintf("%s is %s, more than %s (%s in the warm-up)",
				figureNames[i], i.text(f[i]), i.text(limit), i.text(l.most[i])))
		}
	}
	return out
}
