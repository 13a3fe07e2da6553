package tracing

import (
	"context"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
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
type Tracer struct{ tracer trace.Tracer }

// New returns a Tracer of the provider's; nil if that is nil.
func New(provider trace.TracerProvider) *Tracer {
	if provider == nil {
		return nil
	}
	return &Tracer{provider.Tracer("github.com/percolator-go/percolator")}
}

// Start begins a span below that of ctx, or a root. The span is nil if it is not sampled.
// What is traced with the context that is returned belongs to the same trace, or is not
// sampled either.
func (t *Tracer) Start(ctx context.Context, name string) (context.Context, *Span) {
	if t == nil {
		return ctx, nil
	}
	ctx, span := t.tracer.Start(ctx, name)
	return ctx, t.sampled(span)
}

// Continue begins a span that began at some time below one of another process, or a root
// if the parent is the zero Context. It is nil if it is not sampled.
func (t *Tracer) Continue(parent Context, name string, began time.Time) *Span {
	if t == nil {
		return nil
	}
	ctx := context.Background()
	if parent != (Context{}) {
		ctx = trace.ContextWithRemoteSpanContext(ctx, parent.span())
	}
	_, span := t.tracer.Start(ctx, name, trace.WithTimestamp(began))
	return t.sampled(span)
}

func (t *Tracer) sampled(span trace.Span) *Span {
	at := span.SpanContext()
	if !at.IsSampled() || !span.IsRecording() {
		return nil
	}
	s := &Span{tracer: t.tracer, span: span, sent: make([]byte, 0, contextBytes)}
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
	return (&Tracer{s.tracer}).sampled(span)
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
