package cli

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"strings"
	"testing"

	"github.com/percolator-go/percolator/internal/cli/shell"
	"github.com/percolator-go/percolator/internal/rpc"
	"github.com/percolator-go/percolator/internal/txn"
)

// TestOwnCommandsPrevail: a program's commands and flags keep their names when percolator has the
// same ones, as a later release may; percolator's stay reachable under other names.
func TestOwnCommandsPrevail(t *testing.T) {
	var addr, labels string
	for line, want := range map[string]string{
		"version a":                     "own version of a at ",
		"version a --addr here":         "own version of a at here",
		"percolator version":            "reports v1, for clusters at version",
		"percolator version --help":     "reports percolator version -o json",
		"start --labels own --help":     "--percolator-labels",
		"version --help":                "--percolator-addr",
		"--help":                        "Run a percolator command whose name",
		"set --percolator-addr x a b c": "unknown flag",
	} {
		var out bytes.Buffer
		addr, labels = "", ""
		app := &shell.App{
			Name: "reports", Version: "v1", Stdin: strings.NewReader(""), Stdout: &out, Stderr: &out,
			Connect: func(context.Context, []string, rpc.ClientConfig) (txn.Transport, error) {
				return bankCluster(), nil
			},
			Flags: func(flags *flag.FlagSet) { flags.StringVar(&labels, "labels", "", "the labels") },
			Commands: []shell.Command{{
				Use: "version WHAT", Short: "Print",
				Flags: func(flags *flag.FlagSet) { flags.StringVar(&addr, "addr", "", "an address") },
				Run: func(_ context.Context, call *shell.Invocation) error {
					_, err := fmt.Fprintf(call.Stdout, "own version of %s at %s", call.Args[0], addr)
					return err
				},
			}},
		}
		Run(t.Context(), app, strings.Fields(line))
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s: %s\nwant %q", line, &out, want)
		}
	}
}

// TestReservedCommands: a command that could never be called is refused at once, not in a later
// release.
func TestReservedCommands(t *testing.T) {
	for _, names := range [][]string{{"percolator"}, {"help"}, {"crawl", "crawl"}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("commands %q were accepted", names)
				}
			}()
			var own []shell.Command
			for _, name := range names {
				own = append(own, shell.Command{Use: name})
			}
			shell.OwnCommands(shell.NewDeps(&shell.App{Name: "reports", Commands: own}))
		}()
	}
}
