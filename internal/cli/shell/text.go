package shell

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"unicode"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/inspect"
	"github.com/percolator-go/percolator/internal/pbjson"
)

// This file formats sizes, lists and ranges for people, and escapes terminal output.

// ByteText formats a size in bytes, from 1 KiB on in a larger unit with one decimal.
func ByteText(n int64) string {
	const units = "KMGTPE"
	if n < 1<<10 {
		return fmt.Sprintf("%d B", n)
	}
	v, unit := float64(n)/1024, 0
	for v >= 1024 && unit < len(units)-1 {
		v, unit = v/1024, unit+1
	}
	return fmt.Sprintf("%.1f %ciB", v, units[unit])
}

// OrDash returns text, or a dash if there is none.
func OrDash(there bool, text string) string {
	if !there {
		return "-"
	}
	return text
}

// MaxNames is the maximum number of names listed in a message.
const MaxNames = 20

// ColumnNames lists columns for a message.
func ColumnNames(names []string) string {
	var list []string
	for i, name := range names {
		if i == MaxNames {
			list = append(list, fmt.Sprintf("%d more", len(names)-MaxNames))
			break
		}
		list = append(list, inspect.Printable(name))
	}
	return strings.Join(list, ", ")
}

// JoinRows lists the first few rows.
func JoinRows(rows []string) string {
	const most = 6
	text := ""
	for i, row := range rows {
		if i == most {
			return fmt.Sprintf("%s … %d in all", text, len(rows))
		}
		if i > 0 {
			text += " "
		}
		text += inspect.Shortened(row, inspect.ValueWidth/2)
	}
	return text
}

// Escaping of terminal output. A command's output may come from anyone who can write to the database:
// names, rows, errors of observers, versions and zones of nodes. It must not contain terminal control
// sequences. Printer.Stdout and Printer.Stderr are textWriters, so no command can forget to escape; a
// command that writes raw bytes (get of one value into a file, export, completion) uses Printer.Raw.
// JSON is written there too, through EscapeJSON.

// textWriter escapes unprintable characters, except newlines and tabs, like a Go string literal. Each
// Write is escaped separately: a rune split between two writes appears as its bytes. It may be used
// concurrently if the underlying writer may.
type textWriter struct{ w io.Writer }

// Write implements io.Writer. It returns the length of its input, not of the escaped output.
func (t textWriter) Write(p []byte) (int, error) {
	if _, err := io.WriteString(t.w, inspect.Escape(string(p), "\n\t")); err != nil {
		return 0, err
	}
	return len(p), nil
}

// EscapeJSON escapes the control characters that encoding/json does not: DEL and U+0080 to U+009F, some
// of which start terminal control sequences. text must be valid JSON, so they can only be inside
// strings; newlines between objects stay. It returns text itself if there are none.
func EscapeJSON(text []byte) []byte {
	control := func(r rune) bool { return r != '\n' && unicode.IsControl(r) }
	if bytes.IndexByte(text, 0x7f) < 0 && bytes.IndexByte(text, 0xc2) < 0 ||
		bytes.IndexFunc(text, control) < 0 {
		return text
	}
	var out bytes.Buffer
	for _, r := range string(text) {
		if control(r) {
			fmt.Fprintf(&out, `\u%04x`, r)
		} else {
			out.WriteRune(r)
		}
	}
	return out.Bytes()
}

// OneLine also escapes newlines and tabs, so that foreign text cannot start a line, such as one that
// looks like advice.
func OneLine(s string) string { return inspect.Escape(s, "") }

// RangeOut is the range of a tablet in JSON.
type RangeOut struct {
	Start PositionOut  `json:"start"`
	End   *PositionOut `json:"end,omitempty"` // nil: no end
}

// PositionOut is a bound of a range in JSON.
type PositionOut struct {
	Table string       `json:"table"`
	Row   pbjson.Bytes `json:"row"`
}

// NewRangeOut converts a descriptor's range.
func NewRangeOut(d *pb.TabletDescriptor, names *inspect.Names) RangeOut {
	out := RangeOut{Start: PositionOut{names.ByID(d.StartTable), pbjson.Bytes(d.StartRow)}}
	if !d.EndUnbounded {
		out.End = &PositionOut{names.ByID(d.EndTable), pbjson.Bytes(d.EndRow)}
	}
	return out
}

// Text formats both ends of the range.
func (r *RangeOut) Text() (from, before string) {
	if r.End == nil {
		return r.Start.Text(), "the end"
	}
	return r.Start.Text(), r.End.Text()
}

// Text formats a position in the order of all rows as TABLE/ROW, or as TABLE at the start of a
// table.
func (p PositionOut) Text() string {
	if p.Row == "" {
		return p.Table
	}
	return p.Table + "/" + inspect.Shortened(string(p.Row), inspect.ValueWidth/2)
}
