package node

import (
	"net"
	"sync"
	"time"
)

// sharedListener keeps an address bound while one server ends and another takes its place;
// who connects in between waits. Close unbinds it.
//
// It owns the address, and at most one accepted connection that no server has taken yet.
// Its own goroutine accepts. Each server has a serverListener, one server at a time.
type sharedListener struct {
	net.Listener
	conns chan net.Conn
	done  chan struct{} // closed by Close, or after an error that is not temporary
	once  sync.Once
	loop  sync.WaitGroup
}

// newSharedListener takes over the listener and starts to accept; Close ends both.
func newSharedListener(bound net.Listener) *sharedListener {
	l := &sharedListener{Listener: bound, conns: make(chan net.Conn), done: make(chan struct{})}
	l.loop.Go(l.accept)
	return l
}

// The pause after a temporary error begins with the least and is doubled each time: while
// the process has no file descriptors left, Accept fails at once, again and again.
const (
	leastAcceptPause = 5 * time.Millisecond
	mostAcceptPause  = time.Second
)

// accept is the goroutine. It ends with Close, or with an error that is not temporary.
func (l *sharedListener) accept() {
	for pause := leastAcceptPause; ; {
		c, err := l.Listener.Accept()
		if err != nil {
			select {
			case <-l.done:
				return
			default:
			}
			if te, ok := err.(interface{ Temporary() bool }); ok && te.Temporary() {
				// For example, the connection was reset before it was accepted.
				if l.rest(pause) {
					pause = min(2*pause, mostAcceptPause)
					continue
				}
				return
			}
			// The server's listener fails as well, so that the server learns of it.
			l.once.Do(func() { close(l.done) })
			return
		}
		pause = leastAcceptPause
		select {
		case l.conns <- c:
		case <-l.done:
			_ = c.Close()
			return
		}
	}
}

// rest waits for the pause, and returns false if Close comes first.
func (l *sharedListener) rest(pause time.Duration) bool {
	t := time.NewTimer(pause)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-l.done:
		return false
	}
}

// Close unbinds the address and waits for the goroutine. Accept then fails for servers.
func (l *sharedListener) Close() error {
	l.once.Do(func() { close(l.done) })
	err := l.Listener.Close()
	l.loop.Wait()
	return err
}

// forServer returns a listener for one server. Closing it leaves the address bound.
func (l *sharedListener) forServer() net.Listener {
	return &serverListener{shared: l, closed: make(chan struct{})}
}

// serverListener is one server's listener.
type serverListener struct {
	shared *sharedListener
	closed chan struct{}
	once   sync.Once
}

// Accept implements net.Listener.
func (v *serverListener) Accept() (net.Conn, error) {
	// If several cases are ready, the second select takes any of them. A closed listener
	// must not take a connection from the next server, so closed is tested alone first.
	select {
	case <-v.closed:
		return nil, net.ErrClosed
	default:
	}
	select {
	case c := <-v.shared.conns:
		return c, nil
	case <-v.closed:
		return nil, net.ErrClosed
	case <-v.shared.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (v *serverListener) Close() error {
	v.once.Do(func() { close(v.closed) })
	return nil
}

// Addr implements net.Listener.
func (v *serverListener) Addr() net.Addr { return v.shared.Addr() }
