package rpc

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/txn/txntest"
	"github.com/percolator-go/percolator/internal/wire"
)

// shelf is a node that answers each Get with as many bytes as its timestamp says, and holds writes
// until it is told to end them.
type shelf struct {
	*txntest.Process
	end       chan struct{}
	underWay  atomic.Int64 // bytes of writes
	mostWrite atomic.Int64
	vain      atomic.Int64 // reads whose answer was refused
	made      atomic.Int64 // answers to reads of 64 KiB and more
}

var blob = make([]byte, largestAnswer+1)

func newShelf() *shelf {
	cluster := txntest.New()
	cluster.AddTable("t")
	return &shelf{Process: cluster.Process(1, 1), end: make(chan struct{})}
}

// Send implements txn.Transport.
func (s *shelf) Send(ctx context.Context, _ *pb.TabletDescriptor,
	req *pb.TabletRequest) (*pb.TabletResponse, error) {
	if w := req.GetOnePhase().GetWrites(); len(w) > 0 {
		n := int64(len(w[0].Value))
		now := s.underWay.Add(n)
		for most := s.mostWrite.Load(); now > most &&
			!s.mostWrite.CompareAndSwap(most, now); most = s.mostWrite.Load() {
		}
		select {
		case <-s.end:
		case <-ctx.Done():
		}
		s.underWay.Add(-n)
		return &pb.TabletResponse{
			Result: &pb.TabletResponse_Mutation{Mutation: &pb.MutationResult{}},
		}, nil
	}
	resp := wire.Capped(req, &pb.TabletResponse{Result: &pb.TabletResponse_Get{Get: &pb.GetResponse{
		Results: []*pb.ReadResult{{Value: blob[:req.GetGet().GetAt()]}},
	}}})
	switch {
	case resp.GetGet() == nil:
		s.vain.Add(1)
	case req.GetGet().GetAt() >= 64<<10:
		s.made.Add(1)
	}
	return resp, nil
}

// read requests n bytes from the shelf.
func read(bytes int) *pb.TabletRequest {
	return &pb.TabletRequest{TabletId: 2, Op: &pb.TabletRequest_Get{Get: &pb.GetRequest{
		At: uint64(bytes), Cells: []*pb.Cell{{Table: 16, Row: []byte("a")}},
	}}}
}

// write sends n bytes to the shelf.
func write(bytes int) *pb.TabletRequest {
	return &pb.TabletRequest{TabletId: 2,
		Op: &pb.TabletRequest_OnePhase{OnePhase: &pb.OnePhaseRequest{
			Writes: []*pb.CellWrite{
				{Cell: &pb.Cell{Table: 16, Row: []byte("a")}, Value: make([]byte, bytes)},
			},
		}}}
}

// bare connects to the server without this module's client, which would receive answers before they
// are read: here the server's unread answers wait in small windows.
func (s *served) bare() pb.PercolatorClient {
	s.t.Helper()
	pipe := grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
		return s.lis.DialContext(ctx)
	})
	conn, err := grpc.NewClient("passthrough:///pipe",
		grpc.WithTransportCredentials(insecure.NewCredentials()), pipe,
		// with these options the windows do not grow
		grpc.WithInitialWindowSize(64<<10), grpc.WithInitialConnWindowSize(64<<10))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = conn.Close() })
	return pb.NewPercolatorClient(conn)
}

// flood sends the operation count times on each of n streams of a separate connection, and reads
// nothing.
func (s *served) flood(streams, count int,
	req *pb.TabletRequest) (all []grpc.BidiStreamingClient[pb.OperationBatch,
	pb.OperationResults]) {
	s.t.Helper()
	client := s.bare()
	for range streams {
		stream, err := client.Operations(s.ctx)
		if err != nil {
			s.t.Fatal(err)
		}
		all = append(all, stream)
		go func() { // ends with the stream
			for id := range uint64(count) {
				if stream.Send(&pb.OperationBatch{Operations: []*pb.Operation{{Id: id,
					Request: req}}}) != nil {
					return
				}
			}
		}()
	}
	return all
}

// whole waits until none of the server's memory is held.
func (s *served) whole() {
	s.t.Helper()
	size := s.server.service.cfg.Memory
	if err := s.server.service.memory.Acquire(s.ctx, size); err != nil {
		s.t.Errorf("memory is not released: %v", err)
		return
	}
	s.server.service.memory.Release(size)
}

// until waits for a condition.
func (s *served) until(what string, ok func() bool) {
	s.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-s.ctx.Done():
			s.t.Fatalf("not in time: %s", what)
		}
	}
}

// A connection gets its share of the memory, all of them at most the whole; an abandoned wait holds
// none.
func TestMemoryIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = shares << 10
		all := semaphore.NewWeighted(size)
		take := func(m *memory, n int64) bool {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			return m.take(ctx, n) == nil
		}
		var conns []*memory
		for i := range shares + 1 {
			m := newMemory(all, size)
			if got := take(m, m.most); got != (i < shares) {
				t.Errorf("connection %d gets memory: %v", i, got)
			}
			if take(m, 1) {
				t.Errorf("connection %d has more than its share", i)
			}
			conns = append(conns, m)
		}
		conns[0].give(1 << 10)
		if !take(conns[shares], 1<<10) {
			t.Error("the released memory is not free")
		}
	})
}

