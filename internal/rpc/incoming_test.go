package rpc

import (
	"context"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/txn"
)

// busy is a transport whose writes of a KiB and more end when it is told to, and which
// counts those that are under way.
type busy struct {
	txn.Transport
	end         chan struct{}
	bytes, most atomic.Int64
	count       atomic.Int64
}

func (s *busy) Send(ctx context.Context, _ *pb.TabletDescriptor, req *pb.TabletRequest) (*pb.TabletResponse, error) {
	n := int64(proto.Size(req))
	s.count.Add(1)
	if n >= 1<<10 {
		s.most.Store(max(s.most.Load(), s.bytes.Add(n))) // in a bubble that has come to rest it is exact
		select {
		case <-s.end:
		case <-ctx.Done():
		}
		s.bytes.Add(-n)
	}
	return &pb.TabletResponse{Result: &pb.TabletResponse_Mutation{Mutation: &pb.MutationResult{}}}, nil
}

func (s *busy) Tables(context.Context) ([]*pb.Table, error) { return []*pb.Table{{Id: 16}}, nil }

func (s *busy) Catalogue(context.Context) (*pb.Catalogue, error) { return &pb.Catalogue{}, nil }

// source is a stream whose client sends the same message again and again, count times,
// and reads all answers.
type source struct {
	grpc.BidiStreamingServer[pb.OperationBatch, pb.OperationResults]
	ctx      context.Context
	message  []byte
	left     int
	answered atomic.Int64
}

func (s *source) Context() context.Context { return s.ctx }

func (s *source) RecvMsg(m any) error {
	if s.left--; s.left < 0 {
		<-s.ctx.Done()
		return io.EOF
	}
	return m.(*incoming).decode(s.message)
}

func (s *source) SendMsg(m any) error {
	s.answered.Add(int64(len(m.(*outgoing).answers.Results)))
	return nil
}

// writing is a message of operations that each write a value of so many bytes.
func writing(t *testing.T, operations, bytes int) []byte {
	t.Helper()
	batch := &pb.OperationBatch{}
	for i := range operations {
		batch.Operations = append(batch.Operations, &pb.Operation{Id: uint64(i), Request: &pb.TabletRequest{
			TabletId: 2, Op: &pb.TabletRequest_OnePhase{OnePhase: &pb.OnePhaseRequest{
				Writes: []*pb.CellWrite{{Cell: &pb.Cell{Table: 16, Row: []byte("a")}, Value: make([]byte, bytes)}},
			}},
		}})
	}
	b, err := proto.Marshal(batch)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Operations that are taken and not done are bounded by their bytes, of each stream and
// of all: streams that send more are not read. Others are served meanwhile, and all is
// given back.
func TestOperationsAreBounded(t *testing.T) {
	for name, size := range map[string]struct{ operations, bytes, messages int }{
		"large": {4, 1 << 20, 20}, "small": {10, 2 << 10, 600},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCrowd(leastAnswerMemory)
				defer c.close(t)
				b := &busy{end: make(chan struct{})}
				c.transport = b
				open := func(message []byte, count int) *source {
					s := &source{ctx: c.ctx, message: message, left: count}
					go func() { _ = c.Operations(s) }()
					return s
				}
				message, limit := writing(t, size.operations, size.bytes), c.cfg.RequestMemory
				var rude []*source
				for range 12 {
					rude = append(rude, open(message, size.messages))
					synctest.Wait()
					if n := b.bytes.Load(); len(rude) == 1 && n > limit/shareOf {
						t.Errorf("%d bytes of one stream are under way; the limit is %d in all", n, limit)
					}
				}
				if n := b.bytes.Load(); n > limit || n < limit/8 {
					t.Errorf("%d bytes are under way; the limit is %d", n, limit)
				}
				if size.bytes > largestSmall/size.operations {
					polite := open(writing(t, 1, 10), 3)
					synctest.Wait()
					if n := polite.answered.Load(); n != 3 {
						t.Errorf("%d of 3 operations of another stream were answered", n)
					}
				}
				close(b.end)
				synctest.Wait()
				for _, s := range rude {
					if n := s.answered.Load(); n != int64(size.operations*size.messages) {
						t.Errorf("%d of %d operations were answered", n, size.operations*size.messages)
					}
				}
			})
		})
	}
}

// A message that would take more memory than a stream may have ends the stream, before it
// is decoded.
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
	if err := stream.Send(batch); err != nil && err != io.EOF {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); status.Code(err) != codes.ResourceExhausted {
		t.Error(err)
	}
	s.whole()
}

// What a message will take is found out without decoding it.
func TestWeigh(t *testing.T) {
	batch := &pb.OperationBatch{}
	for range 3 {
		get := &pb.GetRequest{}
		for range 1000 {
			get.Cells = append(get.Cells, &pb.Cell{})
		}
		batch.Operations = append(batch.Operations, &pb.Operation{Request: &pb.TabletRequest{Op: &pb.TabletRequest_Get{Get: get}}})
	}
	b, err := proto.Marshal(batch)
	if err != nil {
		t.Fatal(err)
	}
	each, all, err := operationsOf(nil, b)
	if err != nil || len(each) != 3 || all != 3*each[0] || each[0] < 100*1000 || each[0] > 300*1000 {
		t.Errorf("%v of %d, %v", each, all, err)
	}
	if got := allocated(func() { _ = proto.Unmarshal(b, &pb.OperationBatch{}) }); got > int64(all) {
		t.Errorf("decoding takes %d bytes, and was said to take %d", got, all)
	}
	for i := range b {
		if _, _, err := operationsOf(nil, b[:i]); err == nil && proto.Unmarshal(b[:i], &pb.OperationBatch{}) != nil {
			t.Fatalf("cut to %d bytes it is not malformed", i)
		}
	}
}

// allocated is about what a function allocates.
func allocated(fn func()) int64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	fn()
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc - before.TotalAlloc)
}

// Many operations of many small cells at once go in as many messages as a server takes.
func TestHeavyOperations(t *testing.T) {
	s := serve(t, ServerConfig{})
	c := s.transport(BatchConfig{Linger: 20 * time.Millisecond})
	writes := make([]*pb.CellWrite, 10_000)
	for i := range writes {
		writes[i] = &pb.CellWrite{Cell: &pb.Cell{Table: 16, Row: []byte{byte(i)}, Column: []byte("c")}, Value: []byte("v")}
	}
	one := &pb.OnePhaseRequest{StartTs: 1, Writes: writes}
	req := &pb.TabletRequest{TabletId: 2, Op: &pb.TabletRequest_OnePhase{OnePhase: one}}
	b, err := proto.Marshal(&pb.OperationBatch{Operations: []*pb.Operation{{Id: 1 << 40, Request: req}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, all, err := operationsOf(nil, b); err != nil || requestWeight(req, proto.Size(req))+100 < all || all*64 < 4*heaviest {
		t.Fatalf("it weighs %d, and was said to weigh %d: %v", all, requestWeight(req, proto.Size(req)), err)
	}
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			if _, err := c.Send(s.ctx, &pb.TabletDescriptor{TabletId: 2}, req); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}
