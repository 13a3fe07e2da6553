package node

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/percolator-go/percolator/cluster/join"
	"github.com/percolator-go/percolator/internal/nodeparts"
	"github.com/percolator-go/percolator/internal/tracing"
	"github.com/percolator-go/percolator/internal/version"
)

// Export of this node's spans. The SDK's processor owns ended spans: it queues at most spanQueue,
// drops the rest, and sends them on its own goroutine. Nothing waits for the collector.

const (
	spanQueue = 4096
	// maxRoots bounds the traces that begin on this node per second. A span costs a few microseconds,
	// and 1 % of the reads of a busy node are thousands per second.
	maxRoots = 200
	// spanTimeout bounds the sending of one batch, and of all queued spans at the end.
	spanTimeout = 5 * time.Second
)

// spans are a node's spans. The zero value has none.
type spans struct {
	tracer   *tracing.Tracer // nil: nothing is traced
	provider *trace.TracerProvider
	exporter *spanExporter
}

// openTracing starts tracing if the configuration names a collector. It does not wait for the
// collector: while that is unreachable, spans are lost.
func openTracing(cfg Config, parts nodeparts.Parts, self join.Identity) (spans, error) {
	if parts.Traces != nil {
		return spans{tracer: tracing.New(parts.Traces)}, nil
	}
	if cfg.Trace.Endpoint == "" {
		return spans{}, nil
	}
	otlp, err := otlptracegrpc.New(context.Background(),
		otlptracegrpc.WithEndpointURL(cfg.Trace.Endpoint),
		otlptracegrpc.WithTimeout(spanTimeout),
		otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig{}))
	if err != nil {
		return spans{}, fmt.Errorf("node: create the exporter to --trace-endpoint %s: %w", cfg.Trace.Endpoint, err)
	}
	// The environment (OTEL_RESOURCE_ATTRIBUTES, OTEL_SERVICE_NAME) overrides these attributes.
	about, err := resource.New(context.Background(), resource.WithAttributes(
		attribute.String("service.name", "percolator"),
		attribute.String("service.version", version.String()),
		attribute.String("service.instance.id", strconv.FormatUint(self.NodeID, 10)),
	), resource.WithFromEnv())
	if err != nil {
		return spans{}, fmt.Errorf("node: invalid OTEL_RESOURCE_ATTRIBUTES or OTEL_SERVICE_NAME: %w", err)
	}
	// A span is sampled if its parent is, so that traces are complete. The node itself samples only
	// traces that begin on it, at most maxRoots of them per second.
	s := spans{exporter: &spanExporter{SpanExporter: otlp, logger: cfg.Logger}}
	s.provider = trace.NewTracerProvider(
		trace.WithResource(about),
		trace.WithSampler(trace.ParentBased(trace.AlwaysSample())),
		trace.WithBatcher(s.exporter, trace.WithMaxQueueSize(spanQueue),
			trace.WithExportTimeout(spanTimeout)))
	s.tracer = tracing.Sampling(s.provider, cfg.Trace.Sample, maxRoots)
	return s, nil
}

// close sends the queued spans, for at most spanTimeout; spans that remain are lost.
func (s spans) close() {
	if s.provider == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), spanTimeout)
	defer cancel()
	_ = s.provider.Shutdown(ctx) // the exporter logs failures
}

// spanExporter logs once when spans are lost and once when export recovers. The SDK would print
// every failure to standard error.
type spanExporter struct {
	trace.SpanExporter
	logger *slog.Logger
	failed atomic.Bool
}

// ExportSpans implements trace.SpanExporter. It returns nil also if spans are lost.
func (e *spanExporter) ExportSpans(ctx context.Context, list []trace.ReadOnlySpan) error {
	err := e.SpanExporter.ExportSpans(ctx, list)
	switch lost := err != nil; {
	case e.failed.Swap(lost) == lost:
	case lost:
		e.logger.Warn("traces are lost: the collector of --trace-endpoint accepts none; nothing "+
			"else is affected", "error", err)
	default:
		e.logger.Info("traces reach the collector again")
	}
	return nil
}
