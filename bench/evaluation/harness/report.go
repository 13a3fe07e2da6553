package harness

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"
)

// Result is everything known about one execution of a measurement: the content of its JSON file.
type Result struct {
	Name    string    `json:"name"`
	Title   string    `json:"title"`
	Error   string    `json:"error,omitempty"` // why it failed; the values before it are kept
	Commit  string    `json:"commit"`
	Command []string  `json:"command"`
	Began   time.Time `json:"began"`
	Took    string    `json:"took"`
	Rounds  int       `json:"rounds"`
	Seed    uint64    `json:"seed"`
	Smoke   bool      `json:"smoke,omitempty"`
	Machine Machine   `json:"machine"`
	Tables  []*Table  `json:"tables,omitempty"`
	Plots   []*Plot   `json:"plots,omitempty"`
	Notes   []string  `json:"notes,omitempty"`
}

// print writes the tables as text.
func (r *Result) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	_, _ = fmt.Fprintf(w, "\n%s: %s (%s, load %.1f)\n", r.Name, r.Title, r.Took, r.Machine.Load)
	for _, t := range r.Tables {
		_, _ = fmt.Fprintln(w)
		for _, line := range t.lines() {
			_, _ = fmt.Fprintln(w, strings.Join(line, "\t"))
		}
	}
	for _, note := range r.Notes {
		_, _ = fmt.Fprintf(w, "\n%s\n", note)
	}
	if r.Error != "" {
		_, _ = fmt.Fprintf(w, "\nFAILED: %s\n", r.Error)
	}
	return w.Flush()
}

// lines returns the header and the rows of a table. Columns that are empty in every row are left
// out.
func (t *Table) lines() [][]string {
	ratios, aims, papers := false, false, false
	for _, row := range t.Rows {
		ratios = ratios || len(row.Ratios) > 0
		aims = aims || row.Aim != ""
		papers = papers || row.Paper != ""
	}
	build := func(name string, values []string, ratio, aim, paper string) []string {
		line := append([]string{name}, values...)
		if ratios {
			line = append(line, ratio)
		}
		if aims {
			line = append(line, aim)
		}
		if papers {
			line = append(line, paper)
		}
		return line
	}
	out := [][]string{build(t.Name, t.Columns, "ratio", "aim", "paper")}
	for _, row := range t.Rows {
		var values []string
		for _, column := range t.Columns {
			values = append(values, summary(row.Values[column]))
		}
		out = append(out, build(row.Name, values, summary(row.Ratios), row.Aim, row.Paper))
	}
	return out
}

// summary is the median of repetitions, with the lowest and the highest of several.
func summary(values []float64) string {
	if len(values) == 0 {
		return ""
	}
	s := spreadOf(values)
	median, lowest, highest := format(s.median), format(s.lowest), format(s.highest)
	if lowest == highest {
		return median
	}
	return fmt.Sprintf("%s (%s–%s)", median, lowest, highest)
}

// format prints a value with three significant digits, large ones in full and grouped.
func format(v float64) string {
	if v < 0 {
		return "-" + format(-v)
	}
	switch {
	case v >= 9999.5:
		digits := fmt.Sprintf("%.0f", v)
		for i := len(digits) - 3; i > 0; i -= 3 {
			digits = digits[:i] + "," + digits[i:]
		}
		return digits
	case v >= 99.95 || v == float64(int64(v)):
		return fmt.Sprintf("%.0f", v)
	case v >= 9.995:
		return fmt.Sprintf("%.1f", v)
	case v >= 0.01:
		return fmt.Sprintf("%.2f", v)
	default:
		return fmt.Sprintf("%.2g", v)
	}
}

// write writes the JSON file and the plots into a folder.
func (r *Result) write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("harness: %s: %w", r.Name, err)
	}
	err = os.WriteFile(filepath.Join(dir, r.Name+".json"), append(text, '\n'), 0o644)
	for _, p := range r.Plots {
		if len(p.Series) == 0 && (r.Smoke || r.Error != "") {
			continue // a small run, or one that failed before its first point
		}
		err = errors.Join(err, p.save(filepath.Join(dir, r.plotFile(p))))
	}
	return err
}

func (r *Result) plotFile(p *Plot) string { return r.Name + "-" + p.Name + ".svg" }

// document replaces what is between the measurement's markers in a Markdown file,
//
//	<!-- figure8 -->
//	<!-- /figure8 -->
//
// by its tables, plots and notes. plots is the folder of the plots, relative to the file.
func (r *Result) document(file, plots string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	begin, end := []byte("<!-- "+r.Name+" -->\n"), []byte("<!-- /"+r.Name+" -->")
	before, rest, ok := bytes.Cut(text, begin)
	_, after, closed := bytes.Cut(rest, end)
	if !ok || !closed {
		return fmt.Errorf("harness: %s has no markers %s and %s", file, bytes.TrimSpace(begin), end)
	}
	var out bytes.Buffer
	out.Write(before)
	out.Write(begin)
	r.markdown(&out, plots)
	out.Write(end)
	out.Write(after)
	return os.WriteFile(file, out.Bytes(), 0o644)
}

func (r *Result) markdown(out *bytes.Buffer, plots string) {
	for _, t := range r.Tables {
		for i, line := range t.lines() {
			for c := range line {
				line[c] = strings.ReplaceAll(line[c], "|", `\|`)
			}
			_, _ = fmt.Fprintf(out, "| %s |\n", strings.Join(line, " | "))
			if i == 0 {
				_, _ = fmt.Fprintf(out, "|%s\n", strings.Repeat("---|", len(line)))
			}
		}
		out.WriteByte('\n')
	}
	for _, p := range r.Plots {
		_, _ = fmt.Fprintf(out, "![%s: %s](%s)\n\n", r.Title, p.Name, filepath.Join(plots, r.plotFile(p)))
	}
	for _, note := range r.Notes {
		_, _ = fmt.Fprintf(out, "- %s\n", note)
	}
	if len(r.Notes) > 0 {
		out.WriteByte('\n')
	}
	_, _ = fmt.Fprintf(out, "%s, commit %s, %d rounds, %s, load before %.1f. %s.\n", r.Began.Format(time.DateOnly),
		r.Commit, r.Rounds, r.Took, r.Machine.Load, r.Machine)
}
