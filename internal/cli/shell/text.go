package shell

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
	"github.com/percolator-go/percolator/internal/pbjson"
)

// This file formats bytes, timestamps, durations and sizes for people.

// Printable returns s as it is if that is unambiguous, else as a Go string literal, which
// --escape go reads back.
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
	for len(Printable(s[:cut])) > 2*most { // escaped bytes are four characters wide
		cut /= 2
	}
	for start := cut; cut > 0 && cut > start-utf8.UTFMax && !utf8.RuneStart(s[cut]); {
		cut--
	}
	return fmt.Sprintf("%s… (%d bytes)", Printable(s[:cut]), len(s))
}

// JSONBytes is a byte string in JSON: text where it is UTF-8, else {"base64": "…"}, as in
// package percolator.
type JSONBytes = pbjson.Bytes

// Clock formats the physical part of a timestamp in UTC, to the millisecond.
func Clock(ts mvcc.Timestamp) string {
	return percolator.Timestamp(ts).Time().UTC().Format("2006-01-02 15:04:05.000")
}

// Age formats the time since a moment, rounded to its largest unit.
func Age(since, now time.Time) string {
	d := now.Sub(since)
	switch {
	case d < time.Minute:
		return d.Round(time.Second).String()
	case d < time.Hour:
		return d.Round(time.Minute).String()
	}
	return d.Round(time.Hour).String()
}

// Span writes a duration with two digits or so: 340ms, 4.2s, 3m10s, 5h0m.
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

// Ago returns how long before now ts was allocated, by the oracle's clock.
func Ago(ts, now mvcc.Timestamp) string {
	return Span(time.Duration(max(0, now.Millis()-ts.Millis())) * time.Millisecond)
}

// ByteText writes a size with three digits or so.
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

// ValueWidth is how much of a value a table shows, in bytes.
const ValueWidth = 60

// MaxNames is how many columns a message names.
const MaxNames = 20

// ColumnNames lists columns for a message.
func ColumnNames(names []string) string {
	var list []string
	for i, name := range names {
		if i == MaxNames {
			list = append(list, fmt.Sprintf("%d more", len(names)-MaxNames))
			break
		}
		list = append(list, Printable(name))
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
		text += Shortened(row, ValueWidth/2)
	}
	return text
}
