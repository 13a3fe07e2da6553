// Package connlimit bounds the connections of a listener so that strangers cannot keep others out.
//
// A connection is pending until its server admits it: when its first call is authenticated, or while a
// request is answered. Handshakes, half-sent headers and idle connections are pending.
//
// Invariants:
//  1. A listener never stops accepting. If there are too many pending connections, a new one displaces
//     the oldest of the address that has most of them. So each address gets a share of the pending
//     places, and a client that finishes its handshake soon gets through a flood from its own address.
//  2. A connection takes an admitted place only by Admit, so that an unauthenticated one takes none.
//     An admitted connection is never closed here.
//
// It has no goroutines. A crash ends the connections. Called by: internal/rpc, internal/httpd,
// cluster/remoting, cluster/gossip.
package connlimit

import (
	"container/list"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
)

// ErrFull reports that no place is free for an admitted connection.
var ErrFull = errors.New("connlimit: no place is free")

// Config configures a Limiter.
type Config struct {
	// Pending is the maximum number of pending connections.
	Pending int
	// Admitted is the maximum number of admitted connections.
	Admitted int
	// Share is the maximum number of admitted connections from one address; 0 means no bound. It
	// is for listeners without authentication.
	Share int
}

// Limiter bounds the connections of all listeners that its Listen returns, together. Its methods,
// and those of its connections, may be called concurrently.
type Limiter struct {
	cfg    Config
	closed atomic.Uint64

	mu       sync.Mutex
	pending  list.List          // of *Conn, the oldest first
	waiting  map[netip.Addr]int // number of pending connections by Host
	admitted int
	shares   map[netip.Addr]int // number of admitted connections by Host
}

// New returns a Limiter without connections.
func New(cfg Config) *Limiter {
	return &Limiter{cfg: cfg, waiting: map[netip.Addr]int{}, shares: map[netip.Addr]int{}}
}

// Closed returns the number of pending connections closed to make room for others.
func (l *Limiter) Closed() uint64 { return l.closed.Load() }

// Listen returns a listener whose connections are Conns, pending at first.
func (l *Limiter) Listen(inner net.Listener) net.Listener { return listener{inner, l} }

type listener struct {
	net.Listener
	limiter *Limiter
}

// Accept implements net.Listener.
func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return l.limiter.Track(c), nil
}

// Track returns the connection as a pending one, and closes another one beyond Config.Pending.
func (l *Limiter) Track(inner net.Conn) *Conn {
	c := &Conn{Conn: inner, limiter: l, host: Host(inner.RemoteAddr())}
	l.mu.Lock()
	victim := l.addPending(c)
	l.mu.Unlock()
	l.closeDisplaced(victim)
	return c
}

// addPending makes c the newest pending connection and returns the one that it displaces, nil if none.
// The caller holds mu, and passes the victim to closeDisplaced without it.
func (l *Limiter) addPending(c *Conn) (victim *Conn) {
	c.place = l.pending.PushBack(c)
	l.waiting[c.host]++
	if l.pending.Len() <= l.cfg.Pending {
		return nil
	}
	most := 0
	for _, n := range l.waiting {
		most = max(most, n)
	}
	for e := l.pending.Front(); e != nil; e = e.Next() {
		if oldest := e.Value.(*Conn); l.waiting[oldest.host] == most {
			l.removePending(oldest)
			return oldest
		}
	}
	return nil // not reached: some host has most
}

// removePending removes c from the pending connections. The caller holds mu.
func (l *Limiter) removePending(c *Conn) {
	l.pending.Remove(c.place)
	c.place = nil
	subtract(l.waiting, c.host)
}

// closeDisplaced closes a connection that addPending has returned.
func (l *Limiter) closeDisplaced(victim *Conn) {
	if victim != nil {
		l.closed.Add(1)
		_ = victim.Conn.Close() // the connection's server closes it again
	}
}

func subtract(counts map[netip.Addr]int, host netip.Addr) {
	if counts[host]--; counts[host] == 0 {
		delete(counts, host)
	}
}

// Conn is a connection of a Limiter: pending, admitted or closed.
type Conn struct {
	net.Conn
	limiter *Limiter
	host    netip.Addr

	// The limiter's mutex guards place and changes of admitted.
	place    *list.Element // while it is pending
	admitted atomic.Bool
}

// Admit gives the connection an admitted place, which it keeps until Release or Close. An admitted
// connection stays so. Admit returns an error that wraps ErrFull if no place is free, and net.ErrClosed
// if the connection was closed.
func (c *Conn) Admit() error {
	if c.admitted.Load() {
		return nil
	}
	l := c.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case c.admitted.Load():
		return nil
	case c.place == nil:
		return net.ErrClosed
	case l.admitted >= l.cfg.Admitted:
		return fmt.Errorf("%w: %d connections are in use", ErrFull, l.admitted)
	case l.cfg.Share > 0 && l.shares[c.host] >= l.cfg.Share:
		return fmt.Errorf("%w: %d connections from the client's address or IPv6 network are in use", ErrFull, l.cfg.Share)
	}
	l.removePending(c)
	l.admitted++
	l.shares[c.host]++
	c.admitted.Store(true)
	return nil
}

// Admitted reports whether the connection has an admitted place.
func (c *Conn) Admitted() bool { return c.admitted.Load() }

// Release makes an admitted connection the newest pending one.
func (c *Conn) Release() {
	l := c.limiter
	l.mu.Lock()
	var victim *Conn
	if l.release(c) {
		victim = l.addPending(c)
	}
	l.mu.Unlock()
	l.closeDisplaced(victim)
}

// release frees the admitted place of c and reports whether it had one. The caller holds mu.
func (l *Limiter) release(c *Conn) bool {
	if !c.admitted.Swap(false) {
		return false
	}
	l.admitted--
	subtract(l.shares, c.host)
	return true
}

// Close implements net.Conn. It may be called several times.
func (c *Conn) Close() error {
	l := c.limiter
	l.mu.Lock()
	if !l.release(c) && c.place != nil {
		l.removePending(c)
	}
	l.mu.Unlock()
	return c.Conn.Close()
}

// RemoteAddr implements net.Conn. Of returns the connection for it.
func (c *Conn) RemoteAddr() net.Addr { return addr{c.Conn.RemoteAddr(), c} }

// addr is a remote address that refers to its connection.
type addr struct {
	net.Addr
	conn *Conn
}

// Of returns the connection with the remote address, nil if it is of no Limiter.
func Of(remote net.Addr) *Conn {
	if a, ok := remote.(addr); ok {
		return a.conn
	}
	return nil
}

// Host returns the key by which connections of a remote address are counted: its IPv4 address, or its
// IPv6 network of 64 bits, all of which one host may have. It is the zero value if there is none.
func Host(remote net.Addr) netip.Addr {
	at, err := netip.ParseAddrPort(remote.String())
	if err != nil {
		return netip.Addr{}
	}
	return Network(at.Addr())
}

// Network returns the key by which connections of an IP address are counted; see Host.
func Network(ip netip.Addr) netip.Addr {
	ip = ip.Unmap().WithZone("")
	if ip.Is6() {
		if network, err := ip.Prefix(64); err == nil {
			return network.Addr()
		}
	}
	return ip
}
