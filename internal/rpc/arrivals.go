package rpc

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc/credentials"

	"github.com/percolator-go/percolator/internal/heap"
)

// arrivals is the memory for messages that are not whole yet, or not taken, of all
// connections of a server. gRPC has no bound for all of them: a stream may have one of
// maxMessage that never comes to its end, and a connection hundreds of streams.
//
// What a message takes is known from its first bytes. A connection is not read on before
// there is room for it; short ones need none, because a stream's window bounds them. If
// others wait for room, connections are closed that do not go on sending, or too slowly:
// patience, and a second for each slowest bytes of a message, is what they have. So are
// those with a whole message that nobody takes, for their stream has ended on this side:
// its client should have said so long ago.
type arrivals struct {
	room     *semaphore.Weighted
	gauge    *heap.Gauge
	patience time.Duration
	logger   *slog.Logger

	mu      sync.Mutex
	conns   map[*arrivalConn]struct{} // those that hold some, or wait
	waiting int
	timer   *time.Timer // while somebody waits
}

const (
	arrivalMemory = 160 << 20 // of all
	shortMessage  = 16 << 10  // as large as a frame
	slowest       = 1 << 20
	// untaken is how many times patience a whole message may wait to be taken: a minute,
	// longer than operations that it waits for.
	untaken = 20
	// tinyFrame is what a message's frames hold but for the last; so many smaller ones
	// are an attack: each costs as much as a hundred bytes.
	tinyFrame, tinyFrames = 256, 1 << 10
	// maxArriving is how many messages of a connection may be incomplete: more than it
	// may have streams.
	maxArriving = 1 << 10
)

var (
	errSlow  = errors.New("percolator: messages are not sent to their end, and others wait for the memory that they take")
	errTiny  = errors.New("percolator: messages are sent in very small pieces")
	errCrowd = errors.New("percolator: too many messages are not sent to their end")
)

func newArrivals(bytes int64, patience time.Duration, logger *slog.Logger) *arrivals {
	return &arrivals{room: semaphore.NewWeighted(bytes), gauge: heap.NewGauge(bytes), patience: patience, logger: logger, conns: map[*arrivalConn]struct{}{}}
}

// arrivalCredentials are credentials whose connections are watched by arrivals, above TLS.
type arrivalCredentials struct {
	credentials.TransportCredentials
	arrivals *arrivals
}

// ServerHandshake implements credentials.TransportCredentials.
func (c arrivalCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := c.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return nil, nil, err
	}
	a := &arrivalConn{Conn: conn, of: c.arrivals, preface: len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), open: map[uint32]*arriving{}}
	a.ctx, a.end = context.WithCancelCause(context.Background())
	if of, ok := raw.(*clientConn); ok {
		of.arrivals.Store(a)
	}
	return a, info, nil
}

// Clone implements credentials.TransportCredentials.
func (c arrivalCredentials) Clone() credentials.TransportCredentials {
	return arrivalCredentials{c.TransportCredentials.Clone(), c.arrivals}
}

// arrivalConn follows the frames that a client sends. Only Read, which one goroutine
// calls, looks at what is above mu.
type arrivalConn struct {
	net.Conn
	of      *arrivals
	ctx     context.Context // ends with the connection
	end     context.CancelCauseFunc
	preface int // bytes of it that are still to come
	head    [9]byte
	got     int // of head
	frame   frame
	open    map[uint32]*arriving // messages that are incomplete, by stream

	mu      sync.Mutex // after that of arrivals
	held    []*arriving
	read    time.Time // when the last bytes came
	waits   bool
	hangsUp bool
}

// frame is what is still to come of a frame.
type frame struct {
	kind, flags byte
	stream      uint32
	left        int // bytes
	pad         int // of them at its end; -1: its length is to come
	size        int
}

