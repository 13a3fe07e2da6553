package tracing

import (
	"context"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// TestOffAllocatesNothing: neither an untraced operation, nor one below an unsampled root, nor an
// operation of such a transaction on a tracing node allocates.
func TestOffAllocatesNothing(t *testing.T) {
	ctx, req := t.Context(), &pb.TabletRequest{Op: &pb.TabletRequest_OnePhase{}}
	provider := trace.NewTracerProvider(trace.WithSampler(trace.NeverSample()))
	busy := NewBook(New(provider))
	busy.Add(&wire.Trace{Ts: 7, Context: []byte("0123456789abcdef01234567")})
	muts := []mvcc.Mutation{{Notify: &mvcc.Notify{TS: 9}}}
	for name, book := range map[string]*Book{"off": nil, "on": busy} {
		tracer := (*Tracer)(nil)
		got := testing.AllocsPerRun(100, func() {
			_, span := tracer.Start(ctx, "a")
			child := span.Child("b")
			child.Text("k", "v")
			child.Number("k", 1)
			child.Event("e")
			child.Fail("f")
			child.End()
			span.In(ctx)
			req.Trace = span.Sent()
			span.End()
			book.Add()
			book.Of(9)
			if book.Traces(req, muts) != nil {
				t.Error("a trace out of nothing")
			}
			book.Serve(req, "c").End()
			tracer.Operation(req, "d").End()
			tracer.Below(Sent(With(ctx, nil)), "e").End()
		})
		if got != 0 {
			t.Errorf("%s: %v allocations", name, got)
		}
	}
	// An unsampled root costs a context and the SDK's additions to it.
	unsampled := New(provider)
	if got := testing.AllocsPerRun(100, func() { unsampled.Start(ctx, "a") }); got > 4 {
		t.Errorf("a root that is not sampled: %v allocations", got)
	}
}

// TestBookIsBounded: a Book forgets its oldest entries and rejects invalid contexts.
func TestBookIsBounded(t *testing.T) {
	b := NewBook(New(trace.NewTracerProvider()))
	context := []byte("0123456789abcdef01234567")
	for ts := range uint64(maxTraced + 10) {
		b.Add(&wire.Trace{Ts: ts + 1, Context: context})
	}
	b.Add(&wire.Trace{Ts: 1, Context: context[1:]}, &wire.Trace{Ts: 2, Context: make([]byte, 24)},
		&wire.Trace{Ts: 3, Context: make([]byte, 1<<20)}, nil)
	if len(b.of) != maxTraced || len(b.ring) != maxTraced {
		t.Errorf("%d and %d entries", len(b.of), len(b.ring))
	}
	for _, ts := range []mvcc.Timestamp{1, 2, 3, 10} {
		if _, ok := b.Of(ts); ok {
			t.Errorf("%d is still known, or was accepted", ts)
		}
	}
	if c, ok := b.Of(maxTraced + 10); !ok || string(c[:]) != string(context) {
		t.Errorf("the newest is %q, %v", c, ok)
	}
}

// TestContextCrosses: a context sent by one process is the parent in another.
func TestContextCrosses(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	tracer := New(trace.NewTracerProvider(trace.WithSyncer(spans)))
	_, parent := tracer.Start(context.Background(), "parent")
	of, ok := Parse(parent.Sent())
	if !ok {
		t.Fatal(parent.Sent())
	}
	began := time.Now().Add(-time.Hour)
	tracer.Continue(of, "child", began).End()
	parent.End()
	all := spans.GetSpans()
	if len(all) != 2 || all[0].Parent.SpanID() != all[1].SpanContext.SpanID() ||
		all[0].SpanContext.TraceID() != all[1].SpanContext.TraceID() || !all[0].StartTime.Equal(began) {
		t.Errorf("%v", all)
	}
}

// TestSampling: about the configured share of roots is kept, without allocations for the others;
// below a root everything is kept, whatever the share.
func TestSampling(t *testing.T) {
	provider := trace.NewTracerProvider(trace.WithSampler(trace.ParentBased(trace.AlwaysSample())))
	tracer, kept := Sampling(provider, 0.25, 1<<20), 0
	for range 10_000 {
		if _, span := tracer.Start(t.Context(), "a"); span != nil {
			kept++
		}
	}
	if kept < 2000 || kept > 3000 {
		t.Errorf("%d of 10000 roots are kept, of a quarter", kept)
	}
	none, all := Sampling(provider, 0, 10), Sampling(provider, 1, 10)
	if n := testing.AllocsPerRun(100, func() { none.Start(t.Context(), "a") }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	ctx, root := all.Start(t.Context(), "a")
	_, child := none.Start(ctx, "b")
	of, _ := Parse(root.Sent())
	if root == nil || child == nil || none.Continue(of, "c", time.Now()) == nil ||
		none.Continue(Context{}, "d", time.Now()) != nil {
		t.Error("what is below a root is not what it is")
	}
	kept = 0
	for range 1000 {
		if all.Continue(Context{}, "e", time.Now()) != nil {
			kept++
		}
	}
	if kept > 100 {
		t.Errorf("%d roots at once, of ten a second", kept)
	}
}
