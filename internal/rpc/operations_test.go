package rpc

import (
	"context"
	"errors"
	"io"
	"log/slog"
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
	"github.com/percolator-go/percolator/internal/wire"
)

// wall is one client's stream as the server sees it: the client reads a message only once
// reading is closed.
type wall struct {
	grpc.BidiStreamingServer[pb.OperationBatch, pb.OperationResults]
	ctx     context.Context
	asked   chan *pb.OperationBatch
	reading chan struct{}
	shelf   *shelf
	held    atomic.Int64
	answers chan *pb.OperationResult
	ended   chan error
}

func (w *wall) Context() context.Context { return context.WithValue(w.ctx, wallKey{}, w) }

func (w *wall) RecvMsg(m any) error {
	select {
	case b := <-w.asked:
		encoded, err := proto.Marshal(b)
		if err != nil {
			return err
		}
		return m.(*incoming).decode(encoded)
	case <-w.ctx.Done():
		return io.EOF
	}
}

func (w *wall) SendMsg(m any) error { return w.Send(m.(*outgoing).answers) }

func (w *wall) Send(m *pb.OperationResults) error {
	select {
	case <-w.reading:
	case <-w.ctx.Done():
		return w.ctx.Err()
	}
	for _, r := range m.Results {
		w.hold(-int64(wire.AnswerMemory(r.Response)))
		w.answers <- r
	}
	return nil
}

// hold counts memory that answers take: until they are sent, or the stream has ended.
func (w *wall) hold(bytes int64) {
	w.held.Add(bytes)
	now := w.shelf.held.Add(bytes)
	for most := w.shelf.most.Load(); now > most && !w.shelf.most.CompareAndSwap(most, now); most = w.shelf.most.Load() {
	}
}

type wallKey struct{}

// shelf is a transport that answers each Get with as many bytes as its timestamp says,
// and counts what it has answered and nobody has been sent.
type shelf struct {
	txn.Transport
	held, most atomic.Int64
	vain       atomic.Int64 // reads whose answer was refused
}

var blob = make([]byte, 8<<20)

func (s *shelf) Send(ctx context.Context, _ *pb.TabletDescriptor, req *pb.TabletRequest) (*pb.TabletResponse, error) {
	resp := wire.Capped(req, &pb.TabletResponse{Result: &pb.TabletResponse_Get{Get: &pb.GetResponse{
		Results: []*pb.ReadResult{{Value: blob[:req.GetGet().At]}},
	}}})
	if resp.Error != nil {
		s.vain.Add(1)
	}
	ctx.Value(wallKey{}).(*wall).hold(int64(wire.AnswerMemory(resp)))
	return resp, nil
}

func (s *shelf) Tables(context.Context) ([]*pb.Table, error) { return []*pb.Table{{Id: 16}}, nil }

func (s *shelf) Catalogue(context.Context) (*pb.Catalogue, error) { return &pb.Catalogue{}, nil }

// crowd is a server without a network.
type crowd struct {
	*service
	shelf *shelf
	end   context.CancelFunc
	ctx   context.Context
}

func newCrowd(memory int64) *crowd {
	cfg := ServerConfig{AnswerMemory: memory, Logger: slog.New(slog.DiscardHandler)}.withDefaults()
	s := &shelf{}
	c := &crowd{shelf: s, service: &service{
		transport: s, cfg: cfg, tables: newTableIDs(s), draining: make(chan struct{}), budget: newBudget(memory, cfg.AnswerPatience),
		requests: newBudget(cfg.RequestMemory, cfg.AnswerPatience),
	}}
	c.ctx, c.end = context.WithCancel(context.Background())
	return c
}

// client opens a stream and asks for answers of so many bytes, without waiting.
func (c *crowd) client(reads bool, count, bytes int) *wall {
	w := &wall{
		ctx: c.ctx, asked: make(chan *pb.OperationBatch, 1), reading: make(chan struct{}), shelf: c.shelf,
		answers: make(chan *pb.OperationResult, 2*count+1), ended: make(chan error, 1),
	}
	if reads {
		close(w.reading)
	}
	batch := &pb.OperationBatch{}
	for i := range count {
		batch.Operations = append(batch.Operations, &pb.Operation{Id: uint64(i), Request: read(bytes)})
	}
	w.asked <- batch
	go func() {
		err := c.Operations(w)
		w.hold(-w.held.Load())
		w.ended <- err
	}()
	return w
}

func read(bytes int) *pb.TabletRequest {
	return &pb.TabletRequest{TabletId: 2, Op: &pb.TabletRequest_Get{Get: &pb.GetRequest{
		At: uint64(bytes), Cells: []*pb.Cell{{Table: 16, Row: []byte("a")}},
	}}}
}

