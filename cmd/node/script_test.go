package main

import (
	"io"
	"regexp"

	"github.com/rogpeppe/go-internal/testscript"
)

// readInto copies to the transcript's standard output, a mebibyte at most.
func readInto(ts *testscript.TestScript, from io.Reader) (int64, error) {
	return io.Copy(ts.Stdout(), io.LimitReader(from, 1<<20))
}

// matches reports whether the text matches, ^ and $ at lines.
func matches(ts *testscript.TestScript, pattern, text string) bool {
	re, err := regexp.Compile("(?m)" + pattern)
	ts.Check(err)
	return re.MatchString(text)
}
