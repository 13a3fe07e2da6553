package node

import (
	"net"
	"sync"
	"time"
)

// handover is one bound address that servers take over from each other without letting it
// go: whoever connects in between waits. It ends with Close.
//
// It owns the address, and one connection at most that no server has taken yet; its own
// goroutine accepts. Servers take connections through views, one server at a time.
type handover struct {
	net.Listener
	conns chan net.Conn
	done  chan struct{} // closed when the address is let go
	once  sync.Once
	loop  sync.WaitGroup
}

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

// rest waits; false: the address is let go.
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

// Close lets the address go.
func (h *handover) Close() error {
	h.once.Do(func() { close(h.done) })
	err := h.Listener.Close()
	h.loop.Wait()
	return err
}

// view is the listener of one server: closing it ends the server's part only.
func (h *handover) view() net.Listener { return &view{h: h, closed: make(chan struct{})} }

type view struct {
	h      *handover
	closed chan struct{}
	once   sync.Once
}

// Accept implements net.Listener.
func (v *view) Accept() (net.Conn, error) {
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
