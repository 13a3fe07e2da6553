package node

import (
	"net"
	"sync"
	"time"
)

// handover is a bound address that servers take over from each other without unbinding
// it: whoever connects in between waits. Close unbinds it.
//
// It owns the address, and at most one accepted connection that no server has taken yet.
// Its own goroutine accepts. Servers take connections through views, one server at a
// time.
type handover struct {
	net.Listener
	conns chan net.Conn
	done  chan struct{} // closed by Close, or after an error that does not pass
	once  sync.Once
	loop  sync.WaitGroup
}

// newHandover takes over the listener and starts to accept; Close ends both.
func newHandover(l net.Listener) *handover {
	h := &handover{Listener: l, conns: make(chan net.Conn), done: make(chan struct{})}
	h.loop.Go(h.accept)
	return h
}

// The pause after an error that passes, doubled each time: without file descriptors it
// comes back at once.
const (
	leastAcceptPause = 5 * time.Millisecond
	mostAcceptPause  = time.Second
)

// accept is the goroutine.
func (h *handover) accept() {
	for pause := leastAcceptPause; ; {
		c, err := h.Listener.Accept()
		if err != nil {
			select {
			case <-h.done:
				return
			default:
			}
			if te, ok := err.(interface{ Temporary() bool }); ok && te.Temporary() {
				// Such as a connection that was reset before it was accepted.
				if h.rest(pause) {
					pause = min(2*pause, mostAcceptPause)
					continue
				}
				return
			}
			// The views fail as well, so that the server learns of it.
			h.once.Do(func() { close(h.done) })
			return
		}
		pause = leastAcceptPause
		select {
		case h.conns <- c:
		case <-h.done:
			_ = c.Close()
			return
		}
	}
}

// rest waits for the pause, and returns false if Close comes first.
func (h *handover) rest(pause time.Duration) bool {
	t := time.NewTimer(pause)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-h.done:
		return false
	}
}

// Close unbinds the address and waits for the goroutine. Views then fail to accept.
func (h *handover) Close() error {
	h.once.Do(func() { close(h.done) })
	err := h.Listener.Close()
	h.loop.Wait()
	return err
}

// view returns a listener for one server. Closing it leaves the address bound.
func (h *handover) view() net.Listener { return &view{h: h, closed: make(chan struct{})} }

// view is one server's listener.
type view struct {
	h      *handover
	closed chan struct{}
	once   sync.Once
}

// Accept implements net.Listener.
func (v *view) Accept() (net.Conn, error) {
	// First alone: of several ready cases the second select would take any, and a closed
	// view must not take a connection from the next server.
	select {
	case <-v.closed:
		return nil, net.ErrClosed
	default:
	}
	select {
	case c := <-v.h.conns:
		return c, nil
	case <-v.closed:
		return nil, net.ErrClosed
	case <-v.h.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (v *view) Close() error {
	v.once.Do(func() { close(v.closed) })
	return nil
}

// Addr implements net.Listener.
func (v *view) Addr() net.Addr { return v.h.Addr() }
