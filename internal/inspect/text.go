package inspect

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/mvcc"
)

// This file formats bytes, timestamps and durations for people.

// Printable returns s unchanged if that is unambiguous, else as a Go string literal, which --escape
// go reads back.
func Printable(s string) string {
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

// Shortened is like Printable, but cuts s to about most characters and adds its size. It
// cuts nothing if most ≤ 0.
func Shortened(s string, most int) string {
	if most <= 0 || len(s) <= most && len(Printable(s)) <= 2*most {
		return Printable(s)
	}
	cut := min(most, len(s)-1)
	for len(Printable(s[:cut])) > 2*most { // an escaped byte, such as \xff, is four characters wide
		cut /= 2
	}
	for start := cut; cut > 0 && cut > start-utf8.UTFMax && !utf8.RuneStart(s[cut]); {
		cut--
	}
	return fmt.Sprintf("%s… (%d bytes)", Printable(s[:cut]), len(s))
}

// Escape writes runes that are not printable as Go string literals do, except those in keep.
func Escape(s, keep string) string {
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

// Clock formats the physical part of a timestamp in UTC, to the millisecond.
func Clock(ts mvcc.Timestamp) string {
	return percolator.Timestamp(ts).Time().UTC().Format("2006-01-02 15:04:05.000")
}

// Span writes a duration, rounded to ms below 1 s, to 0.1 s below 1 min, to seconds below 1 h, else
// to minutes: 340ms, 4.2s, 3m10s, 5h0m.
func Span(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Hour:
		return d.Round(time.Second).String()
	}
	return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
}

// Ago returns the time since ts was allocated, by the oracle's clock.
func Ago(ts, now mvcc.Timestamp) string {
	return Span(time.Duration(max(0, now.Millis()-ts.Millis())) * time.Millisecond)
}

// ValueWidth is the maximum length of a value in a printed table, in bytes.
const ValueWidth = 60

// FirstLine cuts a panic's stack off its message.
func FirstLine(text string) string {
	line, _, more := strings.Cut(text, "\n")
	if more {
		line += " …"
	}
	return line
}
