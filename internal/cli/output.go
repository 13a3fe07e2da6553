package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/protobuf/proto"

	"github.com/percolator-go/percolator/internal/pbjson"
)

// This file writes the answers of commands: lines, JSON objects and tables.

// The forms of output.
const (
	outputTable = "table"
	outputJSON  = "json"
)

// printer writes a command's answer to standard output and its notes to standard error.
// Bytes that must not be escaped go to raw.
type printer struct {
	program        string
	format         string    // -o
	stdout, stderr io.Writer // text only (terminal.go)
	raw, rawErr    io.Writer // the same streams
	// terminal decides whether a stream is a terminal; nil: those that are character devices.
	terminal func(stream any) bool
}

func newPrinter(a *App) *printer {
	return &printer{
		program: a.Name, format: outputTable, terminal: a.terminal,
		stdout: textWriter{a.Stdout}, stderr: textWriter{a.Stderr}, raw: a.Stdout, rawErr: a.Stderr,
	}
}

// register adds -o.
func (p *printer) register(flags *pflag.FlagSet) {
	flags.StringVarP(&p.format, "output", "o", outputTable, "table, or json: one object a line")
}

// check refuses an unknown form before anything is asked or changed.
func (p *printer) check(cmd *cobra.Command) error {
	if cmd.Flags().Lookup("output") == nil || p.format == outputTable || p.json() {
		return nil
	}
	return usagef(cmd, "--output %s: known are %s and %s", p.format, outputTable, outputJSON)
}

func (p *printer) json() bool { return p.format == outputJSON }

// object writes one JSON object on a line; a message of the protocol as protobuf's JSON.
func (p *printer) object(v any) error {
	var line bytes.Buffer
	if m, ok := v.(proto.Message); ok {
		text, err := pbjson.Marshal(m)
		if err != nil {
			return err
		}
		line.Write(append(text, '\n'))
	} else {
		enc := json.NewEncoder(&line)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(v); err != nil {
			return err
		}
	}
	_, err := p.raw.Write(escapeJSON(line.Bytes()))
	return err
}

// print writes one line to standard output.
func (p *printer) print(format string, args ...any) error {
	_, err := io.WriteString(p.stdout, oneLine(fmt.Sprintf(format, args...))+"\n")
	return err
}

// table writes a table.
func (p *printer) table(g *grid) error {
	_, err := io.WriteString(p.stdout, g.text())
	return err
}

// answer writes v with -o json, else the line of text.
func (p *printer) answer(v any, format string, args ...any) error {
	if p.json() {
		return p.object(v)
	}
	return p.print(format, args...)
}

// done confirms a change that has nothing else to show.
func (p *printer) done(format string, args ...any) error {
	return p.answer(struct {
		Done bool `json:"done"`
	}{true}, format, args...)
}

// note writes one line about the command itself to standard error.
func (p *printer) note(format string, args ...any) {
	_, _ = io.WriteString(p.stderr, p.program+": "+oneLine(fmt.Sprintf(format, args...))+"\n")
}

// next writes advice after an error, on a line of its own that scripts can remove.
func (p *printer) next(format string, args ...any) {
	_, _ = io.WriteString(p.stderr, "  next: "+oneLine(fmt.Sprintf(format, args...))+"\n")
}

// cut says that a listing ended early.
func (p *printer) cut(limit int) { p.note("the first %d; --limit shows more", limit) }

// atTerminal reports whether a stream is a character device, as a terminal is.
func (p *printer) atTerminal(stream any) bool {
	if p.terminal != nil {
		return p.terminal(stream)
	}
	f, ok := stream.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// listing is an answer of many entries: with -o json an object for each as it comes, else
// a table that end prints.
type listing struct {
	out     *printer
	grid    grid
	entries int
	err     error // the first of writing; end returns it
}

// listing begins a listing with the columns named in header, separated by commas. numbers
// are those that are set flush right.
func (p *printer) listing(header string, numbers ...int) *listing {
	grid := grid{rows: [][]string{strings.Split(header, ", ")}, right: numbers}
	return &listing{out: p, grid: grid}
}

// add adds an entry, as an object and as a line of the table.
func (l *listing) add(v any, cells ...any) {
	l.entries++
	if !l.out.json() {
		l.grid.add(cells...)
	} else if l.err == nil {
		l.err = l.out.object(v)
	}
}

// end prints the table.
func (l *listing) end() error {
	if l.out.json() {
		return l.err
	}
	return l.out.table(&l.grid)
}

// grid lays text out in columns, two spaces apart. The zero value is empty.
type grid struct {
	rows  [][]string
	right []int // columns of numbers, set flush right
}

// add appends a row. Rows may differ in length. What is not printable is escaped, newlines too.
func (g *grid) add(cells ...any) {
	row := make([]string, len(cells))
	for i, cell := range cells {
		row[i] = oneLine(fmt.Sprint(cell))
	}
	g.rows = append(g.rows, row)
}

// addf appends a row of a name and a formatted text.
func (g *grid) addf(name, format string, args ...any) { g.add(name, fmt.Sprintf(format, args...)) }

// text returns the rows as lines without trailing spaces.
func (g *grid) text() string {
	var widths []int
	for _, row := range g.rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var text strings.Builder
	for _, row := range g.rows {
		var line strings.Builder
		for i, cell := range row {
			if i > 0 {
				line.WriteString("  ")
			}
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if slices.Contains(g.right, i) {
				line.WriteString(pad + cell)
			} else {
				line.WriteString(cell + pad)
			}
		}
		text.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	return text.String()
}
