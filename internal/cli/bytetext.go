package cli

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/pflag"

	"github.com/percolator-go/percolator/internal/pbjson"
)

// How rows, columns and values are written on the command line.
const (
	escapeText   = "text"   // as they are
	escapeGo     = "go"     // as in a Go string literal, with or without its quotes: a\x00b
	escapeHex    = "hex"    // 610062
	escapeBase64 = "base64" // YQBi
)

var escapes = []string{escapeText, escapeGo, escapeHex, escapeBase64}

// inputFlags say how byte strings are written in the arguments.
type inputFlags struct {
	escape string
	hex    bool
}

// register adds the flags; every command with a ROW has them, so that what one prints
// another reads.
func (f *inputFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.escape, "escape", escapeText, "how ROW, COLUMN and VALUE are written: "+strings.Join(escapes, ", "))
	flags.BoolVar(&f.hex, "hex", false, "short for --escape hex")
}

// how is the way in which byte strings are written.
func (f *inputFlags) how() string {
	if f.hex {
		return escapeHex
	}
	return f.escape
}

// bytes decodes one argument.
func (f *inputFlags) bytes(arg string) (string, error) {
	text, err := unescape(f.how(), arg)
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

// printable writes bytes for a table: as they are where that is unmistakable, else as a
// Go string literal, which --escape go reads back.
func printable(s string) string {
	if s == "" {
		return `""`
	}
	plain := utf8.ValidString(s) && s[0] != '"' && s[0] != ' ' && s[len(s)-1] != ' ' &&
		!slices.ContainsFunc([]rune(s), func(r rune) bool { return !unicode.IsPrint(r) })
	if plain {
		return s
	}
	return strconv.Quote(s)
}

// shortened is printable, cut to about most characters with the size noted; most ≤ 0 cuts nothing.
func shortened(s string, most int) string {
	if most <= 0 || len(s) <= most && len(printable(s)) <= 2*most {
		return printable(s)
	}
	cut := min(most, len(s)-1)
	for len(printable(s[:cut])) > 2*most { // escaped bytes are four characters wide
		cut /= 2
	}
	for start := cut; cut > 0 && cut > start-utf8.UTFMax && !utf8.RuneStart(s[cut]); {
		cut--
	}
	return fmt.Sprintf("%s… (%d bytes)", printable(s[:cut]), len(s))
}

// jsonBytes is a byte string in JSON: text where it is UTF-8, else {"base64": "…"}, as in
// package percolator.
type jsonBytes = pbjson.Bytes
