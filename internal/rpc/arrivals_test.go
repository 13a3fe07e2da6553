package rpc

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// headers is the header block of a call of the method.
func headers(t *testing.T, method string) []byte {
	t.Helper()
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	for _, f := range [][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":path", method}, {":authority", "x"}, {"content-type", "application/grpc"}, {"te", "trailers"},
	} {
		if err := e.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

// beginning is the beginning of a message of so many bytes, with so many of them.
func beginning(size, bytes int) []byte {
	b := make([]byte, 5+bytes)
	binary.BigEndian.PutUint32(b[1:], uint32(size))
	return b
}

// halves begins a message of the largest size on each of so many streams of a connection,
// and goes on with none.
func (s *served) halves(method string, streams int) (ended chan struct{}) {
	s.t.Helper()
	conn, err := s.lis.DialContext(s.ctx)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = conn.Close() })
	ended = make(chan struct{})
	go func() { // ends with the connection
		_, _ = io.Copy(io.Discard, conn)
		close(ended)
	}()
	var b bytes.Buffer
	b.WriteString(http2.ClientPreface)
	f := http2.NewFramer(&b, nil)
	must := func(err error) {
		if err != nil {
			s.t.Fatal(err)
		}
	}
	must(f.WriteSettings())
	for i := range streams {
		id := uint32(2*i + 1)
		must(f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: headers(s.t, method), EndHeaders: true}))
		must(f.WriteData(id, false, beginning(maxMessage-1, 16<<10-5)))
	}
	go func() { _, _ = conn.Write(b.Bytes()) }() // it is not read on
	return ended
}

// Messages that are sent in part are bounded by what they will take, of all connections
// together: those that do not go on with theirs are closed once others want the memory,
// and the others are served.
func TestArrivalsAreBounded(t *testing.T) {
	s := serve(t, ServerConfig{arrivalMemory: 32 << 20, AnswerPatience: 200 * time.Millisecond})
	var rude []chan struct{}
	for _, method := range []string{pb.Percolator_Timestamps_FullMethodName, pb.Percolator_Operations_FullMethodName, pb.Percolator_Operations_FullMethodName} {
		rude = append(rude, s.halves(method, 12))
	}
	c := s.client()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { s.set(c, make([]byte, 3<<20), "a", "h") })
	}
	wg.Wait()
	for _, ended := range rude {
		select {
		case <-ended:
		case <-s.ctx.Done():
			t.Fatal("ARRIVALS: a connection that does not go on sending is not closed")
		}
	}
	s.whole()
	if err := s.server.service.arrivals.room.Acquire(s.ctx, 32<<20); err != nil {
		t.Errorf("room for messages is not given back: %v", err)
	}
}

// In whatever pieces frames come, messages hold what they take from their beginning until
// they are taken, and nothing else.
func TestArrivalsFollowFrames(t *testing.T) {
	const size = 100 << 10
	var b bytes.Buffer
	b.WriteString(http2.ClientPreface)
	f := http2.NewFramer(&b, nil)
	f.AllowIllegalWrites = true
	var held int64
	for i := range uint32(40) {
		id := 2*i + 1
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: headers(t, "/x"), EndHeaders: true})
		message := beginning(size, size)
		_ = f.WriteDataPadded(id, false, append(beginning(10, 10), message[:3]...), make([]byte, i))
		_ = f.WriteData(id, false, message[3:7000])
		_ = f.WritePing(false, [8]byte{})
		switch i % 4 {
		case 0: // whole, and not taken
			_ = f.WriteDataPadded(id, false, append(message[7000:], beginning(size, 0)...), make([]byte, 7))
			held += 2 * size
		case 1: // reset
			_ = f.WriteRSTStream(id, http2.ErrCodeCancel)
		case 2: // ended
			_ = f.WriteData(id, true, message[7000:])
		case 3:
			held += size
		}
	}
	for range 20 {
		a := newArrivals(arrivalMemory, time.Hour, slog.New(slog.DiscardHandler))
		pipe, _ := net.Pipe()
		c := &arrivalConn{Conn: pipe, of: a, preface: len(http2.ClientPreface), open: map[uint32]*arriving{}}
		c.ctx, c.end = context.WithCancelCause(t.Context())
		for left := b.Bytes(); len(left) > 0; {
			n := min(1+rand.IntN(1+rand.IntN(20000)), len(left))
			if err := c.follow(left[:n]); err != nil {
				t.Fatal(err)
			}
			left = left[n:]
		}
		got := int64(0)
		for _, m := range c.held {
			got += m.size
		}
		if got != held {
			t.Errorf("%d bytes are held, want %d", got, held)
		}
		for range 10 {
			c.taken(size)
		}
		if n := int64(len(c.held)) * size; n != held-10*size {
			t.Errorf("%d bytes are held after ten messages were taken, want %d", n, held-10*size)
		}
		_ = c.Close()
		if !a.room.TryAcquire(arrivalMemory) {
			t.Error("a closed connection holds memory")
		}
	}
}

// A message in very small frames costs more than it holds: its connection is closed.
func TestTinyFrames(t *testing.T) {
	var b bytes.Buffer
	f := http2.NewFramer(&b, nil)
	_ = f.WriteData(1, false, beginning(1<<20, 0))
	for range 2 * tinyFrames {
		_ = f.WriteData(1, false, []byte{1})
	}
	a := newArrivals(arrivalMemory, time.Hour, slog.New(slog.DiscardHandler))
	c := &arrivalConn{of: a, open: map[uint32]*arriving{}, ctx: t.Context()}
	if err := c.follow(b.Bytes()); !errors.Is(err, errTiny) {
		t.Error(err)
	}
}

// A message that nobody takes, because its stream has ended and the client does not say
// so, is not held for ever.
func TestUntakenMessage(t *testing.T) {
	for age, want := range map[time.Duration]bool{time.Second: false, 3 * untaken * time.Second: true} {
		c := &arrivalConn{held: []*arriving{{whole: true, size: 1 << 20, since: time.Now().Add(-age)}}}
		if c.late(2*time.Second) != want {
			t.Errorf("after %v it is late: %v", age, !want)
		}
	}
}