// arriving is a message of a stream of which not all has come.
type arriving struct {
	stream uint32
	head   [5]byte // gRPC's: compressed or not, and its length
	got    int     // of head
	left   int     // bytes
	size   int64   // that it holds; 0: it is short
	since  time.Time
	whole  bool // and not taken
	tiny   int  // frames
}

// Kinds of frames and flags of HTTP/2.
const (
	dataFrame, headersFrame, resetFrame = 0, 1, 3
	endStream, padded                   = 1, 8
)

// Read implements net.Conn.
func (c *arrivalConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.mu.Lock()
		c.read = time.Now()
		c.mu.Unlock()
		if refused := c.follow(p[:n]); refused != nil {
			c.of.logger.Warn("a connection was closed", "error", refused, "from", c.RemoteAddr().String())
			return 0, refused
		}
	}
	return n, err
}

// Close implements net.Conn.
func (c *arrivalConn) Close() error {
	c.end(net.ErrClosed)
	err := c.Conn.Close()
	c.leave()
	return err
}

// leave gives back all that a connection holds which has ended.
func (c *arrivalConn) leave() {
	c.drop(func(*arriving) bool { return true })
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	delete(c.of.conns, c)
}

// follow goes through what has come; it waits for room for the messages that begin there.
func (c *arrivalConn) follow(b []byte) error {
	skip := min(c.preface, len(b))
	c.preface -= skip
	b = b[skip:]
	for len(b) > 0 {
		if c.got < len(c.head) {
			n := copy(c.head[c.got:], b)
			b = b[n:]
			if c.got += n; c.got < len(c.head) {
				return nil
			}
			c.begin()
		}
		n := min(c.frame.left, len(b))
		if c.frame.kind == dataFrame {
			if err := c.data(b[:n]); err != nil {
				return err
			}
		}
		b = b[n:]
		if c.frame.left -= n; c.frame.left == 0 {
			c.got = 0
			if c.frame.kind == resetFrame || c.frame.flags&endStream != 0 && c.frame.kind <= headersFrame {
				c.ended(c.frame.stream)
			}
		}
	}
	return nil
}

// begin begins the frame whose head has come.
func (c *arrivalConn) begin() {
	h := c.head
	size := int(h[0])<<16 | int(h[1])<<8 | int(h[2])
	c.frame = frame{kind: h[3], flags: h[4], stream: binary.BigEndian.Uint32(h[5:]) &^ (1 << 31), left: size, size: size}
	if c.frame.kind == dataFrame && c.frame.flags&padded != 0 {
		c.frame.pad = -1
	}
	if size == 0 && (c.frame.kind == dataFrame && c.frame.flags&endStream != 0) {
		c.ended(c.frame.stream)
	}
	if size == 0 {
		c.got = 0
	}
}

// data takes the next bytes of a frame of data.
func (c *arrivalConn) data(b []byte) error {
	left := c.frame.left // also those that are not here yet
	if c.frame.pad < 0 && len(b) > 0 {
		c.frame.pad = int(b[0])
		b, left = b[1:], left-1
	}
	room := max(left-max(c.frame.pad, 0), 0) // of the message
	b = b[:min(len(b), room)]
	for len(b) > 0 {
		m := c.open[c.frame.stream]
		if m == nil {
			if len(c.open) >= maxArriving {
				return errCrowd
			}
			m = &arriving{stream: c.frame.stream}
			c.open[c.frame.stream] = m
		}
		if m.got < len(m.head) {
			n := copy(m.head[m.got:], b)
			b, room = b[n:], room-n
			if m.got += n; m.got < len(m.head) {
				return c.piece(m)
			}
			m.left = int(binary.BigEndian.Uint32(m.head[1:]))
			if m.left > shortMessage && m.left <= maxMessage && m.left > room {
				if err := c.hold(m); err != nil {
					return err
				}
			}
		}
		n := min(m.left, len(b))
		b, room = b[n:], room-n
		if m.left -= n; m.left > 0 {
			return c.piece(m)
		}
		delete(c.open, m.stream)
		if m.size > 0 {
			c.mu.Lock()
			m.whole = true
			c.mu.Unlock()
		}
	}
	return nil
}

