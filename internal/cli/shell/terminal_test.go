package shell

import "testing"

// TestEscape: foreign text stays on its line, and printable text is unchanged.
func TestEscape(t *testing.T) {
	for in, want := range map[string]string{
		"":                        "",
		"plain ünïcode 漢字 🙂":      "plain ünïcode 漢字 🙂",
		"a\x1b[31m\x07\x7f":       `a\x1b[31m\a\x7f`,
		"\u009b31m\u202e\xff\r\n": `\u009b31m\u202e\xff\r\n`,
	} {
		if got := OneLine(in); got != want {
			t.Errorf("%q is written as %s, want %s", in, got, want)
		}
	}
	if got := string(EscapeJSON([]byte("{\"a\":\"\u009bü\x7f\"}\n"))); got != `{"a":"\u009bü\u007f"}`+"\n" {
		t.Errorf("JSON is written as %q", got)
	}
}
