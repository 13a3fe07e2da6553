package attack_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// dial connects to the node's port for clients by plain gRPC, without the client's own limits.
func dial(t *testing.T, addr string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// raw is a codec that sends bytes unchanged.
type raw struct{}

func (raw) Name() string { return "proto" }

func (raw) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

func (raw) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

// hugeMessage: a message is refused for its length, before it is read.
func hugeMessage(t *testing.T, c *target) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	conn := dial(t, c.Addrs()[0])
	big, answer := make([]byte, 1<<30), []byte(nil)
	opts := []grpc.CallOption{grpc.ForceCodecV2(raw{}), grpc.MaxCallSendMsgSize(1<<31 - 1)}
	for _, method := range []string{pb.Percolator_CreateTable_FullMethodName,
		pb.Percolator_Timestamps_FullMethodName} {
		err := conn.Invoke(ctx, method, big, &answer, opts...)
		if status.Code(err) != codes.ResourceExhausted {
			t.Errorf("%s: %v", method, err)
		}
	}
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true},
		pb.Percolator_Operations_FullMethodName, opts...)
	if err != nil {
		t.Fatal(err)
	}
	_ = stream.SendMsg(big) // the end of the stream comes while it is being sent
	if err := stream.RecvMsg(&answer); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a stream: %v", err)
	}
}

// tableID returns the table's id.
func tableID(ctx context.Context, t *testing.T, c *target) mvcc.TableID {
	t.Helper()
	id, err := handle.Client(c.db).TableID(ctx, cell.Table)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// hugeBatch: a million operations in one message, and a million cells in one operation.
func hugeBatch(t *testing.T, c *target) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	table := uint32(tableID(ctx, t, c))
	client := pb.NewPercolatorClient(dial(t, c.Addrs()[0]))
	one := &pb.Cell{Table: table, Row: wire.Bytes("a"), Column: wire.Bytes("c")}
	get := func(n int) *pb.TabletRequest {
		r := &pb.GetRequest{At: 1}
		for range n {
			r.Cells = append(r.Cells, one)
		}
		return &pb.TabletRequest{TabletId: 2, Op: &pb.TabletRequest_Get{Get: r}}
	}
	many := &pb.OperationBatch{}
	for id := range uint64(1_000_000) {
		many.Operations = append(many.Operations, &pb.Operation{Id: id, Request: get(0)})
	}
	for name, batch := range map[string]*pb.OperationBatch{
		"a million operations": many,
		"a million cells":      {Operations: []*pb.Operation{{Id: 1, Request: get(1_000_000)}}},
	} {
		stream, err := client.Operations(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.Send(batch); err != nil && err != io.EOF {
			t.Fatal(err)
		}
		t.Logf("%s: %s", name, answers(stream, len(batch.Operations)))
	}
}

// answers reads until the given number of operations is answered or the stream ends, and
// describes the result.
func answers(stream grpc.BidiStreamingClient[pb.OperationBatch, pb.OperationResults],
	want int) string {
	codes := map[string]int{}
	for n := 0; n < want; {
		results, err := stream.Recv()
		if err != nil {
			return fmt.Sprintf("%v, after %v", err, codes)
		}
		for _, r := range results.Results {
			codes[r.GetResponse().GetError().GetCode().String()]++
			n++
		}
	}
	return fmt.Sprint(codes)
}

// idleConnections: half of the connections send nothing, half a gRPC preface.
func idleConnections(t *testing.T, c *target) {
	const count = 10_000
	// the preface of HTTP/2 and empty settings
	hello := append([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), 0, 0, 0, 4, 0, 0, 0, 0, 0)
	var conns []net.Conn
	defer func() {
		for _, conn := range conns {
			_ = conn.Close()
		}
	}()
	for i := range count {
		conn, err := net.DialTimeout("tcp", c.Addrs()[0], patience)
		if err != nil {
			t.Logf("after %d connections: %v", i, err)
			break
		}
		conns = append(conns, conn)
		if i%2 == 0 {
			_, _ = conn.Write(hello) // it may be closed already
		}
	}
	t.Logf("%d connections", len(conns))
	c.servedByOthers(t)
	t.Logf("resident while they are there, MiB: %v", mib(c.memory(t)))
}

// servedByOthers: while a node is attacked, clients with several addresses are served.
func (c *target) servedByOthers(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	db, err := percolator.Dial(ctx, c.Addrs(), c.ClientConfig())
	if err != nil {
		t.Errorf("a new client of all nodes: %v", err)
		return
	}
	defer func() { _ = db.Close() }()
	for _, with := range []*percolator.DB{db, c.db} {
		err := with.Transact(ctx, func(ctx context.Context, tx *percolator.Tx) error {
			_, _, err := tx.Get(ctx, "m", cell)
			tx.Set("m", cell, []byte("x"))
			return err
		})
		if err != nil {
			t.Errorf("others are not served: %v", err)
		}
	}
}

// openTransactions: a hundred thousand transactions are open at once. One in ten is a snapshot,
// which holds history by a lease; the others have a buffered write.
func openTransactions(t *testing.T, c *target) {
	const count, workers = 100_000, 256
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	db, err := percolator.Dial(ctx, c.Addrs(), c.ClientConfig())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		open  []func()
		first error
	)
	for w := range workers {
		wg.Go(func() {
			for i := w; i < count; i += workers {
				end, err := openOne(ctx, db, i)
				mu.Lock()
				if err != nil && first == nil {
					first = err
				}
				open = append(open, end)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	t.Logf("%d open; the first failure: %v", len(open), first)
	c.servedByOthers(t)
	t.Logf("resident while they are there, MiB: %v", mib(c.memory(t)))
	for _, end := range open {
		end()
	}
}

func openOne(ctx context.Context, db *percolator.DB, i int) (end func(), err error) {
	if i%10 == 0 { // a lease is one write to meta in the worst case
		s, err := db.Snapshot(ctx)
		if err != nil {
			return func() {}, err
		}
		return func() { _ = s.Close() }, nil
	}
	tx, err := db.Begin(ctx)
	if err != nil {
		return func() {}, err
	}
	tx.Set(fmt.Sprintf("k%d", i), cell, []byte("never"))
	return func() { _ = tx.Rollback(context.Background()) }, nil
}

// neverReads: a client requests four MiB repeatedly and reads none of the answers.
func neverReads(t *testing.T, c *target) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	read := largeRead(ctx, t, c)
	stream, err := pb.NewPercolatorClient(dial(t, c.Addrs()[0])).Operations(ctx)
	if err != nil {
		t.Fatal(err)
	}
	sent := make(chan int, 1)
	go func() { // ends with the stream
		n := 0
		for ; n < 20_000; n++ {
			err := stream.Send(&pb.OperationBatch{
				Operations: []*pb.Operation{{Id: uint64(n), Request: read}},
			})
			if err != nil {
				break
			}
		}
		sent <- n
	}()
	for range 5 {
		c.servedByOthers(t)
		t.Logf("resident meanwhile, MiB: %v", mib(c.memory(t)))
	}
	cancel()
	t.Logf("%d reads were sent", <-sent)
}
