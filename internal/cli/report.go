package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/percolator-go/percolator/internal/cli/nodecmd"
	"github.com/percolator-go/percolator/internal/cli/shell"
	"github.com/percolator-go/percolator/internal/coded"
	"github.com/percolator-go/percolator/node/config"
)

// report writes the error and its remedy to standard error, and returns the exit code.
func report(d *shell.Deps, cmd *cobra.Command, err error) int {
	if usage, ok := errors.AsType[*shell.UsageError](err); ok {
		if usage.Cmd != nil {
			cmd = usage.Cmd
		}
		complain(d.Out, cmd, err)
		if usage.Help {
			_, _ = fmt.Fprintf(d.Out.Stderr, "\n%s", cmd.UsageString())
		} else {
			d.Out.Next("see %s --help", cmd.CommandPath())
		}
		return shell.ExitUsage
	}
	complain(d.Out, cmd, err)
	if len(configFaults(err)) > 0 {
		return shell.ExitUsage
	}
	code, hint := d.Conn.Classify(err)
	own := &shell.HintError{Hint: hint}
	errors.As(err, &own) // a command's own advice is more specific
	if own.Hint != "" {
		d.Out.Next("%s", d.Out.Advice(own.Hint, own.Operands...))
	}
	return code
}

// complain prints the error, with one line per fault of a configuration.
func complain(p *shell.Printer, cmd *cobra.Command, err error) {
	if faults := configFaults(err); len(faults) > 0 {
		_, _ = fmt.Fprintf(p.Stderr, "%s: the node cannot start with these settings:\n",
			cmd.CommandPath())
		for _, f := range faults {
			name := nodecmd.SettingName(f.Field)
			line := "  " + name + shell.Origin(cmd, strings.TrimPrefix(name, "--")) + ": " + f.Problem
			if f.Fix != "" {
				line += "; " + f.Fix
			}
			_, _ = io.WriteString(p.Stderr, shell.OneLine(line)+"\n")
		}
		return
	}
	text := p.WithOwnName(coded.Text(err)) // the command's name replaces the package's
	// Joined errors have a line each, indented so that none can be mistaken for advice.
	_, _ = fmt.Fprintf(p.Stderr, "%s: %s\n", cmd.CommandPath(),
		strings.ReplaceAll(text, "\n", "\n      "))
}

// configFaults lists the config.Faults in err.
func configFaults(err error) []*config.Fault {
	var faults []*config.Fault
	var walk func(error)
	walk = func(err error) {
		if f, ok := err.(*config.Fault); ok { //nolint:errorlint // the tree is walked by hand
			faults = append(faults, f)
			return
		}
		switch e := err.(type) { //nolint:errorlint // likewise
		case interface{ Unwrap() []error }:
			for _, sub := range e.Unwrap() {
				walk(sub)
			}
		case interface{ Unwrap() error }:
			if sub := e.Unwrap(); sub != nil {
				walk(sub)
			}
		}
	}
	walk(err)
	return faults
}
