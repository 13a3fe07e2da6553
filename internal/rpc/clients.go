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

// The list of a server's connections, which operators can read and close. Accept and the
// handlers of calls update it on gRPC's goroutines; any goroutine may read it.

// Clients holds the connections to a node's servers for clients, and the rate limits of their
// identities. The zero value is empty and ready to use. Its methods may be called
// concurrently.
type Clients struct {
	rates rates

	mu    sync.Mutex
	last  uint64 // id of the last accepted connection
	conns map[uint64]*clientConn
}

// add assigns a connection its id and lists it until drop.
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

// drop removes a connection from the list.
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

// List returns the connections of the node, sorted by id. A connection without a call so far
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
// empty, and returns the number closed. It does not close the connection of the call of ctx,
// which carries the answer.
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

// identity returns the name in the certificate or of the token, or the remote host for a connection
// in plain text or without a call so far.
func (c *clientConn) identity() string {
	if who := c.caller.Load(); who != nil {
		return who.identity()
	}
	return hostOf(c.Conn.RemoteAddr().String())
}

// use counts the operations of a connection.
type use struct {
	operations, cells, refused atomic.Uint64
	rate                       meter
}

// done counts an operation that has read or written the number of cells.
func (u *use) done(cells int, now time.Time) {
	u.operations.Add(1)
	u.cells.Add(uint64(cells))
	u.rate.add(uint64(cells), now)
}

// meterPeriod is the minimum time over which a meter averages; the maximum is twice as long.
const meterPeriod = 5 * time.Second

// meter measures a rate over the last seconds. Its methods may be called concurrently.
type meter struct {
	mu            sync.Mutex
	began         time.Time // start of the current period
	current, last uint64    // counts of the current period and of the previous one
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

// roll starts a new period if the current one has ended.
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
