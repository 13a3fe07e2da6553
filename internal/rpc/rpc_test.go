package rpc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/leaktest"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/txn/txntest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// served is a cluster behind a server on a pipe.
type served struct {
	*txntest.Cluster
	process *txntest.Process
	server  *Server
	lis     *bufconn.Listener
	ctx     context.Context
	t       *testing.T
}

func serve(t *testing.T, cfg ServerConfig) *served {
	t.Helper()
	cluster := txntest.New()
	cluster.AddTable("t", "g", "p")
	process := cluster.Process(1, 1)
	s := serveOver(t, process, cfg)
	s.Cluster, s.process = cluster, process
	t.Cleanup(func() { process.Inject(nil) }) // before the server stops
	return s
}

// serveOver serves the given transport.
func serveOver(t *testing.T, transport txn.Transport, cfg ServerConfig) *served {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	s := &served{server: NewServer(transport, cfg), lis: bufconn.Listen(1 << 20), ctx: ctx, t: t}
	done := make(chan error, 1)
	go func() { done <- s.server.Serve(s.lis) }()
	t.Cleanup(func() {
		s.server.Stop()
		if err := <-done; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Error(err)
		}
	})
	return s
}

func (s *served) transport(batch BatchConfig) *Client {
	s.t.Helper()
	pipe := grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
		return s.lis.DialContext(ctx)
	})
	c, err := dial(s.ctx, []string{"passthrough:///pipe"}, ClientConfig{Insecure: true, Batch: batch},
		[]grpc.DialOption{pipe})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if err := c.Close(); err != nil {
			s.t.Error(err)
		}
	})
	return c
}

func (s *served) client() *txn.Client {
	c := txn.NewClient(s.transport(BatchConfig{}), txn.Config{})
	s.t.Cleanup(func() {
		if err := c.Close(); err != nil {
			s.t.Error(err)
		}
	})
	return c
}

func key(row string) txn.Key { return txn.Key{Table: "t", Row: row, Column: "c"} }

func (s *served) set(c *txn.Client, value []byte, rows ...string) {
	s.t.Helper()
	if _, err := c.Run(s.ctx, txn.Options{}, func(_ context.Context, t *txn.Txn) error {
		for _, row := range rows {
			t.Set(key(row), value)
		}
		return nil
	}); err != nil {
		s.t.Fatal(err)
	}
}

func TestTransactionsOverTheWire(t *testing.T) {
	s := serve(t, ServerConfig{})
	c := s.client()
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			for i := range 20 {
				s.set(c, []byte{byte(g)}, fmt.Sprintf("a%d-%d", g, i), fmt.Sprintf("z%d-%d", g, i))
			}
		})
	}
	wg.Wait()
	snap, err := c.Snapshot(s.ctx)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, err := range snap.Scan(s.ctx, txn.ScanSpec{Table: "t"}) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != 2*16*20 {
		t.Errorf("%d cells", n)
	}
}

// The largest allowed values pass, also many at once.
func TestLargeValues(t *testing.T) {
	s := serve(t, ServerConfig{})
	c := s.client()
	value := bytes.Repeat([]byte{7}, 4<<20)
	rows := []string{"a", "b", "c", "d", "h", "z"}
	s.set(c, value, rows...)
	snap, err := c.Snapshot(s.ctx)
	if err != nil {
		t.Fatal(err)
	}
	var keys []txn.Key
	for _, row := range rows {
		keys = append(keys, key(row))
	}
	values, err := snap.GetMulti(s.ctx, keys)
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range values {
		if !bytes.Equal(v.Bytes, value) {
			t.Errorf("%s: %d bytes", rows[i], len(v.Bytes))
		}
	}
}

