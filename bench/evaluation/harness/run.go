package harness

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"
)

// A Measurement is one part of the evaluation.
type Measurement struct {
	Name   string        // such as "figure7": selects it by -only, and names its files
	Title  string        // of its section
	Budget time.Duration // of the whole run at full size
	Run    func(ctx context.Context, r *Run) error
}

// Run is one execution of a measurement; its zero value can be used. Safe for concurrent use.
type Run struct {
	Smoke  bool      // tiny sizes: seconds, no claims
	Rounds int       // repetitions of each kind, by turns
	Seed   uint64    // of everything random
	Dir    string    // scratch on a real disk, removed afterwards
	Binary string    // folder with the built percolator binary, for test/cluster
	Log    io.Writer // of Logf; nil: standard error

	mu     sync.Mutex
	tables []*Table
	plots  []*Plot
	notes  []string
}

// Table is a result of a measurement. Rows and columns are in the order in which they were first
// recorded.
type Table struct {
	Name    string   `json:"name"`
	Columns []string `json:"columns"`
	Rows    []*Row   `json:"rows"`
}

// Row is a row of a table.
type Row struct {
	Name   string               `json:"name"`
	Values map[string][]float64 `json:"values,omitempty"` // of each column, a value for each repetition
	Ratios []float64            `json:"ratios,omitempty"` // a ratio for each repetition
	Aim    string               `json:"aim,omitempty"`    // of the ratio
	Paper  string               `json:"paper,omitempty"`  // what the paper reports
}

// Plot is a figure with a line for each series.
type Plot struct {
	Name   string    `json:"name"`
	X      string    `json:"x"` // titles of the axes, with units
	Y      string    `json:"y"`
	LogX   bool      `json:"log_x,omitempty"`
	LogY   bool      `json:"log_y,omitempty"`
	Series []*Series `json:"series"`
}

// Series is a line of a plot.
type Series struct {
	Name   string   `json:"name"`
	Points []*Point `json:"points"`
}

// Point holds the repetitions at one x.
type Point struct {
	X float64   `json:"x"`
	Y []float64 `json:"y"`
}

// Logf prints a line of progress.
func (r *Run) Logf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.Log
	if out == nil {
		out = os.Stderr
	}
	_, _ = fmt.Fprintf(out, "%s "+format+"\n", append([]any{time.Now().Format(time.TimeOnly)}, args...)...)
}

// Value records one repetition of a value; tables show the median with the lowest and the highest.
// A column's name has the unit: "ms p50", "/s", "µs CPU".
func (r *Run) Value(table, row, column string, v float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.table(table)
	if !slices.Contains(t.Columns, column) {
		t.Columns = append(t.Columns, column)
	}
	of := t.row(row)
	of.Values[column] = append(of.Values[column], v)
}

// Ratio records the ratio of a repetition's values; its aim, such as "≥ 1.0", is shown beside it;
// "" without an aim.
func (r *Run) Ratio(table, row string, ratio float64, aim string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	of := r.table(table).row(row)
	of.Ratios, of.Aim = append(of.Ratios, ratio), aim
}

// Paper records what the paper (section, figure) reports for a table's row, shown in a column of
// its own.
func (r *Run) Paper(table, row, value string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.table(table).row(row).Paper = value
}

// Point records one repetition of a point of a plot's series. Plots draw the medians as a line and
// the spread as a band.
func (r *Run) Point(plot, series string, x, y float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.plot(plot).series(series)
	i := slices.IndexFunc(s.Points, func(p *Point) bool { return p.X == x })
	if i < 0 {
		i = len(s.Points)
		s.Points = append(s.Points, &Point{X: x})
	}
	s.Points[i].Y = append(s.Points[i].Y, y)
}

// Axes names the axes of a plot, with units, and says whether they are logarithmic.
func (r *Run) Axes(plot, x, y string, logX, logY bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.plot(plot)
	p.X, p.Y, p.LogX, p.LogY = x, y, logX, logY
}

// Note adds a sentence to the section: a limit, a deviation. One that is already there is not
// repeated.
func (r *Run) Note(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if note := fmt.Sprintf(format, args...); !slices.Contains(r.notes, note) {
		r.notes = append(r.notes, note)
	}
}

// Median returns the median of a value's repetitions so far, and whether there are any.
func (r *Run) Median(table, row, column string) (float64, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	values := r.table(table).row(row).Values[column]
	if len(values) == 0 {
		return 0, false
	}
	return spreadOf(values).median, true
}

func (r *Run) table(name string) *Table {
	for _, t := range r.tables {
		if t.Name == name {
			return t
		}
	}
	t := &Table{Name: name}
	r.tables = append(r.tables, t)
	return t
}

func (t *Table) row(name string) *Row {
	for _, row := range t.Rows {
		if row.Name == name {
			return row
		}
	}
	row := &Row{Name: name, Values: map[string][]float64{}}
	t.Rows = append(t.Rows, row)
	return row
}

func (r *Run) plot(name string) *Plot {
	for _, p := range r.plots {
		if p.Name == name {
			return p
		}
	}
	p := &Plot{Name: name}
	r.plots = append(r.plots, p)
	return p
}

func (p *Plot) series(name string) *Series {
	for _, s := range p.Series {
		if s.Name == name {
			return s
		}
	}
	s := &Series{Name: name}
	p.Series = append(p.Series, s)
	return s
}

// spread is the summary of a value's repetitions.
type spread struct{ median, lowest, highest float64 }

func spreadOf(values []float64) spread {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	s := spread{median: sorted[n/2], lowest: sorted[0], highest: sorted[n-1]}
	if n%2 == 0 {
		s.median = (sorted[n/2-1] + sorted[n/2]) / 2
	}
	return s
}
