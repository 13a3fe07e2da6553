package gossip

import (
	"container/list"
	"net"
	"sync"
)

// maxStreams limits the connections of others to the gossip port. Each is one exchange of a
// few milliseconds; memberlist closes them after TCPTimeout (2 s) at the latest.
const maxStreams = 64

// inboundStreams passes connections to the gossip port from memberlist's transport, which
// accepts without bound, to memberlist. When there are too many the oldest is closed: a
// member sends its request at once, so the oldest connections are silent ones, and members
// get through even while a stranger opens as many as it can. run has a goroutine of its
// own, from Listen to Shutdown; connections are removed by whoever closes them.
type inboundStreams struct {
	out chan net.Conn

	mu   sync.Mutex
	open list.List // of *inboundStream, the oldest first
}

// inboundStream is one connection.
type inboundStream struct {
	net.Conn
	streams *inboundStreams
	place   *list.Element // nil once it is closed; the streams' mu guards it
}

// run passes connections on until ended is closed. From then on it closes them, until
// drained is closed.
func (s *inboundStreams) run(in <-chan net.Conn, ended, drained <-chan struct{}) {
	for {
		select {
		case c := <-in:
			stream := s.add(c)
			select {
			case s.out <- stream:
			case <-ended:
				_ = stream.Close()
			}
		case <-drained:
			return
		}
	}
}

// add counts a connection, and closes the oldest if there are too many.
func (s *inboundStreams) add(c net.Conn) *inboundStream {
	stream := &inboundStream{Conn: c, streams: s}
	s.mu.Lock()
	stream.place = s.open.PushBack(stream)
	var oldest *inboundStream
	if s.open.Len() > maxStreams {
		oldest = s.open.Front().Value.(*inboundStream)
	}
	s.mu.Unlock()
	if oldest != nil {
		_ = oldest.Close()
	}
	return stream
}

// Close ends the connection.
func (c *inboundStream) Close() error {
	s := c.streams
	s.mu.Lock()
	// Close may be called twice, by this bound and by memberlist.
	if c.place != nil {
		s.open.Remove(c.place)
		c.place = nil
	}
	s.mu.Unlock()
	return c.Conn.Close()
}
