package main

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync"

	"go.opentelemetry.io/otel/sdk/trace"
	collectpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
)

// collector receives the spans of the nodes by OTLP, and those of this process. They are recorded
// after the measured step has ended, on the exporters' goroutines.
type collector struct {
	collectpb.UnimplementedTraceServiceServer
	url    string
	server *grpc.Server

	mu    sync.Mutex
	spans map[[16]byte][]span // by trace
}

// span is a span without its prefix "percolator.".
type span struct {
	name, node string
	start, end int64 // Unix nanoseconds
	events     []mark
}

func collect() (*collector, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	c := &collector{url: "http://" + l.Addr().String(), server: grpc.NewServer(), spans: map[[16]byte][]span{}}
	collectpb.RegisterTraceServiceServer(c.server, c)
	go func() { _ = c.server.Serve(l) }() // ends in close
	return c, nil
}

func (c *collector) close() { c.server.Stop() }

// provider returns the provider of this process's spans: all are sampled.
func (c *collector) provider() *trace.TracerProvider {
	return trace.NewTracerProvider(trace.WithSyncer(own{c}))
}

func (c *collector) add(of []byte, s span) {
	id := [16]byte{}
	copy(id[:], of)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.spans[id] = append(c.spans[id], s)
}

func named(name string) string { return strings.TrimPrefix(name, "percolator.") }

// Export implements the OTLP service.
func (c *collector) Export(_ context.Context, req *collectpb.ExportTraceServiceRequest) (
	*collectpb.ExportTraceServiceResponse, error) {
	for _, resource := range req.ResourceSpans {
		node := ""
		for _, a := range resource.GetResource().GetAttributes() {
			if a.Key == "service.instance.id" {
				node = a.Value.GetStringValue()
			}
		}
		for _, scope := range resource.ScopeSpans {
			for _, s := range scope.Spans {
				out := span{name: named(s.Name), node: node, start: int64(s.StartTimeUnixNano), end: int64(s.EndTimeUnixNano)}
				for _, e := range s.Events {
					out.events = append(out.events, mark{int64(e.TimeUnixNano), out.name + " " + e.Name, node})
				}
				c.add(s.TraceId, out)
			}
		}
	}
	return &collectpb.ExportTraceServiceResponse{}, nil
}

// own exports the spans of this process.
type own struct{ c *collector }

// ExportSpans implements trace.SpanExporter.
func (o own) ExportSpans(_ context.Context, list []trace.ReadOnlySpan) error {
	for _, s := range list {
		out := span{name: named(s.Name()), start: s.StartTime().UnixNano(), end: s.EndTime().UnixNano()}
		for _, e := range s.Events() {
			out.events = append(out.events, mark{e.Time.UnixNano(), out.name + " " + e.Name, ""})
		}
		id := s.SpanContext().TraceID()
		o.c.add(id[:], out)
	}
	return nil
}

// Shutdown implements trace.SpanExporter.
func (own) Shutdown(context.Context) error { return nil }

// medians returns the median of each hop over all transactions, in milliseconds, and the mean offset
// of its end from the transaction's start. A hop that a transaction did not have counts as 0.
func (c *collector) medians() (took, at map[hop]float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	all, offsets, transactions := map[hop][]int64{}, map[hop]int64{}, 0
	for _, spans := range c.spans {
		nodes := slices.ContainsFunc(spans, func(s span) bool { return s.name == "serve" || s.name == "apply" })
		if root := slices.ContainsFunc(spans, func(s span) bool { return s.name == "transaction" }); !root || !nodes {
			continue // its start or end was not exported
		}
		transactions++
		hops, ends := divide(spans)
		for h, ns := range hops {
			all[h] = append(all[h], ns)
			offsets[h] += ends[h]
		}
	}
	took, at = map[hop]float64{}, map[hop]float64{}
	for h, list := range all {
		at[h] = float64(offsets[h]) / float64(len(list))
		list = append(list, make([]int64, transactions-len(list))...)
		slices.Sort(list)
		if ms := float64(list[len(list)/2]) / 1e6; ms > 0 {
			took[h] = ms
		} else {
			delete(at, h)
		}
	}
	return took, at
}
