// Package coded has errors with a code and a message. The code is an error of its own, which
// errors.Is finds; the message is the text without the name of the package that begins it, so
// that an error that wraps another names the package once, and no text is searched or cut.
//
// The package has no state; errors are immutable and may be shared.
package coded

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// coded is an error that knows its message without the package's name.
type coded struct {
	pkg, message string
	wraps        error // nil: none
}

// Error returns the message after the package's name.
func (e *coded) Error() string {
	if e.pkg == "" {
		return e.message
	}
	return e.pkg + ": " + e.message
}

// Text returns the message, without the package's name.
func (e *coded) Text() string { return e.message }

// Unwrap returns the formatted error, which wraps the causes.
func (e *coded) Unwrap() error { return e.wraps }

// New returns a code with its message. An empty pkg adds no name.
func New(pkg, message string) error { return &coded{pkg: pkg, message: message} }

// Errorf is fmt.Errorf for errors of a package: errors among args contribute their Text, and
// pkg begins the text once. An empty pkg adds no name.
func Errorf(pkg, format string, args ...any) error {
	messages := slices.Clone(args)
	for i, arg := range messages {
		if err, ok := arg.(error); ok {
			messages[i] = message(Text(err))
		}
	}
	return &coded{pkg, fmt.Errorf(format, messages...).Error(), fmt.Errorf(format, args...)}
}

// message is the Text of an error. Errorf formats it in place of that error.
type message string

// Error returns the message.
func (m message) Error() string { return string(m) }

// Text returns err's text without the leading name of its package, for an error of this package or
// any other with a method Text, else err.Error(). Joined errors have a line each.
func Text(err error) string {
	if e, ok := err.(interface{ Text() string }); ok {
		return e.Text()
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return err.Error()
	}
	var texts, messages []string
	for _, e := range joined.Unwrap() {
		texts, messages = append(texts, e.Error()), append(messages, Text(e))
	}
	if strings.Join(texts, "\n") != err.Error() { // not of errors.Join: it has a text of its own
		return err.Error()
	}
	return strings.Join(messages, "\n")
}

// marked is an error with an additional code.
type marked struct{ err, code error }

// Mark returns err with a code that its text does not show.
func Mark(err, code error) error { return &marked{err, code} }

// Error returns the text of the marked error.
func (e *marked) Error() string { return e.err.Error() }

// Text is that of the marked error.
func (e *marked) Text() string { return Text(e.err) }

// Is reports whether target is the code.
func (e *marked) Is(target error) bool { return errors.Is(e.code, target) }

// Unwrap is the error without the code.
func (e *marked) Unwrap() error { return e.err }
