package shell

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

	"github.com/percolator-go/percolator/internal/inspect"
	"github.com/percolator-go/percolator/internal/pbjson"
)

// Output of commands: lines, JSON objects and tables.

// The output formats.
const (
	OutputTable = "table"
	OutputJSON  = "json"
)

// Printer writes a command's answer to standard output and its notes to standard error.
// Bytes that must not be escaped go to Raw.
type Printer struct {
	inspect.Commands
	format         string    // -o
	Stdout, Stderr io.Writer // text only (text.go)
	Raw, rawErr    io.Writer // the same streams, unescaped
	// terminal reports whether a stream is a terminal; nil means that every character device is
	// one.
	terminal func(stream any) bool
}

func newPrinter(a *App) *Printer {
	return &Printer{
		Commands: inspect.Commands{Program: a.Name}, format: OutputTable, terminal: a.Terminal,
		Stdout: textWriter{a.Stdout}, Stderr: textWriter{a.Stderr}, Raw: a.Stdout, rawErr: a.Stderr,
	}
}

// register adds -o.
func (p *Printer) register(flags *pflag.FlagSet) {
	flags.StringVarP(&p.format, "output", "o", OutputTable, "table, or json: one object a line")
}

// Check rejects an unknown format before the command does anything.
func (p *Printer) Check(cmd *cobra.Command) error {
	if cmd.Flags().Lookup("output") == nil || p.format == OutputTable || p.JSON() {
		return nil
	}
	return Usagef(cmd, "--output %s: use %s or %s", p.format, OutputTable, OutputJSON)
}

// JSON reports whether -o json was given.
func (p *Printer) JSON() bool { return p.format == OutputJSON }

// Object writes one JSON object on a line; a protobuf message as package pbjson does.
func (p *Printer) Object(v any) error {
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
	_, err := p.Raw.Write(EscapeJSON(line.Bytes()))
	return err
}

// Print writes one line to standard output.
func (p *Printer) Print(format string, args ...any) error {
	_, err := io.WriteString(p.Stdout, OneLine(fmt.Sprintf(format, args...))+"\n")
	return err
}

// Table writes a table.
func (p *Printer) Table(g *Grid) error {
	_, err := io.WriteString(p.Stdout, g.Text())
	return err
}

// Answer writes v with -o json, else the line of text.
func (p *Printer) Answer(v any, format string, args ...any) error {
	if p.JSON() {
		return p.Object(v)
	}
	return p.Print(format, args...)
}

// Done returns the error of a change without other output or, if that is nil, prints the confirmation.
func (p *Printer) Done(err error, format string, args ...any) error {
	if err != nil {
		return err
	}
	return p.Answer(struct {
		Done bool `json:"done"`
	}{true}, format, args...)
}

// Note writes one line about the command itself to standard error.
func (p *Printer) Note(format string, args ...any) {
	_, _ = io.WriteString(p.Stderr, p.Program+": "+OneLine(fmt.Sprintf(format, args...))+"\n")
}

// Next writes advice after an error, on a line of its own that scripts can remove.
func (p *Printer) Next(format string, args ...any) {
	_, _ = io.WriteString(p.Stderr, "  next: "+OneLine(fmt.Sprintf(format, args...))+"\n")
}

// NoteCut prints that a listing ended at its limit.
func (p *Printer) NoteCut(limit int) { p.Note("the first %d; --limit shows more", limit) }

// AtTerminal reports whether a stream is a character device, as a terminal is.
func (p *Printer) AtTerminal(stream any) bool {
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

// Listing is an answer with many entries: with -o json an object for each as it is added, else a table
// that End prints.
type Listing struct {
	out     *Printer
	grid    Grid
	Entries int
	err     error // the first error of writing, returned by End
}

// Listing starts a listing with the comma-separated columns in header. numbers are the indices of the
// right-aligned ones.
func (p *Printer) Listing(header string, numbers ...int) *Listing {
	grid := Grid{rows: [][]string{strings.Split(header, ", ")}, right: numbers}
	return &Listing{out: p, grid: grid}
}

// Add adds an entry: with -o json the object v, else the cells as a line of the table.
func (l *Listing) Add(v any, cells ...any) {
	l.Entries++
	if !l.out.JSON() {
		l.grid.Add(cells...)
	} else if l.err == nil {
		l.err = l.out.Object(v)
	}
}

// End prints the table.
func (l *Listing) End() error {
	if l.out.JSON() {
		return l.err
	}
	return l.out.Table(&l.grid)
}

// Grid lays text out in columns, two spaces apart. The zero value is empty.
type Grid struct {
	rows  [][]string
	right []int // right-aligned columns
}

// Add appends a row. Rows may differ in length. It escapes unprintable characters and newlines.
func (g *Grid) Add(cells ...any) {
	row := make([]string, len(cells))
	for i, cell := range cells {
		row[i] = OneLine(fmt.Sprint(cell))
	}
	g.rows = append(g.rows, row)
}

// Addf appends a row of a name and a formatted text.
func (g *Grid) Addf(name, format string, args ...any) { g.Add(name, fmt.Sprintf(format, args...)) }

// Text returns the rows as lines without trailing spaces.
func (g *Grid) Text() string {
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
