package shell

import (
	"bytes"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
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
	if _, err := io.WriteString(t.w, escape(string(p), "\n\t")); err != nil {
		return 0, err
	}
	return len(p), nil
}

// escape writes runes that are not printable as Go string literals do, except those in keep.
func escape(s, keep string) string {
	plain := func(r rune, size int) bool {
		broken := r == utf8.RuneError && size == 1
		return !broken && (unicode.IsPrint(r) || strings.ContainsRune(keep, r))
	}
	var out strings.Builder
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		if plain(r, size) {
			out.WriteString(s[i : i+size])
		} else {
			quoted := strconv.Quote(s[i : i+size])
			out.WriteString(quoted[1 : len(quoted)-1])
		}
		i += size
	}
	return out.String()
}

// OneLine escapes newlines and tabs as well: foreign text can't begin a line of its own, such
// as one that looks like advice of ours.
func OneLine(s string) string { return escape(s, "") }

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

// Advice may hold command lines for pasting into a shell, and the names in them may have been
// chosen by anyone. Every such line is made here.

// Operand is an argument of a suggested command: what the usage line calls it, and its value.
type Operand struct{ What, Value string }

// Suggest returns a command line of this program, in backquotes. flags is written as it is. A
// row that can't be typed is given as a Go literal; any other name that can't stays what the
// usage line calls it.
func (p *Printer) Suggest(path, flags string, operands ...Operand) string {
	var args []string
	escaped, dash := false, false
	for _, o := range operands {
		if !typable(o.Value) && o.What == "ROW" {
			escaped = true
		}
	}
	for _, o := range operands {
		text := o.Value
		switch {
		case o.What == "ROW" && escaped:
			text = strconv.QuoteToASCII(text)
		case !typable(text):
			text = o.What
		}
		dash = dash || strings.HasPrefix(text, "-")
		args = append(args, Quote(text))
	}
	words := []string{Quote(p.Program), path}
	if escaped {
		flags = strings.TrimSpace(flags + " --escape " + EscapeGo)
	}
	if dash { // an operand that looks like a flag: flags end before it
		words = append(append(words, strings.Fields(flags)...), "--")
		words = append(words, args...)
	} else {
		words = append(append(words, args...), strings.Fields(flags)...)
	}
	return "`" + strings.Join(words, " ") + "`"
}

// commandTemplate is a command in advice, before any foreign text is put into it.
var commandTemplate = regexp.MustCompile("`[^`]+`")

// Advice writes the commands in backquotes out in full: with the program's name, and the
// operands in place of what the usage lines call them.
func (p *Printer) Advice(text string, operands ...Operand) string {
	return commandTemplate.ReplaceAllStringFunc(text, func(template string) string {
		var path, flags []string
		var args []Operand
		for word := range strings.FieldsSeq(strings.Trim(template, "`")) {
			i := slices.IndexFunc(operands, func(o Operand) bool { return o.What == word })
			switch {
			case i >= 0:
				args = append(args, operands[i])
			case len(flags) > 0 || strings.HasPrefix(word, "-"):
				flags = append(flags, word)
			case len(args) > 0: // a number, which the reader has to choose
				args = append(args, Operand{word, word})
			default:
				path = append(path, word)
			}
		}
		return p.Suggest(strings.Join(path, " "), strings.Join(flags, " "), args...)
	})
}

// WithOwnName has the commands in a node's text, which calls the program percolator, name this one.
func (p *Printer) WithOwnName(text string) string {
	return strings.ReplaceAll(text, "`percolator ", "`"+Quote(p.Program)+" ")
}

// typable reports whether a name can be pasted as it is: any other is escaped on its way to the
// terminal, and what is pasted would be another name.
func typable(name string) bool { return escape(name, "") == name }

// Quote writes a word for a POSIX shell: as it is if no character of it means anything
// there, else in single quotes, inside of which nothing does but the quote itself. No word can
// hold a NUL.
func Quote(word string) string {
	special := func(r rune) bool {
		return r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r) &&
			!strings.ContainsRune("_-+:,./@", r)
	}
	if word != "" && !strings.ContainsFunc(word, special) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
