//go:build linux

package demo

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/examples/webindex/page"
	"github.com/percolator-go/percolator/examples/webindex/schema"
)

// words are the vocabulary of the pages.
var words = strings.Fields("anchor ballast cable deck estuary ferry galley harbour island jetty " +
	"keel lagoon mast north oar pilot quay reef sail tide upwind vessel wharf yawl")

// editEvery is the pause between edits once all pages are loaded.
const editEvery = 100 * time.Millisecond

// crawl loads pages and then edits one after another until ctx ends. It waits for the cluster
// through any failure. Its goroutine sets the counters; any goroutine may read them.
type crawl struct {
	db    *percolator.DB
	total int

	loaded, edited atomic.Int64
	// slowest is the longest duration of a transaction since it was last read, in nanoseconds.
	// began is the start of the transaction in flight; nil means none.
	slowest atomic.Int64
	began   atomic.Pointer[time.Time]
}

// slowestWrite returns the longest duration of an edit since the last call, including the one in
// flight.
func (c *crawl) slowestWrite() time.Duration {
	slowest := time.Duration(c.slowest.Swap(0))
	if began := c.began.Load(); began != nil {
		slowest = max(slowest, time.Since(*began))
	}
	return slowest
}

func (c *crawl) run(ctx context.Context) {
	work := c.db.Loader(percolator.LoaderConfig{Name: "demo.load"})
	for n := range c.total {
		if err := work.Load(ctx, func(_ context.Context, tx *percolator.Tx) error {
			c.write(tx, n, 0)
			return nil
		}); err != nil {
			break
		}
		c.loaded.Store(int64(n + 1))
	}
	_ = work.Close() // a page that failed is written by a later edit
	tick := time.NewTicker(editEvery)
	defer tick.Stop()
	for edition := 1; ctx.Err() == nil; edition++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		began := time.Now()
		c.began.Store(&began)
		err := c.db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
			c.write(tx, rand.IntN(c.total), edition)
			return nil
		})
		if err == nil {
			c.edited.Add(1)
		}
		c.slowest.Store(max(c.slowest.Load(), int64(time.Since(began))))
		c.began.Store(nil)
	}
}

// write sets an edition of a page: random words and links to earlier pages, so that the first pages
// have the most links.
func (c *crawl) write(tx *percolator.Tx, n, edition int) {
	rng := rand.New(rand.NewPCG(uint64(n), uint64(edition)))
	pick := func() string { return words[rng.IntN(len(words))] }
	var b strings.Builder
	fmt.Fprintf(&b, "<html><head><title>%s %s %d</title></head><body><p>", pick(), pick(), n)
	for range 40 {
		b.WriteString(pick() + " ")
	}
	for range 3 {
		to := int(float64(n) * rng.Float64() * rng.Float64())
		fmt.Fprintf(&b, `<a href="%s">%s</a> `, url(to), pick())
	}
	fmt.Fprintf(&b, "</p><p>edition %d</p></body></html>", edition)
	raw := []byte(b.String())
	tx.Set(url(n), schema.Pages(schema.Raw), raw)
	tx.Set(url(n), schema.Pages(schema.Sum), []byte(page.Hash(raw)))
}

func url(n int) string { return fmt.Sprintf("http://demo.example/%05d.html", n) }
