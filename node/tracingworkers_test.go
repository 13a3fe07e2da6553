package node_test

import (
	"context"
	"net/http"
	"slices"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	percolator "github.com/percolator-go/percolator"
	gw "github.com/percolator-go/percolator/api/gateway/v1"
	"github.com/percolator-go/percolator/node"
	"github.com/percolator-go/percolator/worker"
)

// TestTraceOfWorkers: runs in workers, of the library and of the gateway, belong to the trace of the transaction that
// caused them, as inside a node: that of a change which is written while they run, and that of one which waited for them.
func TestTraceOfWorkers(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	spans := record(trace.ParentBased(trace.NeverSample()))
	r := newTracedRig(t, 1, func(_ int, c *node.Config) { c.Gateway = "127.0.0.1:0" }, spans.provider)
	n := r.nodes[0]
	client := record(trace.AlwaysSample())
	db, err := percolator.Dial(ctx, []string{n.Addr()},
		percolator.ClientConfig{Insecure: true, TracerProvider: client.provider})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	write := func(column string) {
		t.Helper()
		if err := set(ctx, db, "r", percolator.Column{Table: "t", Name: column}, []byte("x")); err != nil {
			t.Fatal(err)
		}
	}

	// A worker of the library runs the observers of chain. Its spans are its own.
	own := record(trace.ParentBased(trace.NeverSample()))
	working, stop := context.WithCancel(ctx)
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- worker.Run(working, []string{n.Addr()}, chain, worker.Config{
			Client: percolator.ClientConfig{Insecure: true, TracerProvider: own.provider},
			Ready:  func() { close(ready) },
		})
	}()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	<-ready
	// A worker looks up the trace of a change for a bounded time only; without an answer the run begins a trace of its own,
	// which is not sampled here.
	for traced := false; !traced; {
		write("a")
		if err := db.WaitIdle(ctx); err != nil {
			t.Fatal(err)
		}
		root, runs := client.GetSpans(), own.GetSpans()
		traced = slices.ContainsFunc(runs, func(second tracetest.SpanStub) bool {
			return slices.ContainsFunc(runs, func(first tracetest.SpanStub) bool {
				return isBelow(second, first) && slices.ContainsFunc(root, func(tx tracetest.SpanStub) bool {
					return tx.Name == "percolator.transaction" && isBelow(first, tx)
				})
			})
		})
	}
	client.Reset()

	// A worker of the gateway runs an observer for a change during its stream, and for one before.
	h := &http.Client{Transport: &http.Transport{}}
	defer h.CloseIdleConnections()
	work := gw.NewWorkClient(h, "http://"+n.GatewayAddr())
	oneRun := func(change func()) {
		streaming, end := context.WithCancel(ctx)
		defer end()
		stream, err := work.Observe(streaming, connect.NewRequest(&gw.ObserveRequest{
			LeaseMs: 60_000, Observers: []*gw.ObserverRegistration{{
				Name: "remote", Table: "t", ColumnAs: &gw.ObserverRegistration_Column{Column: "c"},
			}},
		}))
		if err != nil {
			t.Fatal(err)
		}
		for stream.Receive() {
			if stream.Msg().Started != nil {
				change()
			}
			for _, run := range stream.Msg().Runs {
				if _, err := work.Finish(ctx, connect.NewRequest(&gw.FinishRequest{Session: run.Session})); err != nil {
					t.Error(err)
				}
				return
			}
		}
		t.Fatal(stream.Err())
	}
	oneRun(func() { write("c") })
	write("c")
	oneRun(func() {})
	roots, runs := client.all(ctx, t, "percolator.transaction", 2), spans.all(ctx, t, "percolator.observer", 2)
	below(t, runs[0], roots[0])
	below(t, runs[1], roots[1])
}

// isBelow reports whether a span is the child of another one.
func isBelow(s, parent tracetest.SpanStub) bool {
	return s.Parent.SpanID() == parent.SpanContext.SpanID() && s.SpanContext.TraceID() == parent.SpanContext.TraceID()
}

// below requires that a span is the child of another one.
func below(t *testing.T, s, parent tracetest.SpanStub) {
	t.Helper()
	if !isBelow(s, parent) {
		t.Errorf("%s %s is below %v, not %v", s.Name, attr(s, "percolator.observer"), s.Parent, parent.SpanContext)
	}
}
