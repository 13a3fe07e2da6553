// Pipeline keeps a vector index of documents, outside the repository, in step with the documents. The
// documents are the doc comments of Go's standard library, cut into pieces; the vectors are bought
// from a service that is slow, limits the rate of calls and fails now and then.
//
//	pipeline try [--verify] [PACKAGE...]   load and change documents in a throw-away node; print costs
//	pipeline services                      run the embedder and the index
//	pipeline dev                           run a throw-away node that uses them
//	pipeline import [PACKAGE...]           load packages; without any, some
//	pipeline remove PREFIX                 delete the documents whose path begins with PREFIX
//	pipeline search WORD...                find the pieces nearest to words
//	pipeline page                          serve a page that searches
//	pipeline compare                       compare the index with a computation from scratch
//
// With --embed-apart another program runs the observer embed, such as worker/embed.ts.
//
// The program uses package app, so it has all other commands too. schema.go has the tables and
// observers, services.go the calls of the services, verify.go the comparison. Packages embedder and
// vectors are the services.
package main

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/app"
	"github.com/percolator-go/percolator/examples/pipeline/embedder"
	"github.com/percolator-go/percolator/node"
)

func main() {
	s := &services{sweepEvery: time.Minute}
	urls := func(flags *flag.FlagSet) {
		flags.StringVar(&s.embedder, "embedder", "http://"+embedderAddr, "URL of the embedder")
		flags.StringVar(&s.index, "index", "http://"+indexAddr, "URL of the index")
	}
	registering := func(flags *flag.FlagSet) {
		urls(flags)
		flags.BoolVar(&s.embedsApart, "embed-apart", false, "leave the observer embed to another program")
	}
	var config serverConfig
	var pageAddr string
	var verifying bool
	app.Main(s.register,
		app.Flags(registering),
		app.OnStart(func(ctx context.Context, n *node.Node) error {
			return s.jobs().Start(ctx, n.DB())
		}),
		app.Command("services", "Run the embedder and the index",
			func(ctx context.Context, call *app.Invocation) error {
				return runServices(ctx, call, config)
			}, config.flags),
		app.Command("import [PACKAGE...]", "Load packages of Go's standard library", importPackages),
		app.Command("remove PREFIX", "Delete the documents whose path begins with a prefix",
			func(ctx context.Context, call *app.Invocation) error {
				db, err := call.DB(ctx)
				if err != nil {
					return err
				}
				return remove(ctx, db, call.Args[0])
			}),
		app.Command("search WORD...", "Find the pieces nearest to words", s.runSearch, urls),
		app.Command("page", "Serve a page that searches",
			func(ctx context.Context, call *app.Invocation) error {
				url, ended, err := serve(ctx, pageAddr, s.page())
				if err == nil {
					_, err = fmt.Fprintln(call.Stdout, "search:", url)
				}
				if err != nil {
					return err
				}
				return <-ended
			}, urls, func(flags *flag.FlagSet) {
				flags.StringVar(&pageAddr, "page", "127.0.0.1:7832", "address of the page")
			}),
		app.Command("compare", "Compare the index with a computation from scratch", s.compare, urls),
		app.Command("try [PACKAGE...]", "Load and change documents in a throw-away node",
			func(ctx context.Context, call *app.Invocation) error {
				return try(ctx, call, config, verifying)
			}, config.flags, func(flags *flag.FlagSet) {
				flags.BoolVar(&verifying, "verify", false, "compare with a computation from scratch")
			}),
	)
}

func importPackages(ctx context.Context, call *app.Invocation) error {
	files, err := readStandard(ctx, call.Args)
	if err != nil {
		return err
	}
	db, err := call.DB(ctx)
	if err != nil {
		return err
	}
	changed, err := load(ctx, db, files)
	if err == nil {
		_, err = fmt.Fprintf(call.Stdout, "%d documents, %d of them new or changed\n", len(files), changed)
	}
	return err
}

// readStandard reads packages of the standard library; without any, those of standard.
func readStandard(ctx context.Context, packages []string) ([]file, error) {
	if len(packages) == 0 {
		packages = standard
	}
	root, err := source(ctx)
	if err != nil {
		return nil, err
	}
	return read(root, packages)
}

func (s *services) runSearch(ctx context.Context, call *app.Invocation) error {
	hits, err := s.search(ctx, embedder.Embed(strings.Join(call.Args, " ")), 5)
	for _, h := range hits {
		if _, err := fmt.Fprintf(call.Stdout, "%.3f\t%s\n%s\n\n", h.Score, h.ID, h.Text); err != nil {
			return err
		}
	}
	return err
}

func (s *services) compare(ctx context.Context, call *app.Invocation) error {
	db, err := call.DB(ctx)
	if err != nil {
		return err
	}
	if err := db.WaitIdle(ctx); err != nil {
		return err
	}
	return db.View(ctx, func(ctx context.Context, r *percolator.Snapshot) error {
		got, err := s.verify(ctx, r)
		if err == nil {
			_, err = fmt.Fprintln(call.Stdout, got)
		}
		return err
	})
}