// piece looks at a message of which a part has come.
func (c *arrivalConn) piece(m *arriving) error {
	if c.frame.size >= tinyFrame {
		return nil
	}
	if m.tiny++; m.tiny > tinyFrames {
		return errTiny
	}
	return nil
}

// ended forgets a stream.
func (c *arrivalConn) ended(stream uint32) {
	delete(c.open, stream)
	c.drop(func(m *arriving) bool { return m.stream == stream })
}

// drop gives back what messages hold.
func (c *arrivalConn) drop(which func(*arriving) bool) {
	c.mu.Lock()
	var n int64
	c.held = slices.DeleteFunc(c.held, func(m *arriving) bool {
		if which(m) {
			n += m.size
			return true
		}
		return false
	})
	c.mu.Unlock()
	c.of.room.Release(n)
	c.of.gauge.Add(-n)
}

// taken gives back what a message holds that has been taken; so many bytes it is long.
func (c *arrivalConn) taken(bytes int) {
	if c == nil || bytes <= shortMessage {
		return
	}
	found := false
	c.drop(func(m *arriving) bool {
		if found || !m.whole || m.size != int64(bytes) {
			return false
		}
		found = true
		return true
	})
}

// hold waits for room for a message.
func (c *arrivalConn) hold(m *arriving) error {
	n := int64(m.left)
	if !c.of.room.TryAcquire(n) {
		if err := c.of.wait(c, n); err != nil {
			return context.Cause(c.ctx)
		}
	}
	c.of.gauge.Add(n)
	c.mu.Lock()
	m.size, m.since = n, time.Now()
	c.held = append(c.held, m)
	c.read = m.since
	c.mu.Unlock()
	c.of.mu.Lock()
	c.of.conns[c] = struct{}{}
	c.of.mu.Unlock()
	if c.ctx.Err() != nil { // closed meanwhile
		c.leave()
		return context.Cause(c.ctx)
	}
	return nil
}

// wait waits for others' memory, and has those looked for that are in the way.
func (a *arrivals) wait(c *arrivalConn, n int64) error {
	a.mu.Lock()
	c.waits = true
	if a.waiting++; a.waiting == 1 {
		a.timer = time.AfterFunc(a.patience, a.clear)
	}
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		c.waits = false
		if a.waiting--; a.waiting == 0 {
			a.timer.Stop()
		}
	}()
	return a.room.Acquire(c.ctx, n)
}

// clear closes connections that are in the way of others: those that send nothing, or too
// slowly; if there is none, one of those that wait themselves.
func (a *arrivals) clear() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waiting == 0 {
		return
	}
	var stuck *arrivalConn
	closed := false
	for c := range a.conns {
		late := c.late(a.patience)
		switch {
		case late && c.waits:
			stuck = c
		case late:
			closed = true
			c.hangUp()
		}
	}
	if !closed && stuck != nil {
		stuck.hangUp()
	}
	a.timer.Reset(a.patience / 4)
}

// late reports whether one of the connection's messages should have come, or have been
// taken, by now.
func (c *arrivalConn) late(patience time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.held, func(m *arriving) bool {
		age := time.Since(m.since)
		if m.whole {
			return age > untaken*patience
		}
		return time.Since(c.read) > patience || age > patience+time.Duration(m.size/slowest)*time.Second
	})
}

// hangUp closes the connection, once.
func (c *arrivalConn) hangUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hangsUp {
		return
	}
	c.hangsUp = true
	c.of.logger.Warn("a connection is closed", "error", errSlow, "from", c.RemoteAddr().String())
	c.end(errSlow)
	go func() { _ = c.Close() }() // it may wait for a write; ends soon
}
