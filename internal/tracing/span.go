package tracing

import (
	"context"
	"math"
	"math/rand/v2"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/time/rate"
)

// contextBytes is the length of a context on the wire: the identifiers of the trace and of
// the span. That it is there says that the trace is sampled.
const contextBytes = 16 + 8

// Context names a span of a sampled trace in another process, or an earlier one of this.
type Context [contextBytes]byte

// Parse returns the context that was sent; ok is false if it is none.
func Parse(sent []byte) (c Context, ok bool) {
	if len(sent) != contextBytes {
		return Context{}, false
	}
	copy(c[:], sent)
	return c, c.span().IsValid()
}

func (c Context) span() trace.SpanContext {
	return trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID(c[:16]), SpanID: trace.SpanID(c[16:]),
		TraceFlags: trace.FlagsSampled, Remote: true,
	})
}

// Tracer starts spans. A nil Tracer starts none. Its methods may be used concurrently.
type Tracer struct {
	tracer trace.Tracer
	// below is what a random number must be below for a root to be asked for: the SDK's own
	// sampler costs a read a tenth of its time, for those that it does not keep too.
	below uint64
	limit *rate.Limiter // of roots; nil: none
}

// New returns a Tracer of the provider's; nil if that is nil.
func New(provider trace.TracerProvider) *Tracer {
	if provider == nil {
		return nil
	}
	return &Tracer{
		tracer: provider.Tracer("github.com/percolator-go/percolator"), below: math.MaxUint64,
	}
}

// Sampling is New with a Tracer that asks the provider for only a share of the roots, from
// 0 to 1, and for at most so many a second. Those that it does not ask for leave no mark in
// their contexts: what is traced with one of them is a root itself.
func Sampling(provider trace.TracerProvider, share float64, most int) *Tracer {
	t := New(provider)
	t.limit = rate.NewLimiter(rate.Limit(most), most)
	if share < 1 {
		t.below = uint64(share * (1 << 63) * 2)
	}
	return t
}

// passes reports whether a root is not even asked for.
func (t *Tracer) passes() bool {
	return (t.below < math.MaxUint64 && rand.Uint64() >= t.below) ||
		(t.limit != nil && !t.limit.Allow())
}

// Start begins a span below that of ctx, or a root. The span is nil if it is not sampled.
// What is traced with the context that is returned belongs to the same trace, or is not
// sampled either.
func (t *Tracer) Start(ctx context.Context, name string) (context.Context, *Span) {
	if t == nil || (!trace.SpanContextFromContext(ctx).IsValid() && t.passes()) {
		return ctx, nil
	}
	ctx, span := t.tracer.Start(ctx, name)
	return ctx, sampled(t.tracer, span)
}

// Continue begins a span that began at some time below one of another process, or a root
// if the parent is the zero Context. It is nil if it is not sampled.
func (t *Tracer) Continue(parent Context, name string, began time.Time) *Span {
	if t == nil || (parent == (Context{}) && t.passes()) {
		return nil
	}
	ctx := context.Background()
	if parent != (Context{}) {
		ctx = trace.ContextWithRemoteSpanContext(ctx, parent.span())
	}
	_, span := t.tracer.Start(ctx, name, trace.WithTimestamp(began))
	return sampled(t.tracer, span)
}

func sampled(tracer trace.Tracer, span trace.Span) *Span {
	at := span.SpanContext()
	if !at.IsSampled() || !span.IsRecording() {
		return nil
	}
	s := &Span{tracer: tracer, span: span, sent: make([]byte, 0, contextBytes)}
	id, of := at.SpanID(), at.TraceID()
	s.sent = append(append(s.sent, of[:]...), id[:]...)
	return s
}

// Span is a sampled span. A nil Span is one that is not: all its methods do nothing.
type Span struct {
	tracer trace.Tracer
	span   trace.Span
	sent   []byte
}

// Sent is what Parse understands, and may not be changed; nil if s is.
func (s *Span) Sent() []byte {
	if s == nil {
		return nil
	}
	return s.sent
}

// Child begins a span below s.
func (s *Span) Child(name string) *Span {
	if s == nil {
		return nil
	}
	_, span := s.tracer.Start(s.In(context.Background()), name)
	return sampled(s.tracer, span)
}

// In returns ctx with the span, for those who trace with it.
func (s *Span) In(ctx context.Context) context.Context {
	if s == nil {
		return ctx
	}
	return trace.ContextWithSpan(ctx, s.span)
}

// maxText bounds an attribute's bytes.
const maxText = 256

// Text sets an attribute. The exporter takes valid UTF-8 alone.
func (s *Span) Text(key, value string) {
	if s == nil {
		return
	}
	if len(value) > maxText {
		value = value[:maxText]
	}
	s.span.SetAttributes(attribute.String(key, strings.ToValidUTF8(value, "\uFFFD")))
}

// Number sets an attribute. Timestamps fit: the oracle's are far below 1<<63.
func (s *Span) Number(key string, value uint64) {
	if s != nil {
		s.span.SetAttributes(attribute.Int64(key, int64(value)))
	}
}

// Event records that something happened now.
func (s *Span) Event(name string) {
	if s != nil {
		s.span.AddEvent(name)
	}
}

// Fail says why the span did not do what it is about, by a word of few.
func (s *Span) Fail(why string) {
	if s != nil {
		s.span.SetStatus(codes.Error, why)
	}
}

// End ends the span. The exporter gets it, or drops it; End does not wait.
func (s *Span) End() {
	if s != nil {
		s.span.End()
	}
}
