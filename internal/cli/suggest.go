package cli

import (
	"strconv"
	"strings"
	"unicode"
)

// Advice may hold command lines for pasting into a shell, and the names in them may have been
// chosen by anyone. Every such line is made here.

// operand is an argument of a suggested command: what the usage line calls it, and its value.
type operand struct{ what, value string }

// suggest returns a command line of this program, in backquotes. flags is written as it is. A
// row that can't be typed is given as a Go literal; any other name that can't stays what the
// usage line calls it.
func (r *run) suggest(path, flags string, operands ...operand) string {
	var args []string
	escaped, dash := false, false
	for _, o := range operands {
		if !typable(o.value) && o.what == "ROW" {
			escaped = true
		}
	}
	for _, o := range operands {
		text := o.value
		switch {
		case o.what == "ROW" && escaped:
			text = strconv.QuoteToASCII(text)
		case !typable(text):
			text = o.what
		}
		dash = dash || strings.HasPrefix(text, "-")
		args = append(args, shellQuote(text))
	}
	words := []string{shellQuote(r.Name), path}
	if escaped {
		flags = strings.TrimSpace(flags + " --escape " + escapeGo)
	}
	if dash { // an operand that looks like a flag: flags end before it
		words = append(append(words, strings.Fields(flags)...), "--")
		words = append(words, args...)
	} else {
		words = append(append(words, args...), strings.Fields(flags)...)
	}
	return "`" + strings.Join(words, " ") + "`"
}

// typable reports whether a name can be pasted as it is: any other is escaped on its way to the
// terminal, and what is pasted would be another name.
func typable(name string) bool { return escape(name, "") == name }

// shellQuote writes a word for a POSIX shell: as it is if no character of it means anything
// there, else in single quotes, inside of which nothing does but the quote itself. No word can
// hold a NUL.
func shellQuote(word string) string {
	special := func(r rune) bool {
		return r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("_-+:,./@", r)
	}
	if word != "" && !strings.ContainsFunc(word, special) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
