package gossip

import (
	"container/list"
	"net"
	"sync"
)

// maxStreams bounds the connections that others hold to the gossip port. Each is one exchange of a
// few milliseconds; memberlist closes them after TCPTimeout (2 s) at the latest.
const maxStreams = 64

// inboundStreams holds the connections that others have made to the gossip port, between
// memberlist's transport, which accepts without bound, and memberlist. When there are too
// many the oldest is closed: a member says what it wants at once, so the oldest are those
// that say nothing, and new members get through while a stranger holds as many as there
// may be. It runs on a goroutine of its own, from Listen to Shutdown; connections leave
// on the goroutines that close them.
type inboundStreams struct {
	out chan net.Conn

	mu   sync.Mutex
	open list.List // of *inboundStream, the oldest first
}

// inboundStream is one connection.
type inboundStream struct {
	net.Conn
	streams *inboundStreams
	place   *list.Element // nil: it is not counted any more; the streams' mu protects it
}

// run hands on what comes in until ended is closed; from then on it closes it, until drained is.
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

// add counts a connection, and closes the oldest if there is one too many.
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
