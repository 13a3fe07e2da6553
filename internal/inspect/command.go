package inspect

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// This file writes commands for pasting into a shell.

// Commands formats the commands in advice. Names in them may have been chosen by anyone, so each
// can be pasted into a shell as it is.
type Commands struct {
	Program string // the name by which the user calls this program
	// Flags are those by which the user has reached the cluster, such as "--addr db1"; they end the commands
	// that talk to a node.
	Flags string
}

// Offline matches the commands that talk to no node.
var Offline = regexp.MustCompile(
	`^(start|dev|cert|completion|help|version|recover (apply|inspect|plan)|backup (ls|prune|verify))\b`)

// reach returns the flags for a command.
func (c Commands) reach(command string) string {
	if c.Flags == "" || Offline.MatchString(command) || strings.HasSuffix(command, " --help") {
		return ""
	}
	return c.Flags
}

// Operand is an argument of a suggested command: its name in the usage line, and its value.
type Operand struct{ What, Value string }

// Suggest returns a command line of this program, in backquotes. flags is written as it is. A row
// that can't be typed is given as a Go literal; for any other operand that can't, the word of the
// usage line stands.
func (c Commands) Suggest(path, flags string, operands ...Operand) string {
	var args []string
	escaped, dash := false, false
	for _, o := range operands {
		if !isPastable(o.Value) && o.What == "ROW" {
			escaped = true
		}
	}
	for _, o := range operands {
		text := o.Value
		switch {
		case o.What == "ROW" && escaped:
			text = strconv.QuoteToASCII(text)
		case !isPastable(text):
			text = o.What
		}
		dash = dash || strings.HasPrefix(text, "-")
		args = append(args, Quote(text))
	}
	words := []string{Quote(c.Program), path}
	if escaped {
		flags += " --escape go"
	}
	flags = strings.TrimSpace(flags + " " + c.reach(path+" "+flags))
	if dash { // an operand that looks like a flag: flags end before it
		args = append([]string{flags, "--"}, args...)
	} else {
		args = append(args, flags)
	}
	words = slices.DeleteFunc(append(words, args...), func(word string) bool { return word == "" })
	return "`" + strings.Join(words, " ") + "`"
}

// commandTemplate is a command in advice, before any foreign text is put into it.
var commandTemplate = regexp.MustCompile("`[^`]+`")

// Advice writes the commands in backquotes out in full: with the program's name, and with the
// operands in place of their names.
func (c Commands) Advice(text string, operands ...Operand) string {
	return commandTemplate.ReplaceAllStringFunc(text, func(template string) string {
		var path, flags []string
		var args []Operand
		for word := range strings.FieldsSeq(strings.Trim(template, "`")) {
			i := slices.IndexFunc(operands, func(o Operand) bool { return o.What == word })
			switch {
			case i >= 0:
				args = append(args, operands[i])
			case len(flags) > 0 || strings.HasPrefix(word, "-"):
				flags = append(flags, word)
			case len(args) > 0: // a number, or N for one that the reader has to choose
				args = append(args, Operand{word, word})
			default:
				path = append(path, word)
			}
		}
		return c.Suggest(strings.Join(path, " "), strings.Join(flags, " "), args...)
	})
}

// WithOwnName replaces the program name percolator in the commands of a node's text by this
// program's name and the user's connection flags.
func (c Commands) WithOwnName(text string) string {
	return commandTemplate.ReplaceAllStringFunc(text, func(quoted string) string {
		command, ours := strings.CutPrefix(strings.Trim(quoted, "`"), "percolator ")
		if !ours {
			return quoted
		}
		return "`" + strings.TrimSpace(Quote(c.Program)+" "+command+" "+c.reach(command)) + "`"
	})
}

// isPastable reports whether a name can be pasted unchanged. Others are escaped on their way to the
// terminal, so pasting them would yield another name.
func isPastable(name string) bool { return Escape(name, "") == name }

// Quote quotes a word for a POSIX shell: unchanged if no character is special there, else in single
// quotes, in which only the quote itself is special. A word cannot contain a NUL.
func Quote(word string) string {
	special := func(r rune) bool {
		return r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r) &&
			!strings.ContainsRune("_-+:,./@", r)
	}
	if word != "" && !strings.ContainsFunc(word, special) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
