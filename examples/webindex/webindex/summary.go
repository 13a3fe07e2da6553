package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/examples/webindex/schema"
	"github.com/percolator-go/percolator/examples/webindex/webindex/export"
)

// observerRuns has the counters of one observer.
type observerRuns struct {
	name                     string
	runs, commits, conflicts uint64
	failures, parked         uint64
}

// errParked reports that an observer gave up on something, so the index can't be complete.
var errParked = errors.New("notifications are parked; see `percolator notify ls`")

// runs reads the observers' counters of this process.
func (a *application) runs() []observerRuns {
	status := a.node.Status()
	var all []observerRuns
	for _, o := range status.GetObservers() {
		all = append(all, observerRuns{
			o.GetName(), o.GetRuns(), o.GetCommits(), o.GetConflicts(), o.GetFailures(),
			o.GetParked(),
		})
	}
	return all
}

// parked reports whether a notification of an observer is parked.
func parked(all []observerRuns) bool {
	return slices.ContainsFunc(all, func(o observerRuns) bool { return o.parked > 0 })
}

// since subtracts the earlier counters.
func since(before, after []observerRuns) []observerRuns {
	var out []observerRuns
	for _, o := range after {
		for _, b := range before {
			if b.name == o.name {
				o.runs -= b.runs
				o.commits -= b.commits
				o.conflicts -= b.conflicts
				o.failures -= b.failures
				o.parked -= b.parked
			}
		}
		out = append(out, o)
	}
	return out
}

// settle waits until no notification is left to run, and displays the numbers of committed runs and
// of pending notifications.
func (a *application) settle(ctx context.Context) error {
	began := time.Now()
	idle := make(chan error, 1)
	go func() { idle <- a.db.WaitIdle(ctx) }()
	tick := time.NewTicker(plainEvery)
	defer tick.Stop()
	for {
		select {
		case err := <-idle:
			return err
		case <-tick.C:
			if a.quiet {
				continue
			}
			var commits uint64
			for _, o := range a.runs() {
				commits += o.commits
			}
			pending, err := a.db.Pending(ctx)
			if err != nil {
				continue // WaitIdle decides
			}
			fmt.Printf("index: %d runs of observers, %d wait, %s\n", commits, pending.Runnable,
				time.Since(began).Round(time.Second))
		}
	}
}

// summary is the summary printed after a crawl.
type summary struct {
	changes                changes
	pages, clusters, links int
	loading, indexing      time.Duration
	// from load to indexed, of the pages of this crawl, ascending
	delays  []time.Duration
	runs    []observerRuns
	exports export.Stats
	cost    cost
}

// dated says which parts one page has, and when some of them were committed.
type dated struct {
	content, canon             bool
	loaded, links, filed, hung percolator.Timestamp
}

// summarize reads the index. It computes delays only for pages loaded after from.
func (a *application) summarize(ctx context.Context, from percolator.Timestamp) (*summary, error) {
	snapshot, err := a.db.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = snapshot.Close() }() // only a lease, which ends by itself
	s, row, page := &summary{}, "", dated{}
	heads := map[string]bool{}
	for c, err := range snapshot.Scan(ctx, percolator.Rows(schema.TablePages),
		schema.Pages(schema.Sum), schema.Pages(schema.Content), schema.Pages(schema.Canon),
		schema.Pages(schema.Links), schema.Pages(schema.Filed), schema.Pages(schema.Hung)) {
		if err != nil {
			return nil, err
		}
		if c.Row != row {
			s.add(heads, row, page, from)
			row, page = c.Row, dated{}
		}
		page.take(c, heads)
	}
	s.add(heads, row, page, from)
	s.clusters = len(heads)
	slices.Sort(s.delays)
	for _, err := range snapshot.Scan(ctx, percolator.Rows(schema.TableAnchors), schema.Anchor()) {
		if err != nil {
			return nil, err
		}
		s.links++
	}
	return s, nil
}

// take records one cell of the page: its commit time, or of the content and the cluster only that there
// is one. It adds the page's cluster to heads.
func (d *dated) take(c percolator.Cell, heads map[string]bool) {
	switch c.Column.Name {
	case schema.Sum:
		d.loaded = c.CommitTS
	case schema.Content:
		d.content = true
	case schema.Canon:
		d.canon = true
		heads[string(c.Value)] = true
	case schema.Links:
		d.links = c.CommitTS
	case schema.Filed:
		d.filed = c.CommitTS
	case schema.Hung:
		d.hung = c.CommitTS
	}
}

// add counts one page. A page is indexed once it belongs to the cluster of its content and, if its
// links changed, they are stored.
func (s *summary) add(heads map[string]bool, row string, d dated, from percolator.Timestamp) {
	if !d.content {
		return
	}
	s.pages++
	if !d.canon {
		heads[row] = true
	}
	done := d.filed
	if d.links > d.loaded {
		done = max(done, d.hung)
	}
	if d.loaded > from && done > d.loaded {
		s.delays = append(s.delays, done.Time().Sub(d.loaded.Time()))
	}
}

// percentile returns the delay that p percent of the pages did not exceed.
func (s *summary) percentile(p int) time.Duration {
	if len(s.delays) == 0 {
		return 0
	}
	return s.delays[(len(s.delays)-1)*p/100]
}

// String returns the printed form of the summary.
func (s *summary) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "loaded %d pages (%d unchanged, %d removed) in %s; indexed after %s\n",
		s.changes.loaded, s.changes.unchanged, s.changes.removed,
		s.loading.Round(time.Millisecond), s.indexing.Round(time.Millisecond))
	b.WriteString(s.cost.String())
	fmt.Fprintf(&b, "index: %d pages, %d clusters, %d links\n", s.pages, s.clusters, s.links)
	if len(s.delays) > 0 {
		fmt.Fprintf(&b, "from load to indexed: p50 %s, p95 %s\n",
			s.percentile(50).Round(time.Millisecond), s.percentile(95).Round(time.Millisecond))
	}
	fmt.Fprintf(&b, "export: %d documents written and %d removed in %d batches; %d repeated and %d late ones dropped\n",
		s.exports.Written, s.exports.Removed, s.exports.Batches, s.exports.Repeated,
		s.exports.Stale)
	fmt.Fprintf(&b, "%-10s %9s %9s %9s %9s\n", "observer", "runs", "commits", "conflicts",
		"failures")
	for _, o := range s.runs {
		fmt.Fprintf(&b, "%-10s %9d %9d %9d %9d\n", o.name, o.runs, o.commits, o.conflicts,
			o.failures)
	}
	return b.String()
}
