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

// This file has what becomes of this node's spans. The SDK's processor owns them from their
// end on: it keeps at most spanQueue, drops those beyond, and sends them on a goroutine of
// its own. Nobody waits for a collector.

const (
	spanQueue = 4096
	// maxRoots bounds the traces that begin on this node in a second. A span costs some
	// microseconds, and one in a hundred reads of a busy node would be thousands.
	maxRoots = 200
	// spanTimeout bounds the sending of one batch, and the end.
	spanTimeout = 5 * time.Second
)

// spans are a node's spans. The zero value has none.
type spans struct {
	tracer   *tracing.Tracer // nil: nothing is traced
	provider *trace.TracerProvider
	exporter *spanExporter
}

// openTracing begins to trace, if the configuration names a collector. It does not wait for
// it: one that is away, now or later, costs its spans.
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
		return spans{}, fmt.Errorf("node: --trace-endpoint %s: %w", cfg.Trace.Endpoint, err)
	}
	// What the environment says (OTEL_RESOURCE_ATTRIBUTES, OTEL_SERVICE_NAME) counts more.
	about, err := resource.New(context.Background(), resource.WithAttributes(
		attribute.String("service.name", "percolator"),
		attribute.String("service.version", version.String()),
		attribute.String("service.instance.id", strconv.FormatUint(self.NodeID, 10)),
	), resource.WithFromEnv())
	if err != nil {
		return spans{}, fmt.Errorf("node: the environment describes traces wrongly: %w", err)
	}
	// The parent decides, so that a trace is whole: a node samples the traces that begin on
	// it only, and at most maxRoots of them a second.
	s := spans{exporter: &spanExporter{SpanExporter: otlp, logger: cfg.Logger}}
	s.provider = trace.NewTracerProvider(
		trace.WithResource(about),
		trace.WithSampler(trace.ParentBased(trace.AlwaysSample())),
		trace.WithBatcher(s.exporter, trace.WithMaxQueueSize(spanQueue),
			trace.WithExportTimeout(spanTimeout)))
	s.tracer = tracing.Sampling(s.provider, cfg.Trace.Sample, maxRoots)
	return s, nil
}

// close sends what is left, as far as that takes no longer than spanTimeout.
func (s spans) close() {
	if s.provider == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), spanTimeout)
	defer cancel()
	_ = s.provider.Shutdown(ctx) // the exporter has said what there is to say
}

// spanExporter says in the log, once, that spans get lost and that they no longer do. The
// SDK would print every failure to the standard error.
type spanExporter struct {
	trace.SpanExporter
	logger *slog.Logger
	failed atomic.Bool
}

// ExportSpans implements trace.SpanExporter.
func (e *spanExporter) ExportSpans(ctx context.Context, list []trace.ReadOnlySpan) error {
	err := e.SpanExporter.ExportSpans(ctx, list)
	switch lost := err != nil; {
	case e.failed.Swap(lost) == lost:
	case lost:
		e.logger.Warn("traces are lost: the collector of --trace-endpoint takes none; nothing "+
			"else is the worse for it", "error", err)
	default:
		e.logger.Info("traces reach the collector again")
	}
	return nil
}
