package shell

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"maps"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	percolator "github.com/percolator-go/percolator"
)

// Decoding of arguments and flags: rows, columns and values, which may contain any bytes, sizes in
// bytes, and the limits of listings.

// Encodings of rows, columns and values on the command line.
const (
	escapeText   = "text"   // unchanged
	EscapeGo     = "go"     // a Go string literal, with or without its quotes: a\x00b
	escapeHex    = "hex"    // 610062
	escapeBase64 = "base64" // YQBi
)

// Escapes are the values of --escape.
var Escapes = []string{escapeText, EscapeGo, escapeHex, escapeBase64}

// InputFlags are the flags for the encoding of byte strings in the arguments.
type InputFlags struct {
	escape string
	hex    bool
}

// AddInputArgs is AddInput for a command all of whose arguments after the first are byte strings. They
// are decoded in place before the command runs.
func AddInputArgs(cmd *cobra.Command) *InputFlags {
	f := AddInput(cmd)
	Before(cmd, func(_ *cobra.Command, args []string) error {
		encoded := args[min(1, len(args)):]
		decoded, err := f.All(encoded)
		copy(encoded, decoded)
		return err
	})
	return f
}

// AddInput adds the flags. Every command with a ROW has them, so that one can read what another
// prints.
func AddInput(cmd *cobra.Command) *InputFlags {
	f := &InputFlags{}
	cmd.Flags().StringVar(&f.escape, "escape", escapeText,
		"how ROW, COLUMN and VALUE are written: "+strings.Join(Escapes, ", "))
	cmd.Flags().BoolVar(&f.hex, "hex", false, "short for --escape hex")
	return f
}

// Bytes decodes one argument.
func (f *InputFlags) Bytes(arg string) (string, error) {
	how := f.escape
	if f.hex {
		how = escapeHex
	}
	text, err := Unescape(how, arg)
	if err != nil {
		return "", NewUsageError(nil, err)
	}
	return text, nil
}

// All decodes several arguments.
func (f *InputFlags) All(args []string) ([]string, error) {
	decoded := make([]string, len(args))
	for i, arg := range args {
		text, err := f.Bytes(arg)
		if err != nil {
			return nil, err
		}
		decoded[i] = text
	}
	return decoded, nil
}

// Unescape decodes an argument.
func Unescape(how, arg string) (string, error) {
	switch how {
	case escapeText:
		return arg, nil
	case EscapeGo:
		text, err := unquote(arg)
		if err != nil {
			return "", fmt.Errorf("%s is not a Go string literal: write a\\x00b, or \"a\\x00b\"", arg)
		}
		return text, nil
	case escapeHex:
		raw, err := hex.DecodeString(arg)
		if err != nil {
			return "", fmt.Errorf("%q is not hexadecimal", arg)
		}
		return string(raw), nil
	case escapeBase64:
		raw, err := base64.StdEncoding.DecodeString(arg)
		if err != nil {
			return "", fmt.Errorf("%q is not base64", arg)
		}
		return string(raw), nil
	}
	return "", fmt.Errorf("--escape %s: unknown encoding; use %s", how, strings.Join(Escapes, ", "))
}

// unquote decodes a Go string literal with or without its quotes. Without them a quote is literal.
func unquote(arg string) (string, error) {
	if len(arg) >= 2 && arg[0] == '"' && arg[len(arg)-1] == '"' {
		return strconv.Unquote(arg)
	}
	var text []byte
	for len(arg) > 0 {
		if arg[0] == '"' {
			text, arg = append(text, '"'), arg[1:]
			continue
		}
		r, multibyte, rest, err := strconv.UnquoteChar(arg, '"')
		if err != nil {
			return "", err
		}
		switch {
		case r < utf8.RuneSelf || !multibyte:
			text = append(text, byte(r))
		default:
			text = utf8.AppendRune(text, r)
		}
		arg = rest
	}
	return string(text), nil
}

// limitFlag is a flag that limits the entries of a listing.
type limitFlag struct {
	value *int
	least int
}

// AddLimit adds --limit, which is 1000 by default: a table of millions of rows would scroll
// by for minutes.
func AddLimit(cmd *cobra.Command, value *int, least int, usage string) {
	*value = 1000
	cmd.Flags().Var(limitFlag{value, least}, "limit", usage)
}

