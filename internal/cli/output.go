package cli

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/pbjson"
)

// The forms of output.
const (
	outputTable = "table"
	outputJSON  = "json"
)

// withOutput gives the command -o.
func (r *run) withOutput(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().StringVarP(&r.output, "output", "o", outputTable, "table, or json: one object a line")
	return cmd
}

// checkOutput refuses an unknown form before anything is asked or changed.
func (r *run) checkOutput(cmd *cobra.Command) error {
	if cmd.Flags().Lookup("output") == nil || r.output == outputTable || r.output == outputJSON {
		return nil
	}
	return usagef(cmd, "--output %s: known are %s and %s", r.output, outputTable, outputJSON)
}

// object writes one JSON object on a line.
func (r *run) object(v any) error {
	var line bytes.Buffer
	enc := json.NewEncoder(&line)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	_, err := r.App.Stdout.Write(escapeJSON(line.Bytes()))
	return err
}

// message writes a message of the protocol as a JSON object on a line.
func (r *run) message(m proto.Message) error {
	text, err := pbjson.Marshal(m)
	if err != nil {
		return err
	}
	_, err = r.App.Stdout.Write(append(escapeJSON(text), '\n'))
	return err
}

// grid lays text out in columns, two spaces apart. The zero value is empty.
type grid struct {
	rows [][]string
	// right marks columns of numbers, set flush right.
	right map[int]bool
}

// add appends a row. Rows may differ in length. What is not printable is escaped, newlines too.
func (g *grid) add(cells ...string) {
	row := make([]string, len(cells))
	for i, cell := range cells {
		row[i] = oneLine(cell)
	}
	g.rows = append(g.rows, row)
}

// numbers marks columns as flush right.
func (g *grid) numbers(columns ...int) {
	if g.right == nil {
		g.right = map[int]bool{}
	}
	for _, c := range columns {
		g.right[c] = true
	}
}

// write prints the rows added, each line ending without spaces, and empties the grid.
func (g *grid) write(w io.Writer) error {
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
			if g.right[i] {
				line.WriteString(pad + cell)
			} else {
				line.WriteString(cell + pad)
			}
		}
		text.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	g.rows = nil
	_, err := io.WriteString(w, text.String())
	return err
}

// clock writes the physical part of a timestamp in UTC, to the millisecond.
func clock(ts mvcc.Timestamp) string {
	return percolator.Timestamp(ts).Time().UTC().Format("2006-01-02 15:04:05.000")
}

// age writes how long ago a moment was, coarsely.
func age(since, now time.Time) string {
	d := now.Sub(since)
	switch {
	case d < time.Minute:
		return d.Round(time.Second).String()
	case d < time.Hour:
		return d.Round(time.Minute).String()
	}
	return d.Round(time.Hour).String()
}