// close ends all streams; all memory must be given back.
func (c *crowd) close(t *testing.T) {
	t.Helper()
	c.end()
	synctest.Wait()
	for name, b := range map[string]*budget{"answers": c.budget, "requests": c.requests} {
		for p, part := range b.parts {
			if size := b.own[p] * shareOf; !part.TryAcquire(size) {
				t.Errorf("part %d of %d bytes for %s is not whole after all clients have gone", p, size, name)
			}
		}
	}
}

// Many clients that read nothing ask for as much as they can at once: what waits for them
// is bounded for all together, others are served at once if they want little, and soon if
// they want much; who stands in the way is told so.
func TestAnswersAreBounded(t *testing.T) {
	const memory, rudes = leastAnswerMemory, 40
	for name, bytes := range map[string]int{"largest": 4<<20 - 1<<10, "middling": 200 << 10, "small": 10} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCrowd(memory)
				defer c.close(t)
				began := time.Now()
				var rude []*wall
				for range rudes {
					rude = append(rude, c.client(false, 2000, bytes))
				}
				synctest.Wait()
				polite := c.client(true, 1, 100)
				if bytes > largestSmall {
					synctest.Wait() // at once
					if len(polite.answers) != 1 {
						t.Error("a client that wants little waits for those that want much")
					}
				}
				<-polite.answers
				greedy := c.client(true, 1, 4<<20)
				if r := <-greedy.answers; len(r.Response.GetGet().GetResults()) != 1 {
					t.Errorf("a client that wants much and reads: %v", r.Response.GetError())
				}
				// Each time, at least as many are ended as have filled the budget.
				if took := time.Since(began); took > (rudes/shareOf+2)*c.budget.patience {
					t.Errorf("clients that read were served after %v", took)
				}
				if most := c.shelf.most.Load(); most > memory+memory/shareOf {
					t.Errorf("%d MiB of answers waited; the budget is %d", most>>20, memory>>20)
				}
				ended := 0
				for _, w := range rude {
					select {
					case err := <-w.ended:
						if ended++; status.Code(err) != codes.ResourceExhausted {
							t.Errorf("ended with %v", err)
						}
					default:
					}
				}
				if bytes > largestSmall && ended == 0 {
					t.Error("no client that reads nothing was ended")
				}
			})
		})
	}
}

// A client that reads nothing is left alone while nobody waits for the memory, and has
// all its answers when it reads.
func TestLateReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(leastAnswerMemory)
		defer c.close(t)
		late := c.client(false, 300, 1<<20)
		<-time.After(time.Hour)
		other := c.client(true, 1, 4<<20)
		if r := <-other.answers; len(r.Response.GetGet().GetResults()) != 1 {
			t.Errorf("another client: %v", r.Response.GetError())
		}
		close(late.reading)
		synctest.Wait()
		if len(late.answers) != 300 || len(late.ended) != 0 {
			t.Errorf("%d answers of 300; ended: %d", len(late.answers), len(late.ended))
		}
	})
}

// A stream learns what its answers take: of a burst of large reads few are done in vain,
// and none after them.
func TestExpectedAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(leastAnswerMemory)
		defer c.close(t)
		w := c.client(true, 2000, 1<<20)
		for range 2000 {
			if r := <-w.answers; r.Response.Error != nil {
				t.Fatal(r.Response.Error)
			}
		}
		if n := c.shelf.vain.Load(); n > 2*firstWindow {
			t.Errorf("%d of 2000 reads were done in vain", n)
		}
	})
}

// A writer that fails gives back what it held, and an answer that can never fit is
// refused for good.
func TestTooLargeForAnyone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(leastAnswerMemory)
		defer c.close(t)
		c.shelf.Transport = nil
		w := c.client(true, 1, 8<<20)
		if r := <-w.answers; len(r.Response.GetGet().GetResults()) != 1 {
			t.Errorf("the largest: %v", r.Response.GetError())
		}
		s := c.budget.join(func() {})
		defer s.leave()
		if _, ok := s.try(s.largest() + 1); ok {
			t.Error("more than a stream's share was given")
		}
		ctx, cancel := context.WithTimeout(c.ctx, time.Second)
		defer cancel()
		first, ok := s.wait(ctx, s.largest())
		if !ok {
			t.Fatal("no share")
		}
		if _, ok := s.wait(ctx, s.largest()); ok || !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			t.Error("a stream got twice its share")
		}
		s.give(first)
	})
}
