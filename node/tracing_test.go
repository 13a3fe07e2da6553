package node_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/tracing"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/node"
)

// recorded collects the ended spans.
type recorded struct {
	*tracetest.InMemoryExporter
	provider *trace.TracerProvider
}

func record(sampler trace.Sampler) recorded {
	r := recorded{InMemoryExporter: tracetest.NewInMemoryExporter()}
	r.provider = trace.NewTracerProvider(trace.WithSyncer(r.InMemoryExporter),
		trace.WithSampler(sampler))
	return r
}

// all waits until there are n spans with the name, and returns them by start time.
func (r recorded) all(ctx context.Context, t *testing.T, name string, n int) tracetest.SpanStubs {
	t.Helper()
	var found tracetest.SpanStubs
	awaitTrue(ctx, t, name, func() bool {
		found = nil
		for _, s := range r.GetSpans() {
			if s.Name == name {
				found = append(found, s)
			}
		}
		return len(found) >= n
	})
	slices.SortFunc(found, func(a, b tracetest.SpanStub) int { return a.StartTime.Compare(b.StartTime) })
	return found
}

func attr(s tracetest.SpanStub, key string) string {
	for _, a := range s.Attributes {
		if a.Key == attribute.Key(key) {
			return a.Value.String()
		}
	}
	return ""
}

// chain registers two observers: of a, which writes b of another row, and of b.
func chain(r *percolator.Registry) {
	r.Strong("first", percolator.Column{Table: "t", Name: "a"},
		func(_ context.Context, tx *percolator.Tx, n percolator.Notification) error {
			tx.Set("z"+n.Row, percolator.Column{Table: "t", Name: "b"}, []byte("x"))
			return nil
		})
	r.Strong("second", percolator.Column{Table: "t", Name: "b"},
		func(ctx context.Context, tx *percolator.Tx, n percolator.Notification) error {
			_, _, err := tx.Get(ctx, n.Row, percolator.Column{Table: "t", Name: "b"})
			return err
		})
}

// TestOneTrace: a remote client's write, the tablets' work for it, and the runs of a chain of two
// observers form one trace over several nodes, although the tablet has another leader by the first
// run.
func TestOneTrace(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	spans := record(trace.ParentBased(trace.NeverSample()))
	r := newTracedRig(t, 3, func(i int, c *node.Config) {
		c.Placement.Busy, c.Placement.Rest = 50*time.Millisecond, time.Hour
		c.Observers = chain
		if i != 1 { // only node 1 runs observers; node 0, then node 2, leads the tablet
			c.ObserverWorkers = 0
		}
	}, spans.provider)
	client := record(trace.AlwaysSample())
	db, err := percolator.Dial(ctx, []string{r.nodes[0].Addr()},
		percolator.ClientConfig{Insecure: true, TracerProvider: client.provider})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	r.spread(ctx, 3)
	table := lastTablet(r.tablets(ctx))
	r.lead(ctx, table, 0)
	controlObserver(t, r.nodes[0], &pb.ControlObserverRequest{Name: "first", Paused: proto.Bool(true)})
	column := percolator.Column{Table: "t", Name: "a"}
	err = db.Transact(ctx, func(ctx context.Context, tx *percolator.Tx) error {
		if _, _, err := tx.Get(ctx, "r", column); err != nil {
			return err
		}
		tx.Set("r", column, []byte("x"))
		return nil
	}, percolator.Name("load\xff"+strings.Repeat("x", 1000)))
	if err != nil {
		t.Fatal(err)
	}
	r.lead(ctx, table, 2)
	controlObserver(t, r.nodes[0], &pb.ControlObserverRequest{Name: "first", Paused: proto.Bool(false)})

	root := client.all(ctx, t, "percolator.transaction", 1)[0]
	runs := spans.all(ctx, t, "percolator.observer", 2)
	if parent := runs[0].Parent.SpanID(); attr(runs[0], "percolator.observer") != "first" ||
		parent != root.SpanContext.SpanID() {
		t.Errorf("the first run is below %v, not %v: %v", parent, root.SpanContext.SpanID(), runs[0])
	}
	if parent := runs[1].Parent.SpanID(); attr(runs[1], "percolator.observer") != "second" ||
		parent != runs[0].SpanContext.SpanID() || attr(runs[1], "percolator.result") != "committed" {
		t.Errorf("the second run is below %v, not %v: %v", parent, runs[0].SpanContext.SpanID(), runs[1])
	}
	for _, name := range []string{"percolator.read", "percolator.commit"} {
		client.all(ctx, t, name, 1)
	}
	spans.all(ctx, t, "percolator.serve", 1)
	applied := spans.all(ctx, t, "percolator.apply", 2) // of the client, and of the run on another node
	// An oracle on the commit's node may answer at once, without the event "oracle".
	for _, event := range []string{"timestamp", "proposed", "synced", "committed"} {
		if !slices.ContainsFunc(applied[0].Events, func(e trace.Event) bool { return e.Name == event }) {
			t.Errorf("no event %q of a commit: %v", event, applied[0].Events)
		}
	}
	spans.all(ctx, t, "percolator.request", 2)
	spans.all(ctx, t, "percolator.timestamps", 1)
	client.all(ctx, t, "percolator.send", 2)
	for _, s := range append(client.GetSpans(), spans.GetSpans()...) {
		if s.SpanContext.TraceID() != root.SpanContext.TraceID() {
			t.Errorf("%s belongs to another trace: %v", s.Name, s)
		}
	}
	if name := attr(root, "percolator.name"); len(name) > 300 || strings.ToValidUTF8(name, "") != name {
		t.Errorf("a name of %d bytes, or no UTF-8", len(name))
	}
}

