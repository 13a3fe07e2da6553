package shell

import (
	"testing"

	"github.com/percolator-go/percolator/internal/inspect"
)

func TestByteSize(t *testing.T) {
	for text, want := range map[string]uint64{
		"0": 0, "7": 7, "7B": 7, "1KiB": 1 << 10, "96MiB": 96 << 20, "100663296": 96 << 20,
		"3 GiB": 3 << 30, "2TiB": 2 << 40, "1536KiB": 1536 << 10,
	} {
		var b, again ByteSize
		if err := b.Set(text); err != nil || uint64(b) != want {
			t.Errorf("%s: %d, %v", text, b, err)
		}
		if err := again.Set(b.String()); err != nil || again != b {
			t.Errorf("%s: printed as %s, read as %d, %v", text, b.String(), again, err)
		}
	}
	for _, text := range []string{"", "MiB", "-1", "1.5GiB", "96MB", "96M", "1iB", "99999999999TiB",
		"1e9", "1 2"} {
		var b ByteSize
		if err := b.Set(text); err == nil {
			t.Errorf("%q: %d", text, b)
		}
	}
}

func FuzzPrintable(f *testing.F) {
	for _, s := range []string{"", "text", " padded ", `"quoted"`, "a\x00b", "\xff",
		"ünïcode\u200b", "line\nbreak"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		shown := inspect.Printable(s)
		if shown == s {
			return // unchanged
		}
		if back, err := Unescape(EscapeGo, shown); err != nil || back != s {
			t.Errorf("%q is shown as %s, which --escape go reads as %q: %v", s, shown, back, err)
		}
	})
}

func TestUnescape(t *testing.T) {
	for _, tc := range []struct{ how, arg, want string }{
		{escapeText, `a\x00`, `a\x00`}, {EscapeGo, `a\x00b`, "a\x00b"},
		{EscapeGo, `"a\x00b"`, "a\x00b"}, {EscapeGo, `v\n"`, "v\n\""},
		{EscapeGo, `\u00fc\xff`, "ü\xff"}, {EscapeGo, ``, ""}, {escapeHex, "00ff", "\x00\xff"},
		{escapeBase64, "/wA=", "\xff\x00"},
	} {
		if got, err := Unescape(tc.how, tc.arg); err != nil || got != tc.want {
			t.Errorf("%s %s is %q, want %q; %v", tc.how, tc.arg, got, tc.want, err)
		}
	}
	for _, tc := range []struct{ how, arg string }{{EscapeGo, `a\`}, {EscapeGo, `\q`},
		{escapeHex, "0"}, {escapeBase64, "?"}, {"rot13", "a"}} {
		if got, err := Unescape(tc.how, tc.arg); err == nil {
			t.Errorf("%s %s is %q, want an error", tc.how, tc.arg, got)
		}
	}
}
