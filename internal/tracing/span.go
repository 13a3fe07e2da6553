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

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/wire"
)

// contextBytes is the length of a context on the wire: trace id and span id. Its presence
// means that the trace is sampled.
const contextBytes = 16 + 8

// Context identifies a span of a sampled trace, in another process or an earlier one in this
// process.
type Context [contextBytes]byte

// Parse decodes a context; ok is false if sent is not a context.
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

// Tracer starts spans. A nil Tracer starts none. Its methods may be called concurrently.
type Tracer struct {
	tracer trace.Tracer
	// below is the sampling threshold: the tracer requests a root only if a random number is
	// below it. The SDK's sampler would cost a read a tenth of its time, even if the read is not
	// sampled.
	below uint64
	limit *rate.Limiter // of roots per second; nil: unlimited
}

// New returns a Tracer that uses the provider, or nil if the provider is nil.
func New(provider trace.TracerProvider) *Tracer {
	if provider == nil {
		return nil
	}
	return &Tracer{
		tracer: provider.Tracer("github.com/percolator-go/percolator"), below: math.MaxUint64,
	}
}

// Sampling returns a Tracer that records a share of the roots, from 0 to 1, and at most most roots per
// second. The others leave no mark in their contexts: a span started with such a
// context is a root itself.
func Sampling(provider trace.TracerProvider, share float64, most int) *Tracer {
	t := New(provider)
	t.limit = rate.NewLimiter(rate.Limit(most), most)
	if share < 1 {
		t.below = uint64(share * (1 << 63) * 2)
	}
	return t
}

// skipsRoot reports whether to skip a root without requesting it from the provider.
func (t *Tracer) skipsRoot() bool {
	return (t.below < math.MaxUint64 && rand.Uint64() >= t.below) ||
		(t.limit != nil && !t.limit.Allow())
}

// Start starts a child of the span in ctx, or a root. The span is nil if it is not sampled.
// Spans started with the returned context belong to the same trace, or are not sampled either; but
// below a root that a Tracer of Sampling skips, they are roots again.
func (t *Tracer) Start(ctx context.Context, name string) (context.Context, *Span) {
	if t == nil || (!trace.SpanContextFromContext(ctx).IsValid() && t.skipsRoot()) {
		return ctx, nil
	}
	ctx, span := t.tracer.Start(ctx, name)
	return ctx, sampled(t.tracer, span)
}

// Continue starts a span with the start time began as a child of parent, which is in another
// process, or as a root if parent is the zero Context. It returns nil if the span is not
// sampled.
func (t *Tracer) Continue(parent Context, name string, began time.Time) *Span {
	if t == nil || (parent == (Context{}) && t.skipsRoot()) {
		return nil
	}
	ctx := context.Background()
	if parent != (Context{}) {
		ctx = trace.ContextWithRemoteSpanContext(ctx, parent.span())
	}
	_, span := t.tracer.Start(ctx, name, trace.WithTimestamp(began))
	return sampled(t.tracer, span)
}

// Operation starts the span of one step of an operation on a tablet; nil unless its transaction is
// sampled.
func (t *Tracer) Operation(req *pb.TabletRequest, name string) *Span {
	if t == nil || len(req.GetTrace()) == 0 {
		return nil
	}
	s := t.Below(req.Trace, name)
	s.Text("percolator.operation", wire.OperationOf(req).Name)
	s.Number("percolator.tablet", req.TabletId)
	return s
}

// Below starts a span below the one that sent encodes; nil if sent encodes none.
func (t *Tracer) Below(sent []byte, name string) *Span {
	of, ok := Parse(sent)
	if t == nil || !ok {
		return nil
	}
	return t.Continue(of, name, time.Now())
}

// With returns ctx with the span that sent encodes, or ctx if sent encodes none.
func With(ctx context.Context, sent []byte) context.Context {
	of, ok := Parse(sent)
	if !ok {
		return ctx
	}
	return trace.ContextWithRemoteSpanContext(ctx, of.span())
}

// Sent returns the encoding of the sampled span in ctx, or nil.
func Sent(ctx context.Context) []byte {
	at := trace.SpanContextFromContext(ctx)
	if !at.IsSampled() {
		return nil
	}
	return encode(at)
}

func encode(at trace.SpanContext) []byte {
	id, of := at.SpanID(), at.TraceID()
	return append(append(make([]byte, 0, contextBytes), of[:]...), id[:]...)
}

func sampled(tracer trace.Tracer, span trace.Span) *Span {
	at := span.SpanContext()
	if !at.IsSampled() || !span.IsRecording() {
		return nil
	}
	return &Span{tracer: tracer, span: span, sent: encode(at)}
}

// Span is a sampled span. The methods of a nil Span, which is not sampled, do nothing.
type Span struct {
	tracer trace.Tracer
	span   trace.Span
	sent   []byte
}

// Sent returns the encoding of the span's context for Parse, or nil if s is nil. It must not
// be changed.
func (s *Span) Sent() []byte {
	if s == nil {
		return nil
	}
	return s.sent
}

// Child starts a child of s.
func (s *Span) Child(name string) *Span {
	if s == nil {
		return nil
	}
	_, span := s.tracer.Start(s.In(context.Background()), name)
	return sampled(s.tracer, span)
}

// In returns ctx with the span.
func (s *Span) In(ctx context.Context) context.Context {
	if s == nil {
		return ctx
	}
	return trace.ContextWithSpan(ctx, s.span)
}

// maxText is the maximum length of an attribute, in bytes.
const maxText = 256

// Text sets an attribute. It truncates value to maxText bytes and makes it valid UTF-8, which
// the exporter requires.
func (s *Span) Text(key, value string) {
	if s == nil {
		return
	}
	if len(value) > maxText {
		value = value[:maxText]
	}
	s.span.SetAttributes(attribute.String(key, strings.ToValidUTF8(value, "\uFFFD")))
}

// Number sets an attribute. The oracle's timestamps are far below 1<<63.
func (s *Span) Number(key string, value uint64) {
	if s != nil {
		s.span.SetAttributes(attribute.Int64(key, int64(value)))
	}
}

// Event adds an event with the current time.
func (s *Span) Event(name string) {
	if s != nil {
		s.span.AddEvent(name)
	}
}

// Fail marks the span as failed, with one of a few reasons.
func (s *Span) Fail(why string) {
	if s != nil {
		s.span.SetStatus(codes.Error, why)
	}
}

// End ends the span and passes it to the exporter, which may drop it. End does not block.
func (s *Span) End() {
	if s != nil {
		s.span.End()
	}
}