// Clients that read nothing make a node answer at most their connection's share; others are still
// served, and when the answers are gone, all memory is free.
func TestAnswersAreBounded(t *testing.T) {
	const memory, size = 64 << 20, 1 << 20
	node := newShelf()
	s := serveOver(t, node, ServerConfig{Memory: memory})
	streams := s.flood(16, 4, read(size))
	polite := s.transport(BatchConfig{})
	for range 20 {
		for _, n := range []int{100, 8 << 20} {
			resp, err := polite.Send(s.ctx, nil, read(n))
			if err != nil || len(resp.GetGet().GetResults()) != 1 {
				t.Fatalf("%d bytes for a client that reads: %v, %v", n, resp.GetError(), err)
			}
		}
	}
	if n := node.made.Load() - 20; n*size > memory/shares {
		t.Errorf("UNCOUNTED-ANSWERS: %d MiB were answered to a connection that reads nothing; its share is %d", n, memory/shares>>20)
	}
	for _, stream := range streams {
		_ = stream.CloseSend()
	}
	s.server.Stop()
	s.whole()
}

// A client that reads nothing holds memory for at most WriteTimeout: then its connection is closed.
func TestClientThatNeverReads(t *testing.T) {
	node := newShelf()
	s := serveOver(t, node, ServerConfig{WriteTimeout: 100 * time.Millisecond})
	s.flood(2, 100, read(3<<20))
	s.until("an answer", func() bool { return node.made.Load() > 0 })
	s.whole()
}

// Operations accepted and not done are bounded by their bytes, per connection and in total: streams
// that send more are not read. Others are still served.
func TestOperationsAreBounded(t *testing.T) {
	const memory, size = 64 << 20, 1 << 20
	node := newShelf()
	s := serveOver(t, node, ServerConfig{Memory: memory})
	one := s.flood(4, 20, write(size))
	s.until("a connection's share", func() bool {
		return node.underWay.Load() >= memory/shares-2*size
	})
	polite := s.transport(BatchConfig{})
	for range 20 {
		if resp, err := polite.Send(s.ctx, nil, read(10)); err != nil || resp.GetError() != nil {
			t.Fatal(resp, err)
		}
	}
	if n := node.mostWrite.Load(); n > memory/shares {
		t.Errorf("%d bytes of one connection are under way", n)
	}
	var others []grpc.BidiStreamingClient[pb.OperationBatch, pb.OperationResults]
	for range 2 * shares {
		others = append(others, s.flood(1, 20, write(size))...)
	}
	s.until("all of the memory", func() bool {
		return node.underWay.Load() >= memory-2*shares*size
	})
	close(node.end)
	for _, stream := range append(one, others...) {
		for n := 0; n < 20; {
			r, err := stream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			n += len(r.Results)
		}
	}
	if n := node.mostWrite.Load(); n > memory {
		t.Errorf("%d bytes of all are under way", n)
	}
	s.whole()
}

// gate is a node whose Tables waits.
type gate struct {
	*txntest.Process
	entered chan struct{}
	open    chan struct{}
}

// Tables implements txn.Transport.
func (g *gate) Tables(context.Context) ([]*pb.Table, error) {
	g.entered <- struct{}{}
	<-g.open
	return nil, errors.New("no")
}

// A connection has a bounded number of concurrent calls, each of which may hold an incomplete
// message or an unread answer. Further ones are refused.
func TestCallsUnderWay(t *testing.T) {
	const most, more = 4, 3
	g := &gate{
		Process: txntest.New().Process(1, 1), entered: make(chan struct{}, most+more),
		open: make(chan struct{}),
	}
	s := serveOver(t, g, ServerConfig{MaxStreams: most})
	conn, err := s.lis.DialContext(s.ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	defer close(g.open)
	var block, b bytes.Buffer
	e := hpack.NewEncoder(&block)
	for _, f := range [][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":path", pb.Percolator_Tables_FullMethodName},
		{":authority", "x"}, {"content-type", "application/grpc"}, {"te", "trailers"},
	} {
		// so that the same block can be sent again
		_ = e.WriteField(hpack.HeaderField{Name: f[0], Value: f[1], Sensitive: true})
	}
	b.WriteString(http2.ClientPreface)
	f := http2.NewFramer(&b, conn)
	_ = f.WriteSettings()
	for i := range most + more {
		id := uint32(2*i + 1)
		_ = f.WriteHeaders(http2.HeadersFrameParam{
			StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true,
		})
		_ = f.WriteData(id, true, make([]byte, 5)) // an empty message
	}
	if _, err := conn.Write(b.Bytes()); err != nil {
		t.Fatal(err)
	}
	refused := make(chan struct{}, most+more)
	go func() { // ends with the connection
		for {
			frame, err := f.ReadFrame()
			if err != nil {
				return
			}
			if r, ok := frame.(*http2.RSTStreamFrame); ok &&
				r.ErrCode == http2.ErrCodeRefusedStream {
				refused <- struct{}{}
			}
		}
	}()
	underWay, turnedAway := 0, 0
	for underWay+turnedAway < most+more {
		select {
		case <-g.entered:
			underWay++
		case <-refused:
			turnedAway++
		case <-s.ctx.Done():
			t.Fatal("some calls were neither done nor refused")
		}
	}
	if underWay != most {
		t.Errorf("UNCOUNTED-CALLS: %d calls of a connection are under way; it may have %d",
			underWay, most)
	}
}