// lastTablet returns the last tablet of the map: of user tables.
func lastTablet(all []*pb.TabletDescriptor) uint64 { return all[len(all)-1].TabletId }

// traceCounter is a transport that counts operations with a trace.
type traceCounter struct {
	txn.Transport
	traced atomic.Int64
}

func (c *traceCounter) Send(ctx context.Context, d *pb.TabletDescriptor,
	req *pb.TabletRequest) (*pb.TabletResponse, error) {
	if len(req.Trace) > 0 {
		c.traced.Add(1)
	}
	return c.Transport.Send(ctx, d, req)
}

// withheld is a transport that loses commits of all tablets but the first.
type withheld struct {
	txn.Transport
	first atomic.Uint64
}

func (w *withheld) Send(ctx context.Context, d *pb.TabletDescriptor,
	req *pb.TabletRequest) (*pb.TabletResponse, error) {
	decides := req.GetCommit() != nil || req.GetOnePhase() != nil
	if decides && !w.first.CompareAndSwap(0, d.TabletId) &&
		w.first.Load() != d.TabletId {
		return nil, errLost
	}
	return w.Transport.Send(ctx, d, req)
}

// TestTraceOfResolvedLock: the run for a secondary that another client rolled forward belongs to
// the trace of the transaction that wrote it.
func TestTraceOfResolvedLock(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	spans := record(trace.ParentBased(trace.NeverSample()))
	r := newTracedRig(t, 1, func(_ int, c *node.Config) { c.Observers = chain }, spans.provider)
	n := r.nodes[0]
	if err := n.DB().CreateTable(ctx, percolator.TableSpec{Name: "t", SplitKeys: []string{"m"}}); err != nil {
		t.Fatal(err)
	}
	// The client has short timeouts, so that it does not wait long for the lost reply.
	client := record(trace.AlwaysSample())
	inner := txn.NewClient(&withheld{Transport: handle.Client(n.DB()).Transport()}, txn.Config{
		LockTTL: time.Second, OperationTimeout: time.Second, Tracer: tracerOf(client),
	})
	err := handle.NewDB(inner).Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
		tx.Set("a", percolator.Column{Table: "t", Name: "c"}, []byte("x"))
		tx.Set("y", percolator.Column{Table: "t", Name: "a"}, []byte("x"))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	root := client.all(ctx, t, "percolator.transaction", 1)[0]
	run := spans.all(ctx, t, "percolator.observer", 1)[0]
	if run.Parent.SpanID() != root.SpanContext.SpanID() {
		t.Errorf("the run is below %v, not %v", run.Parent, root.SpanContext)
	}
}

// TestTracingOff: a node without tracing forwards no trace, and a client without tracing, or whose
// sampler declines, adds nothing to its messages.
func TestTracingOff(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	n := open(t, "", nil)
	if err := n.DB().CreateTable(ctx, percolator.TableSpec{Name: "t"}); err != nil {
		t.Fatal(err)
	}
	for name, spans := range map[string]recorded{
		"without a provider": {}, "not sampled": record(trace.NeverSample()),
	} {
		c := &traceCounter{Transport: handle.Client(n.DB()).Transport()}
		db := handle.NewDB(txn.NewClient(c, txn.Config{Tracer: tracerOf(spans)}))
		err := db.Transact(ctx, func(ctx context.Context, tx *percolator.Tx) error {
			column := percolator.Column{Table: "t", Name: "c"}
			tx.Set("r", column, []byte("x"))
			_, _, err := tx.Get(ctx, "s", column)
			return err
		})
		if err != nil || c.traced.Load() != 0 {
			t.Errorf("%s: %v; %d operations with a trace", name, err, c.traced.Load())
		}
	}
}

// TestDeadCollector: a node whose collector never answers serves normally, and closes.
func TestDeadCollector(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { // accepts connections and sends nothing
		for {
			conn, err := listener.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				go func() { _, _ = io.Copy(io.Discard, conn) }()
			}
		}
	}()
	t.Cleanup(func() { _ = listener.Close() })
	n := open(t, "", func(c *node.Config) {
		c.Trace.Endpoint, c.Trace.Sample = "http://"+listener.Addr().String(), 1
		c.Logger = slog.New(slog.DiscardHandler)
	})
	ctx := within(t, time.Minute)
	if err := n.DB().CreateTable(ctx, percolator.TableSpec{Name: "t"}); err != nil {
		t.Fatal(err)
	}
	var callers errgroup.Group
	for caller := range 10 {
		callers.Go(func() error {
			for range 300 { // with the other callers, more spans than the queue holds
				err := n.DB().Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
					tx.Set(fmt.Sprint(caller), percolator.Column{Table: "t", Name: "c"}, []byte("x"))
					return nil
				})
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := callers.Wait(); err != nil {
		t.Fatal(err)
	}
}

// tracerOf returns the provider's tracer, or nil.
func tracerOf(r recorded) *tracing.Tracer {
	if r.provider == nil {
		return nil
	}
	return tracing.New(r.provider)
}
