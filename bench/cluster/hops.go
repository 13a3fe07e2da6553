package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/percolator-go/percolator/internal/tracing"
	"github.com/percolator-go/percolator/test/cluster"
)

// Where the time of one caller's transactions goes. All transactions are traced. The starts, events
// and ends of a transaction's spans in the client and the nodes, whose clock is one, divide it into
// hops, each named by the mark that ends it.

// ends names the hops by the marks that end them: a span's start, event or end. A mark without a name
// is shown as it is.
var ends = map[string]string{
	"transaction start":    "client: transaction begins",
	"transaction end":      "client: rest of the transaction",
	"oracle start":         "client: up to the oracle",
	"oracle end":           "from the oracle: %s",
	"read start":           "client: up to the read",
	"read end":             "client: end of the read",
	"prewrite start":       "client: up to the prewrite",
	"prewrite end":         "client: end of the prewrite",
	"commit start":         "client: up to the commit",
	"commit end":           "client: end of the commit",
	"send start":           "client: locate the tablet",
	"send sent":            "client: wake the stream's writer",
	"request start":        "gRPC: client to node",
	"request worker":       "node: wake a worker",
	"serve start":          "to the tablet: %s, mailbox",
	"apply start":          "to the tablet: %s, mailbox",
	"serve oracle":         "tablet: admit, batch",
	"apply oracle":         "tablet: admit, check, reserve",
	"timestamps start":     "to the oracle: %s, mailbox",
	"timestamps confirmed": "oracle: confirm leadership",
	"timestamps end":       "oracle: issue",
	"serve timestamp":      "from the oracle: %s, mailbox",
	"apply timestamp":      "from the oracle: %s, mailbox",
	"serve read index":     "Raft: read index",
	"serve worker":         "tablet: wake a read worker",
	"serve end":            "tablet: read the store",
	"apply proposed":       "tablet: evaluate, propose",
	"apply synced":         "Raft: own log, sync",
	"apply committed":      "Raft: quorum (peer link, followers' sync)",
	"apply applied":        "apply: state actor, mailbox",
	"apply end":            "tablet: answer",
	"request end":          "node: wake the worker",
	"send received":        "gRPC: node to client",
	"send end":             "client: wake the caller",
}

// phases are the client's spans, in which hops of the same kind are counted separately.
var phases = []string{"oracle", "read", "prewrite", "commit"}

type mark struct {
	at   int64 // Unix nanoseconds
	name string
	node string // "" is the client
}

// title returns the name of the hop from one mark to the next.
func title(from, to mark) string {
	name := cmp.Or(ends[to.name], to.name)
	way := "peer link"
	switch {
	case from.node == to.node:
		way = "same node"
	case from.node == "" || to.node == "":
		way = "gRPC"
	}
	if strings.Contains(name, "%s") {
		return fmt.Sprintf(name, way)
	}
	return name
}

// hop is the time up to a kind of mark, in one phase.
type hop struct{ phase, end string }

// printHops prints one table per workload, with a column per build. The oracle runs on another node
// than the table's leader, as the placement of leaders would arrange it.
func printHops(ctx context.Context, o options, chosen []workload, folders, names []string) error {
	o.callers, o.apart = 1, true
	for _, w := range chosen {
		var all []breakdown
		for _, folder := range folders {
			b, err := breakDown(ctx, o, w, filepath.Join(folder, "percolator"))
			if err != nil {
				return err
			}
			all = append(all, b)
		}
		fmt.Printf("\n%s\n", w.name)
		if err := printTable(all, names); err != nil {
			return err
		}
	}
	return nil
}

// breakdown is the result for one build, in milliseconds.
type breakdown struct {
	hops     map[hop]float64 // medians
	at       map[hop]float64 // mean offsets from the transaction's start, which order the table
	traced   float64         // median of the traced transactions
	untraced float64         // median of the transactions without tracing
}

func printTable(all []breakdown, names []string) error {
	place := map[hop]float64{}
	for _, b := range all {
		maps.Copy(place, b.at)
	}
	rows := slices.SortedFunc(maps.Keys(place), func(a, b hop) int { return cmp.Compare(place[a], place[b]) })
	out := tabwriter.NewWriter(os.Stdout, 0, 4, 2, ' ', 0)
	line := func(title string, value func(b breakdown) float64) {
		_, _ = fmt.Fprint(out, title)
		for _, b := range all {
			_, _ = fmt.Fprintf(out, "\t%.3f", value(b))
		}
		_, _ = fmt.Fprintln(out)
	}
	_, _ = fmt.Fprintf(out, "phase\thop, p50 in ms\t%s\n", strings.Join(names, "\t"))
	for _, h := range rows {
		line(h.phase+"\t"+h.end, func(b breakdown) float64 { return b.hops[h] })
	}
	line("\tsum of the hops", func(b breakdown) (sum float64) {
		for _, ms := range b.hops {
			sum += ms
		}
		return sum
	})
	line("\tmeasured, traced", func(b breakdown) float64 { return b.traced })
	line("\tmeasured, untraced", func(b breakdown) float64 { return b.untraced })
	return out.Flush()
}

// breakDown measures the workload untraced and traced, each for the duration, on one cluster.
func breakDown(ctx context.Context, o options, w workload, binary string) (b breakdown, err error) {
	spans, err := collect()
	if err != nil {
		return b, err
	}
	defer spans.close()
	// Nodes read the interval of exports from their environment.
	cfg := cluster.Config{
		Binary: binary, Args: []string{"--trace-endpoint", spans.url, "--trace-sample", "0"},
		Env: []string{"OTEL_BSP_SCHEDULE_DELAY=100"},
	}
	err = onCluster(ctx, o, cfg, func(c *cluster.Cluster) error {
		medians := [2]float64{}
		for i, tracer := range []*tracing.Tracer{nil, tracing.New(spans.provider())} {
			db, closeDB, err := dial(ctx, c.Addrs()[0], w, tracer)
			if err != nil {
				return err
			}
			f, err := repeat(ctx, db, o, w)
			if err = errors.Join(err, closeDB()); err != nil {
				return err
			}
			medians[i] = f.Millis(0.5)[0]
		}
		b.untraced, b.traced = medians[0], medians[1]
		return c.Terminate(10 * time.Second) // nodes export what is queued
	})
	b.hops, b.at = spans.medians()
	return b, err
}

// divide returns the hops of one transaction, in nanoseconds, and the offsets of their ends.
func divide(spans []span) (took, at map[hop]int64) {
	took, at = map[hop]int64{}, map[hop]int64{}
	seen := map[hop]int{}
	var marks []mark
	var root span
	for _, s := range spans {
		marks = append(marks, mark{s.start, s.name + " start", s.node})
		marks = append(append(marks, s.events...), mark{s.end, s.name + " end", s.node})
		if s.name == "transaction" {
			root = s
		}
	}
	slices.SortStableFunc(marks, func(a, b mark) int { return cmp.Compare(a.at, b.at) })
	last, phase := mark{at: root.start}, ""
	for _, m := range marks {
		if m.at < root.start || m.at > root.end {
			continue
		}
		name, edge, _ := strings.Cut(m.name, " ")
		client := slices.Contains(phases, name)
		if client && edge == "start" && phase == "" {
			phase = name
		}
		h := hop{phase, title(last, m)}
		if seen[h]++; seen[h] > 1 {
			h.end = fmt.Sprintf("%s (%d)", h.end, seen[h])
		}
		took[h] += m.at - last.at
		at[h] = m.at - root.start
		if client && edge == "end" && phase == name {
			phase = ""
		}
		last = m
	}
	return took, at
}