// Set implements pflag.Value.
func (f limitFlag) Set(text string) error {
	n, err := strconv.Atoi(text)
	if err != nil || n < f.least || n > math.MaxInt32-1 {
		return fmt.Errorf("must be from %d to %d", f.least, math.MaxInt32-1)
	}
	*f.value = n
	return nil
}

// String implements pflag.Value.
func (f limitFlag) String() string {
	if f.value == nil {
		return ""
	}
	return strconv.Itoa(*f.value)
}

// Type implements pflag.Value.
func (limitFlag) Type() string { return "int" }

// ByteSize is a flag for a number of bytes, such as 96MiB or 100663296.
type ByteSize uint64

// byteUnits are powers of 1024, smallest first.
var byteUnits = []string{"B", "KiB", "MiB", "GiB", "TiB"}

// Set implements pflag.Value. It accepts a whole number with an optional unit.
func (b *ByteSize) Set(text string) error {
	number := strings.TrimRight(text, "BKMGTi ")
	unit := strings.TrimSpace(text[len(number):])
	n, err := strconv.ParseUint(number, 10, 64)
	if err != nil {
		return fmt.Errorf("%q is not a whole number with or without a unit, such as 96MiB", text)
	}
	for i, name := range byteUnits {
		if unit != name && unit != "" {
			continue
		}
		over, low := bits.Mul64(n, 1<<(10*i))
		if over != 0 {
			return fmt.Errorf("%q is too large", text)
		}
		*b = ByteSize(low)
		return nil
	}
	return fmt.Errorf("%q: units are %s", text, strings.Join(byteUnits, ", "))
}

// String returns the shortest text that Set parses to the same number.
func (b *ByteSize) String() string {
	n, i := uint64(*b), 0
	for n != 0 && n%1024 == 0 && i < len(byteUnits)-1 {
		n, i = n/1024, i+1
	}
	if i == 0 {
		return strconv.FormatUint(n, 10)
	}
	return strconv.FormatUint(n, 10) + byteUnits[i]
}

// Type returns the placeholder in the help.
func (b *ByteSize) Type() string { return "bytes" }

// ColumnsOf returns the named columns of a table.
func ColumnsOf(table string, names []string) []percolator.Column {
	columns := make([]percolator.Column, len(names))
	for i, name := range names {
		columns[i] = percolator.Column{Table: table, Name: name}
	}
	return columns
}

// rangeFlags select the rows of scan, watch, export and column delete. Bounds use the encoding of
// rows (--escape).
type rangeFlags struct{ prefix, from, before string }

// AddRange adds --prefix, --from and --before.
func AddRange(cmd *cobra.Command) *rangeFlags {
	f := &rangeFlags{}
	flags := cmd.Flags()
	flags.StringVar(&f.prefix, "prefix", "", "only rows with this prefix (--escape applies)")
	flags.StringVar(&f.from, "from", "", "only rows from this one on")
	flags.StringVar(&f.before, "before", "", "only rows before this one")
	return f
}

// Rows returns the table's rows within the flags' bounds; bounds are the decoded prefix, from and
// before.
func (f *rangeFlags) Rows(table string, in *InputFlags) (rows percolator.RowRange, bounds []string,
	err error) {
	rows = percolator.Rows(table)
	if bounds, err = in.All([]string{f.prefix, f.from, f.before}); err != nil {
		return rows, nil, err
	}
	if f.prefix != "" {
		rows = rows.Prefix(bounds[0])
	}
	if f.from != "" {
		rows = rows.From(bounds[1])
	}
	if f.before != "" {
		rows = rows.Before(bounds[2])
	}
	return rows, bounds, nil
}

// Suggestion returns a question with a known name of similar spelling, or "".
func Suggestion(key string, known map[string]bool) string {
	best, least := "", 3
	for _, name := range slices.Sorted(maps.Keys(known)) {
		if d := distance(key, name); d < least {
			best, least = name, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf(" (did you mean %q?)", best)
}

// distance returns the Levenshtein distance in bytes.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}