func TestErrorsKeepTheirKind(t *testing.T) {
	s := serve(t, ServerConfig{})
	c := s.client()
	if err := c.DropTable(s.ctx, "none"); !errors.Is(err, txn.ErrNoTable) {
		t.Errorf("drop: %v", err)
	}
	if err := c.CreateTable(s.ctx, "new", []string{"m"}); err != nil {
		t.Error(err)
	}
	tables, err := c.Tables(s.ctx)
	if err != nil || len(tables) != 2 {
		t.Errorf("%v, %v", tables, err)
	}
	tr := s.transport(BatchConfig{})
	meta := []*pb.CellWrite{{Cell: &pb.Cell{Table: 0}}}
	for name, tc := range map[string]struct {
		req  *pb.TabletRequest
		want pb.Error_Code
	}{
		"nothing": {&pb.TabletRequest{}, pb.Error_CODE_INVALID},
		"no cell": {&pb.TabletRequest{Op: &pb.TabletRequest_Get{}}, pb.Error_CODE_INVALID},
		"no body": {&pb.TabletRequest{Op: &pb.TabletRequest_Commit{}}, pb.Error_CODE_INVALID},
		"meta": {
			&pb.TabletRequest{
				Op: &pb.TabletRequest_OnePhase{OnePhase: &pb.OnePhaseRequest{Writes: meta}},
			}, pb.Error_CODE_PERMISSION,
		},
		"mark": {
			&pb.TabletRequest{Op: &pb.TabletRequest_Mark{Mark: &pb.MarkRequest{RaiseTo: 1 << 63}}},
			pb.Error_CODE_PERMISSION,
		},
		"split": {
			&pb.TabletRequest{Op: &pb.TabletRequest_Split{Split: &pb.SplitRequest{}}},
			pb.Error_CODE_PERMISSION,
		},
		"catalogue": {
			&pb.TabletRequest{
				Op: &pb.TabletRequest_SetCatalogue{SetCatalogue: &pb.SetCatalogueRequest{}},
			}, pb.Error_CODE_PERMISSION,
		},
		"wrong place": {
			&pb.TabletRequest{
				TabletId: 99, Op: &pb.TabletRequest_Pending{Pending: &pb.PendingRequest{}},
			}, pb.Error_CODE_WRONG_TABLET,
		},
	} {
		resp, err := tr.Send(s.ctx, nil, tc.req)
		if err != nil || resp.GetError().GetCode() != tc.want {
			t.Errorf("%s: %v, %v; want %v", name, resp, err, tc.want)
		}
	}
}

// A broken stream loses the replies of the requests sent on it, and only those.
func TestLostReplies(t *testing.T) {
	s := serve(t, ServerConfig{})
	tr := s.transport(BatchConfig{})
	reached, release := make(chan struct{}), make(chan struct{})
	s.process.Inject(func(*pb.TabletRequest) txntest.Fault {
		return txntest.Fault{Before: func(ctx context.Context) {
			close(reached)
			<-ctx.Done()
			<-release
		}}
	})
	got := make(chan error, 1)
	go func() {
		_, err := tr.Send(s.ctx, nil, &pb.TabletRequest{
			TabletId: 2, Op: &pb.TabletRequest_Pending{Pending: &pb.PendingRequest{}},
		})
		got <- err
	}()
	<-reached
	go s.server.Stop()
	if err := <-got; err == nil || errors.Is(err, txn.ErrNotSent) {
		t.Errorf("sent and lost: %v", err)
	}
	close(release)
	ctx, cancel := context.WithTimeout(s.ctx, 100*time.Millisecond)
	defer cancel()
	_, err := tr.Send(ctx, nil, &pb.TabletRequest{
		TabletId: 2, Op: &pb.TabletRequest_Pending{Pending: &pb.PendingRequest{}},
	})
	if !errors.Is(err, txn.ErrNotSent) {
		t.Errorf("nobody there: %v", err)
	}
}

func TestQueueLimit(t *testing.T) {
	s := serve(t, ServerConfig{MaxInFlight: 2})
	tr := s.transport(BatchConfig{QueueLimit: 8})
	release := make(chan struct{})
	s.process.Inject(func(*pb.TabletRequest) txntest.Fault {
		return txntest.Fault{Before: func(context.Context) { <-release }}
	})
	errs := make(chan error, 100)
	var wg sync.WaitGroup
	for range 40 {
		wg.Go(func() {
			_, err := tr.Send(s.ctx, nil, &pb.TabletRequest{
				TabletId: 2, Op: &pb.TabletRequest_Pending{Pending: &pb.PendingRequest{}},
			})
			errs <- err
		})
	}
	for range 32 {
		if err := <-errs; !errors.Is(err, txn.ErrOverloaded) || !errors.Is(err, txn.ErrNotSent) {
			t.Error(err)
		}
	}
	close(release)
	wg.Wait()
}

