// Webindex keeps an index of web pages up to date by observers (§2.4, §3.1): it starts a
// node that links them, loads a tree of HTML pages, and prints what came of it. Then it
// stays up until it is interrupted.
//
//	go run .                          the default corpus on a throw-away node
//	go run . --exit --verify          the default corpus, compared with a batch program's result
//	go run . --dir D --edit 1% --exit load, then crawl an edited tree
//
// It is a program of package app, so the other commands are there as well: "webindex
// start" runs a node of a cluster that links the observers, "webindex why" asks one. The
// same index on a cluster that loses nodes: `percolator demo --nodes 3`.
//
// Meanwhile the canonical pages are exported to a full-text index, beside the node's
// directory, and --search serves a page that searches it.
//
// Below --pages, every top directory is a host. A node directory (--dir) may be used
// again: only what changed is loaded. Packages: corpus makes and edits pages, page parses
// them, schema names the tables, index has the observers, export keeps the full-text
// index, search serves it, batch and the command verify compute the index independently.
package main

import (
	"context"
	"errors"
	"flag"
	"log/slog"
	"os"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/percolator-go/percolator/app"
	"github.com/percolator-go/percolator/examples/webindex/index"
)

// options holds the command line's options.
type options struct {
	pages   string
	corpus  string
	dir     string
	listen  string
	http    string
	search  string
	limit   int
	edit    share
	seed    uint64
	exit    bool
	verify  bool
	quiet   bool
	reindex bool
}

// share is a fraction, written as 1% or 0.01.
type share float64

// String implements flag.Value.
func (s *share) String() string { return strconv.FormatFloat(float64(*s)*100, 'g', -1, 64) + "%" }

// Set implements flag.Value.
func (s *share) Set(text string) error {
	number, percent := strings.CutSuffix(text, "%")
	f, err := strconv.ParseFloat(number, 64)
	if err != nil {
		return err
	}
	if percent {
		f /= 100
	}
	if !(f >= 0 && f <= 1) { // nor NaN
		return errors.New("not between 0% and 100%")
	}
	*s = share(f)
	return nil
}

// define defines the flags.
func (o *options) define(flags *flag.FlagSet) {
	flags.StringVar(&o.pages, "pages", "",
		"tree of HTML, each top directory a host (default: the Go documentation, generated)")
	flags.StringVar(&o.corpus, "corpus", "",
		"tree made by scripts/corpus (make corpus); instead of --pages")
	flags.StringVar(&o.dir, "dir", "", "the node's directory, kept and used again (default: a temporary one)")
	flags.StringVar(&o.listen, "listen", "",
		"address for clients (default: 127.0.0.1:7800; with --exit a free port)")
	flags.StringVar(&o.http, "http", "", "address of the console (default: the third port after --listen; with --exit none)")
	flags.StringVar(&o.search, "search", "", "address of the search page (default: "+searchAddr+
		"; with --exit none)")
	flags.BoolVar(&o.reindex, "reindex", false, "throw the full-text index away and fill a new one")
	flags.IntVar(&o.limit, "limit", 0, "only the first pages by URL; 0: all")
	flags.Var(&o.edit, "edit", "crawl again with this share of the pages edited, such as 1%")
	flags.Uint64Var(&o.seed, "seed", 1, "seed of the edits")
	flags.BoolVar(&o.exit, "exit", false, "end after the summary")
	flags.BoolVar(&o.verify, "verify", false,
		"compare the index with a batch program's, and the full-text index with the repository; exit code 1 if they differ")
	flags.BoolVar(&o.quiet, "quiet", false, "no progress")
}

func main() {
	var o options
	app.Main(index.Register, app.Default("crawl"),
		app.Command("crawl", "Load pages, index them, and serve the index until interrupted",
			func(ctx context.Context, _ *app.Invocation) error {
				return start(ctx, o)
			}, o.define))
}

// start runs the command.
func start(ctx context.Context, o options) error {
	limitGarbage()
	return run(ctx, o, slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{
		Level: slog.LevelWarn,
	})))
}

// gcPercent is the growth of the heap, as a percentage, that triggers a collection.
const gcPercent = 50

// limitGarbage sets the garbage collector's percentage to gcPercent, unless GOGC is set. Most of
// the heap consists of the arenas in which Badger builds its tables. They are large and contain no
// pointers, so frequent collections are cheap, while Go's default would double the heap.
func limitGarbage() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}
