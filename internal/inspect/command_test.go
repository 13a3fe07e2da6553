package inspect

import (
	"os/exec"
	"strings"
	"testing"
)

// FuzzQuote compares with the shell itself.
func FuzzQuote(f *testing.F) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		f.Skip("no shell")
	}
	for _, s := range []string{"", "plain", "two words", "$(touch /tmp/x)", "it's", "`id`",
		"a\nb\n", "-n", "~", "\\", "!x", "é\xff", "*", "=ls"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if strings.Contains(s, "\x00") {
			t.Skip("no argument holds a NUL")
		}
		out, err := exec.Command(sh, "-c", "printf %s "+Quote(s)).CombinedOutput()
		if s == "-n" || err == nil && string(out) == s {
			return
		}
		t.Errorf("%q is quoted as %s, which the shell takes for %q: %v", s, Quote(s), out, err)
	})
}

// TestSuggest: a suggested command names its object, or there is none.
func TestSuggest(t *testing.T) {
	out := Commands{Program: "percolator"}
	for _, tc := range []struct {
		observer, row, want string
	}{
		{"greet", "bob", "`percolator notify replay greet bob`"},
		{"greet", "$(touch /tmp/x)", "`percolator notify replay greet '$(touch /tmp/x)'`"},
		{"it's", "two words", "`percolator notify replay 'it'\\''s' 'two words'`"},
		{"greet", "--all-parked", "`percolator notify replay -- greet --all-parked`"},
		{"greet", "a\x00b", "`percolator notify replay greet '\"a\\x00b\"' --escape go`"},
		{"gr\x1beet", "bob", "`percolator notify replay OBSERVER bob`"},
		{"greet", "", "`percolator notify replay greet ''`"},
	} {
		got := out.Suggest("notify replay", "", Operand{"OBSERVER", tc.observer},
			Operand{"ROW", tc.row})
		if got != tc.want {
			t.Errorf("%q, %q: %s, want %s", tc.observer, tc.row, got, tc.want)
		}
	}
}
