package rpc

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/txn/txntest"
)

// patient is a node whose operations last until their context ends.
type patient struct {
	*txntest.Process
	underWay, ended atomic.Int64
}

// Send implements txn.Transport.
func (p *patient) Send(ctx context.Context, _ *pb.TabletDescriptor,
	_ *pb.TabletRequest) (*pb.TabletResponse, error) {
	p.underWay.Add(1)
	<-ctx.Done()
	p.ended.Add(1)
	return nil, ctx.Err()
}

// cable carries bytes between a client and a server until it is cut: then nothing passes in either
// direction, and neither side is notified, as after a stop of the client or a loss of its network.
type cable struct {
	lis  net.Listener
	to   string
	cut  chan struct{}
	runs sync.WaitGroup

	mu    sync.Mutex
	conns []net.Conn
}

func newCable(t *testing.T, to string) *cable {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cable{lis: lis, to: to, cut: make(chan struct{})}
	c.runs.Go(c.accept)
	t.Cleanup(func() {
		_ = lis.Close()
		c.mu.Lock()
		for _, conn := range c.conns {
			_ = conn.Close()
		}
		c.mu.Unlock()
		c.runs.Wait()
	})
	return c
}

func (c *cable) accept() {
	for {
		in, err := c.lis.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", c.to)
		if err != nil {
			_ = in.Close()
			continue
		}
		c.mu.Lock()
		c.conns = append(c.conns, in, out)
		c.mu.Unlock()
		c.runs.Go(func() { c.carry(in, out) })
		c.runs.Go(func() { c.carry(out, in) })
	}
}

func (c *cable) carry(from, to net.Conn) {
	buf := make([]byte, 16<<10)
	for {
		n, err := from.Read(buf)
		select {
		case <-c.cut:
			return // data already read is lost, and no more is read
		default:
		}
		if err != nil {
			_ = to.Close()
			return
		}
		if _, err := to.Write(buf[:n]); err != nil {
			_ = from.Close()
			return
		}
	}
}

// TestVanishedClient: a client stops reading and answering during operations and never closes its
// connection. The server ends the stream within the bound of its keepalive, cancels the operations
// and frees the connection's place.
func TestVanishedClient(t *testing.T) {
	// gRPC's minimum is one second.
	const silence, answer = time.Second, 500 * time.Millisecond
	cluster := txntest.New()
	cluster.AddTable("t")
	p := &patient{Process: cluster.Process(1, 1)}
	server := NewServer(p, ServerConfig{
		MaxConnections: 1, keepalive: silence, keepaliveAnswer: answer,
	})
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(lis) }()
	defer func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	line := newCable(t, lis.Addr().String())
	connect := func(addr string) *Client {
		c, err := Dial(ctx, []string{addr}, ClientConfig{Insecure: true})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	vanished := connect(line.lis.Addr().String())
	defer func() { _ = vanished.Close() }()
	const operations = 8
	calls, give := context.WithCancel(ctx)
	var callers sync.WaitGroup
	defer func() { give(); callers.Wait() }()
	for range operations {
		callers.Go(func() {
			_, _ = vanished.Send(calls, &pb.TabletDescriptor{TabletId: 1}, anything())
		})
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	wait := func(what string, ok func() bool) {
		t.Helper()
		for !ok() {
			select {
			case <-tick.C:
			case <-ctx.Done():
				t.Fatalf("not in time: %s", what)
			}
		}
	}
	wait("the operations are under way", func() bool { return p.underWay.Load() == operations })
	close(line.cut)
	began := time.Now()
	wait("the operations are given up", func() bool { return p.ended.Load() == operations })
	took := time.Since(began)
	t.Logf("given up after %v", took)
	if took > 4*(silence+answer) {
		t.Errorf("a client that has vanished was kept for %v, with a keepalive of %v", took,
			silence+answer)
	}
	next := connect(lis.Addr().String()) // there is one place
	if err := next.Close(); err != nil {
		t.Error(err)
	}
}

func anything() *pb.TabletRequest {
	return &pb.TabletRequest{TabletId: 1, Op: &pb.TabletRequest_Status{Status: &pb.StatusRequest{}}}
}
