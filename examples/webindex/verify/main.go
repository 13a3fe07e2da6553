// Verify compares the web index that a running node holds with the one that it computes
// itself from the pages alone:
//
//	go run ./examples/webindex/verify --addr 127.0.0.1:7800 --pages DIR
//
// It exits with 0 if there is no difference, with 1 and the first differences if there
// are some or it can't tell, and with 2 on wrong usage. It is a program of its own: no
// observer, actor or store is among its dependencies.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/examples/webindex/batch"
	"github.com/percolator-go/percolator/examples/webindex/corpus"
)

type options struct {
	addr, pages string
	client      percolator.ClientConfig
	limit, show int
	timeout     time.Duration
}

func main() {
	var o options
	flag.StringVar(&o.addr, "addr", "127.0.0.1:7800", "addresses of nodes, separated by commas")
	flag.StringVar(&o.pages, "pages", "",
		"tree of HTML that was loaded; default: the generated corpus")
	flag.StringVar(&o.client.CertFile, "cert", "", "client certificate")
	flag.StringVar(&o.client.KeyFile, "key", "", "the certificate's key")
	flag.StringVar(&o.client.CAFile, "ca", "",
		"certificate authority of the nodes (default: no TLS)")
	flag.IntVar(&o.limit, "limit", 0, "only the first pages by URL were loaded; 0: all")
	flag.IntVar(&o.show, "show", 20, "how many differences to print")
	flag.DurationVar(&o.timeout, "timeout", 5*time.Minute, "give up after this long")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "verify: unexpected argument %q\n", flag.Arg(0))
		os.Exit(2)
	}
	os.Exit(start(o))
}

// start returns the exit code: 0 no difference, 1 different or unknown.
func start(o options) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "verify:", err)
		return 1
	}
	return 0
}

var errDifferent = errors.New("the index differs from the expected one")

func run(ctx context.Context, o options) error {
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	if o.pages == "" {
		dir, err := corpus.DefaultDir()
		if err != nil {
			return err
		}
		if err := corpus.Generate(ctx, dir); err != nil {
			return err
		}
		o.pages = dir
	}
	o.client.Insecure = o.client.CAFile == ""
	db, err := percolator.Dial(ctx, strings.Split(o.addr, ","), o.client)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }() // nothing was written
	if err := db.WaitIdle(ctx); err != nil {
		return err
	}
	snapshot, err := db.Snapshot(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = snapshot.Close() }() // only a lease, which ends by itself
	result, err := batch.Verify(ctx, o.pages, o.limit, snapshot, o.show)
	if err != nil {
		return err
	}
	fmt.Println(result)
	if result.Differences > 0 {
		return errDifferent
	}
	return nil
}
