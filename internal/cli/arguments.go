package cli

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// This file decodes arguments and flags: rows, columns and values, which may hold any
// bytes, numbers of bytes, and the limits of listings.

// How rows, columns and values are written on the command line.
const (
	escapeText   = "text"   // as they are
	escapeGo     = "go"     // as in a Go string literal, with or without its quotes: a\x00b
	escapeHex    = "hex"    // 610062
	escapeBase64 = "base64" // YQBi
)

var escapes = []string{escapeText, escapeGo, escapeHex, escapeBase64}

// inputFlags are the flags that say how byte strings are written in the arguments.
type inputFlags struct {
	escape string
	hex    bool
}

// addInput adds the flags; every command with a ROW has them, so that what one prints
// another reads.
func addInput(cmd *cobra.Command) *inputFlags {
	f := &inputFlags{}
	cmd.Flags().StringVar(&f.escape, "escape", escapeText,
		"how ROW, COLUMN and VALUE are written: "+strings.Join(escapes, ", "))
	cmd.Flags().BoolVar(&f.hex, "hex", false, "short for --escape hex")
	return f
}

// bytes decodes one argument.
func (f *inputFlags) bytes(arg string) (string, error) {
	how := f.escape
	if f.hex {
		how = escapeHex
	}
	text, err := unescape(how, arg)
	if err != nil {
		return "", &usageError{err: err}
	}
	return text, nil
}

// all decodes several arguments.
func (f *inputFlags) all(args []string) ([]string, error) {
	decoded := make([]string, len(args))
	for i, arg := range args {
		text, err := f.bytes(arg)
		if err != nil {
			return nil, err
		}
		decoded[i] = text
	}
	return decoded, nil
}

// unescape turns an argument into bytes. Its errors show how it should have been written.
func unescape(how, arg string) (string, error) {
	switch how {
	case escapeText:
		return arg, nil
	case escapeGo:
		text, err := unquote(arg)
		if err != nil {
			return "", fmt.Errorf("%s is no Go string literal: write a\\x00b, or \"a\\x00b\"", arg)
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
	return "", fmt.Errorf("--escape %s: known are %s", how, strings.Join(escapes, ", "))
}

// unquote reads a Go string literal with or without its quotes. Without them a bare quote
// stands for itself.
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

// dashHint adds to the error about an unknown -x how an argument is written that begins with a
// dash.
func dashHint(err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) || unknown.GetSpecifiedShortnames() == "" {
		return err
	}
	return fmt.Errorf("%w: write -- before an argument that begins with a dash: -- -%s", err,
		unknown.GetSpecifiedShortnames())
}

// limitFlag is a flag that limits the entries of a listing.
type limitFlag struct {
	value *int
	least int
}

var _ pflag.Value = limitFlag{}

// addLimit adds --limit, which is 1000 by default: a table of millions of rows would scroll
// by for minutes.
func addLimit(cmd *cobra.Command, value *int, least int, usage string) {
	*value = 1000
	cmd.Flags().Var(limitFlag{value, least}, "limit", usage)
}

// Set implements pflag.Value.
func (f limitFlag) Set(text string) error {
	n, err := strconv.Atoi(text)
	if err != nil || n < f.least || n > math.MaxInt32-1 {
		return fmt.Errorf("give %d to %d", f.least, math.MaxInt32-1)
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

// byteSize is a flag for a number of bytes, such as 96MiB or 100663296.
type byteSize uint64

var _ pflag.Value = (*byteSize)(nil)

// byteUnits are powers of 1024, smallest first.
var byteUnits = []string{"B", "KiB", "MiB", "GiB", "TiB"}

// Set implements pflag.Value. It takes a whole number with an optional unit.
func (b *byteSize) Set(text string) error {
	number := strings.TrimRight(text, "BKMGTi ")
	unit := strings.TrimSpace(text[len(number):])
	n, err := strconv.ParseUint(number, 10, 64)
	if err != nil {
		return fmt.Errorf("%q is no number of bytes, such as 96MiB", text)
	}
	for i, name := range byteUnits {
		if unit != name && unit != "" {
			continue
		}
		over, low := bits.Mul64(n, 1<<(10*i))
		if over != 0 {
			return fmt.Errorf("%q is too much", text)
		}
		*b = byteSize(low)
		return nil
	}
	return fmt.Errorf("%q: units are %s", text, strings.Join(byteUnits, ", "))
}

// String is the shortest text that Set reads as the same number.
func (b *byteSize) String() string {
	n, i := uint64(*b), 0
	for n != 0 && n%1024 == 0 && i < len(byteUnits)-1 {
		n, i = n/1024, i+1
	}
	if i == 0 {
		return strconv.FormatUint(n, 10)
	}
	return strconv.FormatUint(n, 10) + byteUnits[i]
}

// Type is the placeholder in the help.
func (b *byteSize) Type() string { return "bytes" }
