package node

import (
	"net"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// exhausted is a listener of a process that has no file descriptors left.
type exhausted struct {
	net.Listener
	mu    sync.Mutex
	asked int
	done  chan struct{}
}

func (e *exhausted) Accept() (net.Conn, error) {
	select {
	case <-e.done:
		return nil, net.ErrClosed
	default:
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.asked++; e.asked > 1<<20 {
		<-e.done // enough: virtual time goes on only when nobody runs
	}
	return nil, &net.OpError{Op: "accept", Err: syscall.EMFILE}
}

func (e *exhausted) Close() error { close(e.done); return nil }

// TestSharedListenerRests: a listener that can't accept now is asked again after a pause, not
// at once for ever.
func TestSharedListenerRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &exhausted{done: make(chan struct{})}
		h := newSharedListener(l)
		<-time.After(10 * time.Second)
		if err := h.Close(); err != nil {
			t.Error(err)
		}
		if l.asked > 1000 || l.asked < 5 {
			t.Errorf("asked %d times in ten seconds", l.asked)
		}
	})
}