// Many clients that read, with more of the largest reads at once than fit into memory: all are
// answered.
func TestNoStandstill(t *testing.T) {
	s := serve(t, ServerConfig{Memory: 64 << 20})
	writer := s.client()
	s.set(writer, make([]byte, 3<<20), "a", "h")
	s.set(writer, make([]byte, 100<<10), "b")
	s.set(writer, make([]byte, 10), "z")
	var wg sync.WaitGroup
	for range 4 {
		c := s.client()
		snap, err := c.Snapshot(s.ctx)
		if err != nil {
			t.Fatal(err)
		}
		for range 8 {
			wg.Go(func() {
				for range 2 {
					values, err := snap.GetMulti(s.ctx,
						[]txn.Key{key("z"), key("a"), key("b"), key("h")})
					if err != nil {
						t.Error(err)
						return
					}
					if len(values[0].Bytes) != 10 || len(values[1].Bytes) != 3<<20 ||
						len(values[2].Bytes) != 100<<10 || len(values[3].Bytes) != 3<<20 {
						t.Error("values are cut")
					}
				}
			})
		}
	}
	wg.Wait()
	s.whole()
}

// A stream learns the sizes of its reads: few are repeated.
func TestStreamLearns(t *testing.T) {
	node := newShelf()
	s := serveOver(t, node, ServerConfig{})
	c := s.transport(BatchConfig{})
	for range 100 {
		if resp, err := c.Send(s.ctx, nil, read(100<<10)); err != nil || resp.GetError() != nil {
			t.Fatal(resp.GetError(), err)
		}
	}
	if n := node.vain.Load(); n > 2 {
		t.Errorf("%d of 100 reads were done twice", n)
	}
}

// An answer that can never fit is refused permanently.
func TestTooLargeForAnyone(t *testing.T) {
	s := serveOver(t, newShelf(), ServerConfig{})
	c := s.transport(BatchConfig{})
	for _, n := range []int{MaxOperation, largestAnswer + 1} {
		if resp, err := c.Send(s.ctx, nil, read(n)); err != nil ||
			resp.GetError().GetCode() != pb.Error_CODE_TOO_LARGE {
			t.Errorf("%d bytes: %v, %v", n, resp.GetError(), err)
		}
	}
	s.whole()
}

// A message of very many operations weighs no more than any other.
func TestMessageOfManyOperations(t *testing.T) {
	s := serve(t, ServerConfig{})
	stream, err := s.bare().Operations(s.ctx)
	if err != nil {
		t.Fatal(err)
	}
	batch := &pb.OperationBatch{}
	for range 200_000 {
		batch.Operations = append(batch.Operations, &pb.Operation{})
	}
	batch.Operations = append(batch.Operations, &pb.Operation{Id: 7, Request: read(10)})
	if err := stream.Send(batch); err != nil && err != io.EOF {
		t.Fatal(err)
	}
	if r, err := stream.Recv(); err != nil || len(r.Results) != 1 || r.Results[0].Id != 7 {
		t.Error(r, err)
	}
	s.whole()
}

// TestLocksAreTold: an answer lists as many locks as its memory allows, however long their rows,
// but at least one, so that the client progresses.
func TestLocksAreTold(t *testing.T) {
	for _, c := range []struct{ row, locks, want int }{
		{row: 10, locks: 100, want: 100}, {row: 4000, locks: 100, want: 4}, {row: 40_000, locks: 2, want: 1},
	} {
		m := &pb.MutationResult{Status: pb.Status_STATUS_LOCKED}
		for range c.locks {
			m.Locks = append(m.Locks, &pb.LockInfo{Cell: &pb.Cell{Row: make([]byte, c.row)}})
		}
		resp, size := fit(&pb.TabletResponse{Result: &pb.TabletResponse_Mutation{Mutation: m}})
		got := resp.GetMutation()
		if len(got.GetLocks()) != c.want || got.GetStatus() != m.Status || size != proto.Size(resp) {
			t.Errorf("%d of %d locks of rows of %d bytes are told, in %d bytes; want %d",
				len(got.GetLocks()), c.locks, c.row, size, c.want)
		}
	}
}
