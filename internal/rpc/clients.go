package rpc

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// This file lists the connections of a server and closes them on order. Accept and the
// handlers of calls add to it, on gRPC's goroutines; any goroutine may list them.

// Clients are the connections to a node's servers for clients, and what bounds the rates of
// their identities. The zero value has none. Its methods may be used concurrently.
type Clients struct {
	rates rates

	mu    sync.Mutex
	last  uint64 // the id of the connection that was accepted last
	conns map[uint64]*clientConn
}

// add gives a connection its id and lists it until drop.
func (c *Clients) add(conn *clientConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conns == nil {
		c.conns = map[uint64]*clientConn{}
	}
	c.last++
	conn.id, conn.connected = c.last, time.Now()
	c.conns[conn.id] = conn
}

// drop ends what add began.
func (c *Clients) drop(conn *clientConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.conns, conn.id)
}

// all returns the connections by id.
func (c *Clients) all() []*clientConn {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]*clientConn, 0, len(c.conns))
	for _, conn := range c.conns {
		out = append(out, conn)
	}
	slices.SortFunc(out, func(a, b *clientConn) int { return cmp.Compare(a.id, b.id) })
	return out
}

// List returns the connections by id, as connections of the node. One that has made no call yet
// has no name and no role.
func (c *Clients) List(node uint64) (out []*pb.ClientConnection) {
	now := time.Now()
	for _, conn := range c.all() {
		one := &pb.ClientConnection{
			NodeId: node, Id: conn.id, From: conn.Conn.RemoteAddr().String(),
			ConnectedUnixMs: conn.connected.UnixMilli(), Operations: conn.use.operations.Load(),
			Cells: conn.use.cells.Load(), Rate: conn.use.rate.perSecond(now), Refused: conn.use.refused.Load(),
		}
		if who := conn.caller.Load(); who != nil {
			one.Name, one.Role, one.By = who.Name, string(who.Role), who.By
		}
		out = append(out, one)
	}
	return out
}

// Disconnect closes the connections of an identity, or the one with the id if the identity is
// empty, and returns how many it has closed. The connection that the call of ctx came on stays,
// for its answer.
func (c *Clients) Disconnect(ctx context.Context, identity string, id uint64) (closed uint32) {
	own := connection(ctx)
	for _, conn := range c.all() {
		matches := conn.id == id
		if identity != "" {
			matches = conn.identity() == identity
		}
		if matches && conn != own {
			_ = conn.Close()
			closed++
		}
	}
	return closed
}

// identity returns whose connection it is: the name in the certificate, or the host for one in
// plain text or without a call so far.
func (c *clientConn) identity() string {
	if who := c.caller.Load(); who != nil {
		return who.identity()
	}
	return (&Caller{By: ByNothing, From: c.Conn.RemoteAddr().String()}).identity()
}

// use is what was done over a connection.
type use struct {
	operations, cells, refused atomic.Uint64
	rate                       meter
}

// done counts an operation that has read or written so many cells.
func (u *use) done(cells int, now time.Time) {
	u.operations.Add(1)
	u.cells.Add(uint64(cells))
	u.rate.add(uint64(cells), now)
}

// meterPeriod is the time over which a meter counts, at least; twice as long at most.
const meterPeriod = 5 * time.Second

// meter measures a rate over the last seconds. Its methods may be used concurrently.
type meter struct {
	mu            sync.Mutex
	began         time.Time // of the current period
	current, last uint64    // counts of it and of the one before
}

// add counts n now.
func (m *meter) add(n uint64, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.roll(now)
	m.current += n
}

// perSecond returns the rate.
func (m *meter) perSecond(now time.Time) uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.roll(now)
	return uint64(float64(m.last+m.current) / (meterPeriod + now.Sub(m.began)).Seconds())
}

// roll begins a period if the current one has ended.
func (m *meter) roll(now time.Time) {
	periods := now.Sub(m.began) / meterPeriod
	switch {
	case periods <= 0:
		return
	case periods == 1:
		m.last = m.current
	default:
		m.last = 0
	}
	m.began, m.current = m.began.Add(periods*meterPeriod), 0
	if periods > 1 {
		m.began = now
	}
}