// A panicking handler answers with an error, and the stream continues.
func TestPanic(t *testing.T) {
	s := serve(t, ServerConfig{})
	tr := s.transport(BatchConfig{})
	s.process.Inject(func(*pb.TabletRequest) txntest.Fault { panic("no") })
	req := &pb.TabletRequest{
		TabletId: 2, Op: &pb.TabletRequest_Pending{Pending: &pb.PendingRequest{}},
	}
	resp, err := tr.Send(s.ctx, nil, req)
	if err != nil || resp.GetError().GetCode() != pb.Error_CODE_INTERNAL {
		t.Errorf("%v, %v", resp, err)
	}
	s.process.Inject(nil)
	req = &pb.TabletRequest{TabletId: 99, Op: req.Op}
	if resp, err = tr.Send(s.ctx, nil, req); err != nil ||
		resp.GetError().GetCode() != pb.Error_CODE_WRONG_TABLET {
		t.Errorf("%v, %v", resp, err)
	}
}

// Shutdown answers the requests under way.
func TestShutdown(t *testing.T) {
	s := serve(t, ServerConfig{})
	tr := s.transport(BatchConfig{})
	reached, release := make(chan struct{}), make(chan struct{})
	s.process.Inject(func(*pb.TabletRequest) txntest.Fault {
		return txntest.Fault{Before: func(context.Context) { close(reached); <-release }}
	})
	got := make(chan error, 1)
	go func() {
		_, err := tr.Send(s.ctx, nil, &pb.TabletRequest{
			TabletId: 1, Op: &pb.TabletRequest_Pending{Pending: &pb.PendingRequest{}},
		})
		got <- err
	}()
	<-reached
	down := make(chan struct{})
	go func() { s.server.Shutdown(s.ctx); close(down) }()
	close(release)
	if err := <-got; err != nil {
		t.Error(err)
	}
	<-down
}

func TestGarbage(t *testing.T) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cluster := txntest.New()
	cluster.AddTable("t")
	server := NewServer(cluster.Process(1, 1), ServerConfig{})
	var wg sync.WaitGroup
	wg.Go(func() { _ = server.Serve(lis) })
	defer wg.Wait()
	defer server.Stop()
	rng := rand.New(rand.NewPCG(1, 2))
	preface := "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	for i := range 200 {
		noise := make([]byte, 1+rng.IntN(4096))
		for j := range noise {
			noise[j] = byte(rng.Uint32())
		}
		switch i % 4 {
		case 1:
			noise = append([]byte(preface), noise...)
		case 2: // a settings frame, then noise
			noise = append([]byte(preface+"\x00\x00\x00\x04\x00\x00\x00\x00\x00"), noise...)
		case 3:
			noise = []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		}
		conn, err := net.Dial("tcp", lis.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = conn.Write(noise)
		_ = conn.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	tr, err := Dial(ctx, []string{"127.0.0.1:1", lis.Addr().String()}, ClientConfig{Insecure: true})
	if err != nil {
		t.Fatal(err)
	}
	c := txn.NewClient(tr, txn.Config{})
	if _, err := c.Run(ctx, txn.Options{}, func(_ context.Context, tx *txn.Txn) error {
		tx.Set(key("a"), []byte("b"))
		return nil
	}); err != nil {
		t.Error(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

func TestDialErrors(t *testing.T) {
	ctx := context.Background()
	for name, cfg := range map[string]ClientConfig{
		"neither":  {},
		"both":     {Insecure: true, CAFile: "x"},
		"no file":  {CAFile: "/does/not/exist"},
		"half key": {CAFile: "x", CertFile: "y"},
	} {
		if _, err := Dial(ctx, []string{"127.0.0.1:1"}, cfg); !errors.Is(err, txn.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := Dial(ctx, []string{"127.0.0.1:1"},
		ClientConfig{Insecure: true, DialTimeout: 50 * time.Millisecond})
	if !errors.Is(err, txn.ErrUnavailable) {
		t.Errorf("nobody there: %v", err)
	}
	if _, err := Dial(ctx, nil, ClientConfig{Insecure: true}); !errors.Is(err, txn.ErrInvalid) {
		t.Errorf("no address: %v", err)
	}
}
