package shell

import (
	"bytes"
	"fmt"
	"io"
	"unicode"

	"github.com/percolator-go/percolator/internal/inspect"
)

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
