package soak

import "fmt"

// limits are what a run's figures must stay under once it is warm: the most that was seen
// during the warm-up, and some. Live data is bounded by the workload, so nothing else has
// a reason to grow.
type limits struct {
	warm bool
	most figures // during the warm-up
}

// allowance is how far above the warm-up's most a figure may rise: the most times times, plus plus.
type allowance struct {
	times float64
	plus  int64
}

// allowances of the figures that are bounded; the others are only reported. The additions
// are for what comes and goes: memtables that wait to be flushed, a compaction's output
// beside its input, tablets that splits have made, and what has been written since the
// oldest snapshot that is held open.
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

// goroutinesPerTablet is how many more goroutines each tablet beyond the warm-up's may have.
const goroutinesPerTablet = 4

// check takes note of a measurement, and says what is over its limit once the run is warm.
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
