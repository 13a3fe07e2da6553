package node

import (
	"net"
	"sync"
)

// handover is one bound address that servers take over from each other without letting it go: whoever connects in between
// waits. It ends with Close.
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

func (h *handover) accept() {
	for {
		c, err := h.Listener.Accept()
		if err != nil {
			select {
			case <-h.done:
				return
			default:
			}
			if te, ok := err.(interface{ Temporary() bool }); ok && te.Temporary() {
				continue // such as a connection that was reset before it was accepted
			}
			h.once.Do(func() { close(h.done) })
			return
		}
		select {
		case h.conns <- c:
		case <-h.done:
			_ = c.Close()
			return
		}
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
