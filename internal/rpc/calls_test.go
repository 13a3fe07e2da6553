package rpc

import (
	"errors"
	"net"
	"testing"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/txn"
)

// refused reports whether the error says that there is no room now.
func refused(err error) bool {
	var e *txn.ServerError
	return errors.As(fromStatus(toStatus(err)), &e) && e.Code == pb.Error_CODE_OVERLOADED && e.RetryAfter == callRetry
}

// fill has the connection answered until it gets no more, and returns the calls.
func fill(t *testing.T, c *calls, conn *clientConn, each int64) (out []*single) {
	t.Helper()
	for range 2 * answersAll / int(each) {
		k, err := c.begin(conn, pb.Percolator_Tables_FullMethodName, 0)
		if err == nil {
			if err = k.answered(pb.Percolator_Tables_FullMethodName, each); err != nil {
				k.end()
			}
		}
		if err != nil {
			if !refused(err) {
				t.Fatal(err)
			}
			return out
		}
		out = append(out, k)
	}
	t.Fatal("UNCOUNTED-CALLS: a connection that reads no answers gets more and more of them")
	return nil
}

// TestCallsAreBounded: what answers take is bounded, of one connection and of all, and
// comes back when they are written or their connection ends.
func TestCallsAreBounded(t *testing.T) {
	c := newCalls(time.Hour)
	var conns []*clientConn
	var all []*single
	for range 2 * answersAll / answersEach {
		conn := &clientConn{}
		conns = append(conns, conn)
		own := fill(t, c, conn, 1<<20)
		if n := int64(len(own)) << 20; n > answersEach {
			t.Errorf("one connection has %d bytes", n)
		}
		all = append(all, own...)
	}
	if n := int64(len(all)) << 20; n > answersAll || n < answersAll/2 {
		t.Errorf("all have %d bytes", n)
	}
	for _, k := range all[:len(all)/2] {
		k.end()
		k.end() // gRPC, and then its connection
	}
	for _, conn := range conns {
		c.gone(conn)
	}
	if c.sum.bytes != 0 || c.sum.running != 0 || len(c.each) != 0 {
		t.Errorf("%d bytes, %d calls and %d connections are left", c.sum.bytes, c.sum.running, len(c.each))
	}
}

// TestCallsUnderWay: so many at once, of one connection and of all.
func TestCallsUnderWay(t *testing.T) {
	c := newCalls(time.Hour)
	n := 0
	for range 2 * callsInAll / callsEach {
		conn := &clientConn{}
		own := 0
		for {
			if _, err := c.begin(conn, pb.Percolator_Timestamps_FullMethodName, 0); err != nil {
				if !refused(err) {
					t.Fatal(err)
				}
				break
			}
			own++
		}
		if own > callsEach {
			t.Errorf("%d of one connection", own)
		}
		n += own
	}
	if n > callsInAll || n < callsInAll/2 {
		t.Errorf("%d calls", n)
	}
}

// TestUnreadCallsEnd: a connection whose answers others have waited for is closed.
func TestUnreadCallsEnd(t *testing.T) {
	c := newCalls(time.Nanosecond)
	var rude []*clientConn
	for range answersAll / answersEach {
		conn := &clientConn{}
		rude = append(rude, conn)
		for range answersEach >> 20 {
			k, err := c.begin(conn, pb.Percolator_Tables_FullMethodName, 0)
			if err == nil {
				err = k.answered(pb.Percolator_Tables_FullMethodName, 1<<20)
			}
			if err != nil {
				t.Fatal(err)
			}
			k.done = k.done.Add(-time.Second)
			conn.hanging.Store(true) // not in this test: there is nothing to close
		}
	}
	rude[0].hanging.Store(false)
	rude[0].Conn, rude[0].gone = &closed{done: make(chan struct{})}, c.gone
	if _, err := c.begin(&clientConn{}, pb.Percolator_Tables_FullMethodName, 0); !refused(err) {
		t.Fatal(err)
	}
	<-rude[0].Conn.(*closed).done
	if !rude[0].hanging.Load() {
		t.Error("it is not closed")
	}
}

// closed is a connection of which is known when it is closed.
type closed struct {
	net.Conn
	done chan struct{}
}

func (c *closed) Close() error {
	close(c.done)
	return nil
}

// TestAnswersGoWhenEncoded: while gRPC waits for a client, only what is encoded is in memory.
func TestAnswersGoWhenEncoded(t *testing.T) {
	m := &outgoing{answers: &pb.OperationResults{Results: []*pb.OperationResult{{Id: 7}}}, bytes: 1 << 20}
	data, err := newCodec().Marshal(m)
	if err != nil || data.Len() != 4 {
		t.Fatal(data.Len(), err)
	}
	if m.answers != nil {
		t.Error("KEPT-ANSWERS: the answers are in memory twice")
	}
}
