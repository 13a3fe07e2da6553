package inspect

import (
	"strings"
	"testing"
)

func TestShortened(t *testing.T) {
	for _, tc := range []struct{ in, want string }{
		{"short", "short"},
		{strings.Repeat("a", 11), "aaaaaaaaaa… (11 bytes)"},
		{"123456789ü", "123456789… (11 bytes)"},
		{strings.Repeat("\x00", 10), `"\x00\x00\x00\x00"… (10 bytes)`},
		{"\x00\x00\x00\x00", `"\x00\x00\x00\x00"`},
	} {
		if got := Shortened(tc.in, 10); got != tc.want {
			t.Errorf("%q is shortened to %s, want %s", tc.in, got, tc.want)
		}
	}
}
