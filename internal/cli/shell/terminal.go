package shell

import (
	"bytes"
	"fmt"
	"io"
	"unicode"

	"github.com/percolator-go/percolator/internal/inspect"
)

// What a command prints may come from anyone who can write to the repository: names,
// rows, the errors of observers, versions and zones of nodes. This file keeps it from the
// terminal's own commands. Printer.Stdout and Printer.Stderr are textWriters, so no
// command can forget to escape; a command that writes bytes as they are (get of one value
// into a file, export, completion) says so by writing to Printer.Raw. JSON goes there
// too, through escapeJSON.

// textWriter escapes what is not printable, except newlines and tabs, as a Go string literal
// does. Each Write is taken for itself: a rune cut in two between writes shows as its bytes.
// It may be used concurrently if the writer below it may.
type textWriter struct{ w io.Writer }

// Write implements io.Writer. Like a filter it reports the length of what it was given.
func (t textWriter) Write(p []byte) (int, error) {
	if _, err := io.WriteString(t.w, inspect.Escape(string(p), "\n\t")); err != nil {
		return 0, err
	}
	return len(p), nil
}

// EscapeJSON escapes the control characters that encoding/json leaves as they are: DEL and
// U+0080 to U+009F, some of which begin a terminal's commands. text is valid JSON, so they can
// only be inside of strings; newlines between objects stay. It returns text itself if it has none.
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

// OneLine escapes newlines and tabs as well: foreign text can't begin a line of its own, such
// as one that looks like advice of ours.
func OneLine(s string) string { return inspect.Escape(s, "") }
