package shell

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/percolator-go/percolator/internal/coded"
)

// ReadableNumber replaces package strconv's text in the error about a flag's value.
func ReadableNumber(err error) error {
	var num *strconv.NumError
	if !errors.As(err, &num) {
		return err
	}
	problem := "not a number"
	if errors.Is(err, strconv.ErrRange) {
		problem = "out of range"
	}
	return errors.New(strings.ReplaceAll(err.Error(), num.Error(), fmt.Sprintf("%q is %s", num.Num, problem)))
}

// DashHint adds to the error about an unknown -x how an argument is written that begins with a
// dash.
func DashHint(err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) || unknown.GetSpecifiedShortnames() == "" {
		return err
	}
	return coded.Errorf("", "%w: write -- before an argument that begins with a dash: -- -%s", err,
		unknown.GetSpecifiedShortnames())
}

// NoArgs is like cobra.NoArgs, but its error names similar commands.
func NoArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if cmd.HasSubCommands() {
		cmd.SuggestionsMinimumDistance = 2
		text := fmt.Sprintf("unknown command %q", args[0])
		if similar := cmd.SuggestionsFor(args[0]); len(similar) > 0 {
			text += fmt.Sprintf(" (did you mean %s?)", strings.Join(similar, " or "))
		}
		return Usagef(cmd, "%s", text)
	}
	return Usagef(cmd, "takes no arguments, got %q", args)
}

// UsageArgs derives the number of arguments from a usage line: words in brackets are
// optional, dots stand for any number, and the first flag ends the arguments.
func UsageArgs(use string) cobra.PositionalArgs {
	least, most, optional := 0, 0, false
	for _, word := range strings.Fields(use)[1:] {
		if strings.HasPrefix(strings.TrimLeft(word, "[{("), "-") || word == "|" {
			break
		}
		optional = optional || word[0] == '[' || word[0] == '{' && !strings.HasSuffix(word, "}")
		if !optional {
			least++
		}
		if most++; strings.Contains(word, "...") {
			most = math.MaxInt
			break
		}
	}
	if most == 0 {
		return NoArgs
	}
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < least:
			return Usagef(cmd, "too few arguments: usage is %s", cmd.UseLine())
		case len(args) > most:
			return Usagef(cmd, "too many arguments: usage is %s", cmd.UseLine())
		}
		return nil
	}
}
