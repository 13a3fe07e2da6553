package remoting

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/percolator-go/percolator/internal/wire"
)

const patience = 30 * time.Second

// open opens a link in plain text that resolves every node to the address.
func open(t *testing.T, addr string) *Link {
	t.Helper()
	l, err := Open(Config{
		Listen: "127.0.0.1:0", Resolve: func(uint64) (string, bool) { return addr, true },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// receiving opens a link that passes received batches to the function.
func receiving(t *testing.T, take func(*wire.PeerBatch)) *Link {
	t.Helper()
	l := open(t, "")
	l.Receive(take)
	return l
}

// numbered returns a batch identified by its LogReached.
func numbered(n uint64) *wire.PeerBatch { return &wire.PeerBatch{FromNode: 1, LogReached: n} }

// sendNext sends a batch once fewer than maxWaiting wait and there is a connection or an attempt at
// one.
func sendNext(t *testing.T, l *Link, b *wire.PeerBatch, then func(error)) {
	t.Helper()
	for begin := time.Now(); ; {
		err := l.Send(2, b, then)
		if err == nil {
			return
		}
		if !errors.Is(err, ErrBusy) && !errors.Is(err, ErrUnreachable) || time.Since(begin) > patience {
			t.Fatal(err)
		}
	}
}

func within[T any](t *testing.T, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("timeout: %s", what)
		panic("unreachable")
	}
}

// journal records the reports of a link in order.
type journal struct {
	mu      sync.Mutex
	reports int
	onWay   map[uint64]bool // by batch: whether it was reported as in flight
	losable map[uint64]bool // those in flight since Lost was last called
	twice   []uint64
}

func (j *journal) report(n uint64, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if _, known := j.onWay[n]; known {
		j.twice = append(j.twice, n)
	}
	j.reports++
	j.onWay[n] = err == nil
	if err == nil {
		j.losable[n] = true
	}
}

func (j *journal) lost(uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	clear(j.losable)
}

// TestAtMostOnceInOrder: over a stable connection every batch arrives in order. Over connections
// that end in between, none arrives twice, each is reported once, one reported as not sent does not
// arrive, and Lost is called after a lost one was reported.
func TestAtMostOnceInOrder(t *testing.T) {
	for _, ends := range []bool{false, true} {
		t.Run(fmt.Sprintf("ends %v", ends), func(t *testing.T) {
			const count = 2_000
			got := make(chan uint64, 2*count)
			b := receiving(t, func(b *wire.PeerBatch) { got <- b.GetLogReached() })
			a, j := open(t, b.Addr()), &journal{onWay: map[uint64]bool{}, losable: map[uint64]bool{}}
			a.Lost(j.lost)
			for n := range uint64(count) {
				if ends && n%400 == 200 {
					a.Down(2, math.MaxUint64)
				}
				sendNext(t, a, numbered(n), func(err error) { j.report(n, err) })
			}
			if !ends {
				for n := range uint64(count) {
					if arrived := within(t, got, "each batch"); arrived != n {
						t.Fatalf("ORDER: batch %d arrived as number %d", arrived, n)
					}
				}
			}
			if err := errors.Join(a.Close(), b.Close()); err != nil {
				t.Error(err)
			}
			close(got)
			seen := make(map[uint64]bool)
			for n := range got {
				if seen[n] || !j.onWay[n] {
					t.Errorf("ORDER: batch %d arrived: before %v, on its way %v", n, seen[n], j.onWay[n])
				}
				seen[n] = true
			}
			st := a.Stats()
			if j.reports != count || len(j.twice) > 0 || len(j.losable) > 0 {
				t.Errorf("%d reports, of %v more than one; %d may be lost after the last call of Lost",
					j.reports, j.twice, len(j.losable))
			}
			if ends == (st.Lost == 1) || st.Sent > count {
				t.Errorf("%+v", st)
			}
		})
	}
}

// TestSilentNode: the batches waiting for a node that does not answer are bounded, and fail once,
// in time.
func TestSilentNode(t *testing.T) {
	t.Parallel()
	lis, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts, and nobody reads
	if err != nil {
		t.Fatal(err)
	}
	defer lis.Close()
	l, reports := open(t, lis.Addr().String()), make(chan error, 2*maxWaiting)
	for range maxWaiting {
		if err := l.Send(2, numbered(1), func(err error) { reports <- err }); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Send(2, numbered(1), func(error) { t.Error("a refused batch was reported") }); !errors.Is(err, ErrBusy) {
		t.Errorf("UNBOUNDED: one batch more: %v", err)
	}
	for range maxWaiting {
		if err := within(t, reports, "the end of the attempt"); !errors.Is(err, ErrUnreachable) {
			t.Errorf("a batch for a silent node: %v", err)
		}
	}
	if err := l.Send(2, numbered(1), func(error) {}); !errors.Is(err, ErrUnreachable) {
		t.Errorf("a batch in the pause: %v", err)
	}
	if st := l.Stats(); st.Failed != 1 || st.Sent+st.Connected+st.Lost != 0 {
		t.Errorf("%+v", st)
	}
}

// TestPanicEndsItsStream: a panic of the receiver ends its stream, and the next stream works.
func TestPanicEndsItsStream(t *testing.T) {
	got := make(chan uint64, 1)
	b := receiving(t, func(b *wire.PeerBatch) {
		if b.GetLogReached() == 1 {
			panic("the receiver's")
		}
		got <- b.GetLogReached()
	})
	a, lost := open(t, b.Addr()), make(chan uint64, 1)
	a.Lost(func(node uint64) { lost <- node })
	sendNext(t, a, numbered(1), func(error) {})
	if node := within(t, lost, "the end of the stream"); node != 2 {
		t.Errorf("the connection to node %d has ended", node)
	}
	sendNext(t, a, numbered(2), func(error) {})
	if n := within(t, got, "the next batch"); n != 2 {
		t.Errorf("batch %d arrived", n)
	}
	if st := b.Stats(); st.Panics != 1 || st.Received != 2 {
		t.Errorf("%+v", st)
	}
}

// TestBatchThatCannotBeEncoded: such a batch is reported as not sent, and the connection stays
// open.
func TestBatchThatCannotBeEncoded(t *testing.T) {
	got := make(chan uint64, 1)
	b := receiving(t, func(b *wire.PeerBatch) { got <- b.GetLogReached() })
	a, reports := open(t, b.Addr()), make(chan error, 2)
	sendNext(t, a, &wire.PeerBatch{ClusterId: "\xff"}, func(err error) { reports <- err })
	sendNext(t, a, numbered(2), func(err error) { reports <- err })
	if err := within(t, reports, "the first report"); err == nil || !strings.Contains(err.Error(), "UTF-8") {
		t.Errorf("a batch that cannot be encoded: %v", err)
	}
	if err := within(t, reports, "the second report"); err != nil {
		t.Error(err)
	}
	within(t, got, "the batch after it")
	if st := a.Stats(); st.Connected != 1 || st.Lost != 0 {
		t.Errorf("%+v", st)
	}
}

// TestGarbage: connections that send anything other than frames end or stay silent, and the node
// serves others.
func TestGarbage(t *testing.T) {
	got := make(chan uint64, 1)
	b := receiving(t, func(b *wire.PeerBatch) { got <- b.GetLogReached() })
	preface := "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	for _, text := range []string{
		"", "GET / HTTP/1.1\r\n\r\n", "\x16\x03\x01\x02\x00\x01", preface,
		preface + "\xff\xff\xff\x00\x00\x00\x00\x00\x00", // a frame of 16 MiB
		preface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00" + "\x00\x00\x04\x01\x05\x00\x00\x00\x01\xff\xff\xff\xff",
		string(bytes.Repeat([]byte{0xa5}, 1<<16)),
	} {
		conn, err := net.Dial("tcp", b.Addr())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = conn.Write([]byte(text)) // the node may close the connection before it has received everything
		defer conn.Close()
	}
	a := open(t, b.Addr())
	sendNext(t, a, numbered(1), func(error) {})
	within(t, got, "a batch")
	if st := b.Stats(); st.Panics != 0 || st.Received != 1 {
		t.Errorf("%+v", st)
	}
}

// stalling is a listener whose connections stop reading once stalled is closed.
type stalling struct {
	net.Listener
	stalled, resumed chan struct{}
}

func (s stalling) Accept() (net.Conn, error) {
	c, err := s.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return stallingConn{c, s}, c.(*net.TCPConn).SetReadBuffer(4 << 10)
}

type stallingConn struct {
	net.Conn
	s stalling
}

func (c stallingConn) Read(p []byte) (int, error) {
	select {
	case <-c.s.stalled:
		<-c.s.resumed
	default:
	}
	return c.Conn.Read(p)
}

// TestCloseOfAStalledConnection: closing does not wait for a node whose socket is full. The socket
// fills up in time in one of four rounds.
func TestCloseOfAStalledConnection(t *testing.T) {
	for range 10 {
		if took := closeStalled(t); took > 4*time.Second { // gRPC alone would wait 5 s
			t.Fatalf("closing took %v", took)
		}
	}
}

// closeStalled returns the time to close a link whose only connection is stalled.
func closeStalled(t *testing.T) time.Duration {
	t.Helper()
	got := make(chan uint64, 1)
	b := receiving(t, func(b *wire.PeerBatch) { got <- b.GetLogReached() })
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := stalling{lis, make(chan struct{}), make(chan struct{})}
	var serving sync.WaitGroup
	serving.Go(func() { _ = b.server.Serve(s) })
	defer serving.Wait()
	defer b.Close()
	defer close(s.resumed)
	a := open(t, lis.Addr().String())
	sendNext(t, a, numbered(1), func(error) {})
	within(t, got, "a batch")
	close(s.stalled)
	large := &wire.PeerBatch{Requests: []*wire.PeerRequest{{Body: &wire.PeerRequest_Snapshot{
		Snapshot: &wire.SnapshotChunk{Header: &wire.SnapshotHeader{State: make([]byte, 8<<20)}}}}}}
	for range 3 {
		sendNext(t, a, large, func(error) {})
	}
	for begin := time.Now(); a.Stats().Sent < 3; { // the second large one waits for the window
		if time.Since(begin) > patience {
			t.Fatalf("%+v", a.Stats())
		}
	}
	begin := time.Now()
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	return time.Since(begin)
}
