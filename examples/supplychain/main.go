// Supplychain maintains the packages of a distribution that an advisory affects, directly or
// through dependencies, while packages and advisories change.
//
//	supplychain figures [--verify]           load apt's lists into a throw-away node and measure
//	supplychain dev --page 127.0.0.1:7820    run a throw-away node with a page
//	supplychain import                       import apt's lists, those of the release first
//	supplychain import testdata/Packages     import another list
//	supplychain advise DSA-1 libssl3 3.1-1   publish an advisory on versions before 3.1-1
//	supplychain affected DSA-1               list the affected names
//	supplychain path DSA-1 curl              print the path from the advisory to a name
//	supplychain compare                      compare with a batch computation
//
// The program uses package app, so it has all other commands too. schema.go has the tables and
// observers. import writes the cells of packages. The observer link maintains the edges of the
// graph: from a name to the packages that depend on it, including as an alternative, and from a
// package to the names that it provides. The observer judge compares versions and marks the
// packages that an advisory affects; recipes/closure stores the graph and spreads the marks. A
// name that is both a package and provided by another package is reached through either.
//
// The page shows the spread of advisories as text and reloads every second.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/app"
	"github.com/percolator-go/percolator/node"
)

var errDiffers = errors.New("they differ")

func main() {
	var page string
	var verifying bool
	app.Main(register,
		app.Flags(func(flags *flag.FlagSet) {
			flags.StringVar(&page, "page", "", "serve the page at this address; default: no page")
		}),
		app.OnStart(func(ctx context.Context, n *node.Node) error {
			if page == "" {
				return nil
			}
			return serve(ctx, n.DB(), page)
		}),
		app.Command("import [FILE...]", "Load lists of packages; without any, apt's",
			func(ctx context.Context, call *app.Invocation) error {
				db, err := call.DB(ctx)
				if err != nil {
					return err
				}
				return loadFiles(ctx, db, call)
			}),
		app.Command("advise ID PACKAGE [FIXED]", "Publish an advisory on a package below a version",
			func(ctx context.Context, call *app.Invocation) error {
				version := strings.Join(call.Args[2:], "")
				return change(ctx, call, func(tx *percolator.Tx) {
					advise(tx, call.Args[0], call.Args[1], version)
				})
			}),
		app.Command("withdraw ID PACKAGE", "Take an advisory on a package back",
			func(ctx context.Context, call *app.Invocation) error {
				return change(ctx, call, func(tx *percolator.Tx) {
					withdraw(tx, call.Args[0], call.Args[1])
				})
			}),
		app.Command("affected ID", "List what an advisory reaches", listAffected),
		app.Command("path ID PACKAGE", "Show how an advisory reaches a package", showPath),
		app.Command("compare", "Compare with a batch computation, when nothing is left to run",
			runVerify),
		app.Command("figures [FILE...]", "Load a throw-away node and measure cascades", func(
			ctx context.Context, call *app.Invocation) error {
			return figures(ctx, call, verifying)
		}, func(flags *flag.FlagSet) {
			flags.BoolVar(&verifying, "verify", false, "compare each settled state with a batch's")
		}),
	)
}

func loadFiles(ctx context.Context, db *percolator.DB, call *app.Invocation) (err error) {
	files := call.Args
	if len(files) == 0 {
		if files, err = lists(); err != nil {
			return err
		}
	}
	for _, file := range files {
		count, err := load(ctx, db, file)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(call.Stdout, "%d packages in %s\n", count, file); err != nil {
			return err
		}
	}
	return nil
}

func change(ctx context.Context, call *app.Invocation, fn func(tx *percolator.Tx)) error {
	db, err := call.DB(ctx)
	if err != nil {
		return err
	}
	return db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
		fn(tx)
		return nil
	})
}

func reading(ctx context.Context, call *app.Invocation,
	fn func(*percolator.Snapshot) error) (err error) {
	db, err := call.DB(ctx)
	if err != nil {
		return err
	}
	s, err := db.Snapshot(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return fn(s)
}

func listAffected(ctx context.Context, call *app.Invocation) error {
	return reading(ctx, call, func(s *percolator.Snapshot) error {
		for r, err := range affects.Reached(ctx, s, call.Args[0]) {
			if err != nil {
				return err
			}
			if _, err := fmt.Fprintf(call.Stdout, "%s\t%d\t%s\n", r.Node, r.Depth, r.Parent); err != nil {
				return err
			}
		}
		p, err := affects.Progress(ctx, s, call.Args[0])
		if err == nil && p.Waiting > 0 {
			_, err = fmt.Fprintf(call.Stderr, "not all of it: %d names are waiting\n", p.Waiting)
		}
		return err
	})
}

func showPath(ctx context.Context, call *app.Invocation) error {
	return reading(ctx, call, func(s *percolator.Snapshot) error {
		path, err := affects.Path(ctx, s, call.Args[0], call.Args[1])
		if err != nil {
			return err
		}
		if path == nil {
			return fmt.Errorf("%s does not reach %s", call.Args[0], call.Args[1])
		}
		_, err = fmt.Fprintln(call.Stdout, strings.Join(path, " → "))
		return err
	})
}

func runVerify(ctx context.Context, call *app.Invocation) error {
	db, err := call.DB(ctx)
	if err != nil {
		return err
	}
	if err := db.WaitIdle(ctx); err != nil {
		return err
	}
	return reading(ctx, call, func(s *percolator.Snapshot) error {
		advised, names, err := verify(ctx, s)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(call.Stdout, "%d advisories, %d affected names: equal\n", advised, names)
		return err
	})
}
