package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"text/tabwriter"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/percolator-go/percolator/bench/turns"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/node"
)

// The cost of monitoring: a node with an active monitor compared with the same node without one,
// in turns. Both record the histograms of the metrics.

// costs is the name of the section, for -only.
const costs = "costs"

// costTarget is the lowest acceptable ratio of the rate with monitoring to the rate without.
const costTarget = 0.97

// watcher is a kind of monitoring.
type watcher struct {
	name string
	// begin, unless nil, is called before the node opens, and after, unless nil, once it runs.
	// watched.close calls both ends.
	begin func(ctx context.Context, cfg *node.Config) (end func(), err error)
	after func(ctx context.Context, n *node.Node) (end func())
}

var watchers = []watcher{
	{name: "none"},
	{
		name: "metrics and console",
		begin: func(_ context.Context, cfg *node.Config) (func(), error) {
			cfg.HTTP = "127.0.0.1:0"
			return func() {}, nil
		},
		after: browse,
	},
	{name: "traces at 1 %", begin: collect},
}

// measureCosts prints the rates of reads and of one-phase transactions with each kind of
// monitoring, and their ratios to those without. Each round starts with another kind.
func measureCosts(ctx context.Context, o options, out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintf(w, "%v each, %d rounds\n\n", o.duration, o.rounds)
	_, _ = fmt.Fprintln(w, "monitoring\tcallers\t/s\tCPU µs/op\trate / none: median\tlowest\thighest\tCPU / none\ttarget\t")
	for _, what := range []string{readTxn, onePhase} {
		for _, callers := range o.callers {
			r := make([][]figure, len(watchers))
			for round := range o.rounds {
				for i := range watchers {
					i = (i + round) % len(watchers)
					f, err := measure(ctx, o, kind{what, watchers[i].node(what)}, callers)
					if err != nil {
						return fmt.Errorf("%s with %s: %w", what, watchers[i].name, err)
					}
					r[i] = append(r[i], f)
				}
			}
			for i := range watchers {
				rate, cpu := ratioOf(r[i], r[0], func(f figure) float64 { return f.PerSecond }),
					ratioOf(r[i], r[0], figure.cpuMicros)
				best := slices.MaxFunc(r[i], func(a, b figure) int { return int(a.PerSecond - b.PerSecond) })
				_, _ = fmt.Fprintf(w, "%s: %s\t%d\t%.0f\t%.1f\t%.3f\t%.3f\t%.3f\t%.3f\t%.2f\t\n", what,
					watchers[i].name, callers, best.PerSecond, best.cpuMicros(), rate[len(rate)/2], rate[0],
					rate[len(rate)-1], cpu[len(cpu)/2], costTarget)
			}
		}
	}
	return w.Flush()
}

// ratioOf returns the rounds' ratios of a figure in ascending order.
func ratioOf(of, to []figure, figureOf func(figure) float64) (out []float64) {
	for i := range of {
		out = append(out, figureOf(of[i])/figureOf(to[i]))
	}
	slices.Sort(out)
	return out
}

// watched is a node with its monitor.
type watched struct {
	*onNode
	ends []func()
}

func (w *watched) close() error {
	err := w.onNode.close()
	for _, end := range w.ends {
		end()
	}
	return err
}

// node opens a monitored node. The node's own client runs the transactions, as its observers
// would.
func (w watcher) node(what string) func(context.Context, string) (subject, error) {
	return func(ctx context.Context, dir string) (subject, error) {
		cfg := node.DefaultConfig()
		cfg.Dir, cfg.Listen, cfg.HTTP, cfg.Insecure = dir, "127.0.0.1:0", "", true
		var ends []func()
		if w.begin != nil {
			end, err := w.begin(ctx, &cfg)
			if err != nil {
				return nil, err
			}
			ends = append(ends, end)
		}
		n, err := node.Open(ctx, cfg)
		if err != nil {
			return nil, err
		}
		s := &onNode{kind: what, node: n, db: n.DB()}
		if err := s.prepare(ctx); err != nil {
			return nil, errors.Join(err, n.Close(ctx))
		}
		s.db = handle.NewDB(handle.Client(n.DB()))
		if w.after != nil {
			ends = append(ends, w.after(ctx, n))
		}
		return &watched{s, ends}, nil
	}
}

// browse simulates a Prometheus that scrapes every second, fifteen times as often as usual, and an
// open console.
func browse(ctx context.Context, n *node.Node) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	get := func(path string) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.HTTPAddr()+path, nil)
		if err != nil {
			return
		}
		if resp, err := http.DefaultClient.Do(req); err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
	}
	go get("/api/v1/cluster/stream")
	go func() {
		every := time.NewTicker(time.Second)
		defer every.Stop()
		for ctx.Err() == nil {
			get("/metrics")
			select {
			case <-every.C:
			case <-ctx.Done():
			}
		}
	}()
	return cancel
}

// collecting marks the process that collects traces, in its environment.
const collecting = "PERCOLATOR_BENCH_COLLECTOR"

// runCollector accepts all traces and discards them, until its standard input ends. It prints
// its address.
func runCollector(out io.Writer, in io.Reader) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
		if err := s.RecvMsg(&emptypb.Empty{}); err != nil {
			return err
		}
		return s.SendMsg(&emptypb.Empty{})
	}))
	_, _ = fmt.Fprintln(out, listener.Addr())
	go func() {
		_, _ = io.Copy(io.Discard, in)
		server.Stop()
	}()
	return server.Serve(listener)
}

// collect starts a process that collects the node's traces, so that its processor time does not
// count as the node's.
func collect(ctx context.Context, cfg *node.Config) (end func(), err error) {
	c, err := turns.StartChild(ctx, collecting+"=1")
	if err != nil {
		return nil, err
	}
	end = func() {
		_ = c.In.Close()
		_ = c.Wait()
	}
	var address string
	if _, err := fmt.Fscan(c.Out, &address); err != nil {
		end()
		return nil, fmt.Errorf("the collector did not print its address: %w", err)
	}
	cfg.Trace.Endpoint, cfg.Trace.Sample = "http://"+address, 0.01
	return end, nil
}
