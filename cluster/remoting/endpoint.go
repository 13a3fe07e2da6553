package remoting

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/percolator-go/percolator/internal/wire"
)

// This file has the connections that this node makes. An endpoint lives from the first batch
// for a node's address until its connection, or the attempt at one, has ended. Its goroutine
// (run) connects and sends. Batches wait in a channel, which Send fills and run empties, so
// that each is reported once.

// Timeouts and pauses of connections.
const (
	// connectTimeout limits an attempt until the other node has answered. After it the
	// batches that wait for the connection fail.
	connectTimeout = time.Second
	// pauseAfterLoss is the pause after a connection has ended. After each failed attempt
	// it doubles, up to maxPause. During a pause sending fails at once.
	pauseAfterLoss = 20 * time.Millisecond
	maxPause       = time.Second
	// keepaliveTime is the silence after which a ping is sent, the least that gRPC allows a client;
	// keepaliveTimeout limits the wait for its answer. Gossip notices a silent node sooner.
	keepaliveTime    = 10 * time.Second
	keepaliveTimeout = 3 * time.Second
)

// Flow-control windows of a connection, in bytes, and the limit of its waiting batches.
const (
	streamWindow     = 4 << 20
	connectionWindow = 8 << 20
	// maxWaiting is the most batches that wait for one node; package peer hands over two.
	maxWaiting = 4
)

// Reasons for which this node ends a connection or an attempt.
var (
	errSilent  = errors.New("the node did not answer in time")
	errRetired = errors.New("the connection was closed")
)

// endpoint is one connection to one node, or the attempt at one. Send adds batches, under the
// link's mutex, only to the node's current endpoint (target.endpoint).
type endpoint struct {
	link    *Link
	node    uint64
	addr    string
	ctx     context.Context // context of the connection and its stream
	cancel  context.CancelCauseFunc
	waiting chan outgoing
	former  <-chan struct{} // closed when the node's last endpoint has ended; nil: there was none
	ended   chan struct{}   // closed when the end and all batches are reported
}

// outgoing is a batch that was given to Send.
type outgoing struct {
	batch *wire.PeerBatch
	then  func(error)
}

// run connects, sends queued batches until the connection ends, and reports its end.
func (e *endpoint) run() {
	// Nothing is sent before the function set by Lost has been called for the last connection.
	if e.former != nil {
		<-e.former
	}
	conn, err := grpc.NewClient("passthrough:///node", e.dialOptions()...)
	connected := false
	if err == nil {
		var s grpc.ClientStream
		if s, err = e.connect(conn); err == nil {
			connected = true
			err = e.send(s)
		}
	}
	e.cancel(errRetired) // closes the connection's socket
	e.link.end(e, connected, err)
	close(e.ended)
	if conn != nil {
		_ = conn.Close() // the stream has ended
	}
}

// dial connects to the node. The socket is closed when the endpoint ends: gRPC would first wait
// for seconds until a silent node has room for a last frame.
func (e *endpoint) dial(ctx context.Context, _ string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", e.addr)
	if err == nil {
		context.AfterFunc(e.ctx, func() { _ = conn.Close() })
	}
	return conn, err
}

// dialOptions returns the options of the connection.
func (e *endpoint) dialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithTransportCredentials(newClientCredentials(e.link.cfg.Files, e.cancel)),
		grpc.WithContextDialer(e.dial),
		grpc.WithNoProxy(), grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(),
		grpc.WithIdleTimeout(0),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(codec{}), grpc.MaxCallRecvMsgSize(maxWelcome)),
		grpc.WithInitialWindowSize(streamWindow), grpc.WithInitialConnWindowSize(connectionWindow),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{
			Time: keepaliveTime, Timeout: keepaliveTimeout, PermitWithoutStream: true,
		}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{
				BaseDelay: 20 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2,
				MaxDelay: 200 * time.Millisecond,
			},
			MinConnectTimeout: connectTimeout,
		}),
	}
}

// connect returns a stream on which the other node has answered within connectTimeout.
func (e *endpoint) connect(conn *grpc.ClientConn) (grpc.ClientStream, error) {
	timer := time.AfterFunc(connectTimeout, func() { e.cancel(errSilent) })
	defer timer.Stop()
	s, err := conn.NewStream(e.ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method,
		grpc.WaitForReady(true))
	if err != nil {
		return nil, cmp.Or(context.Cause(e.ctx), err)
	}
	hello, err := encode(helloFrame())
	if err != nil {
		return nil, err
	}
	_ = s.SendMsg(hello) // RecvMsg returns why it failed
	var buffer mem.Buffer
	if err := s.RecvMsg(&buffer); e.ctx.Err() != nil {
		return nil, context.Cause(e.ctx)
	} else if err != nil {
		return nil, err
	}
	defer buffer.Free()
	f := &wire.PeerFrame{}
	if err := proto.Unmarshal(buffer.ReadOnlyData(), f); err != nil || f.GetWelcome() == nil {
		return nil, errors.New("unexpected answer to the handshake: no welcome frame")
	}
	if !timer.Stop() {
		return nil, errSilent // the stream is being cancelled
	}
	e.link.counts.connected.Add(1)
	e.link.log(slog.LevelInfo, "connected to another node", e)
	return s, nil
}

// send sends batches until the stream ends, and returns why it has.
func (e *endpoint) send(s grpc.ClientStream) error {
	end := make(chan error, 1)
	go func() {
		var buffer mem.Buffer
		err := s.RecvMsg(&buffer)
		if err == nil {
			buffer.Free()
			err = errors.New("unexpected frame after the welcome")
		}
		e.cancel(err)
		end <- err
	}()
	for {
		var o outgoing
		select {
		case o = <-e.waiting:
		case <-e.ctx.Done():
			return <-end
		}
		frame, err := encode(batchFrame(o.batch))
		switch {
		case err != nil:
			o.then(fmt.Errorf("remoting: encode a batch: %w", err))
		case e.ctx.Err() != nil:
			frame.Free()
			o.then(unreachable(e.node, e.addr, nil))
		default:
			e.link.counts.sent.Add(1)
			// From here on the other node may receive it. The sender's next batch is made
			// meanwhile.
			o.then(nil)
			if err := s.SendMsg(frame); err != nil {
				e.cancel(err)
				return <-end
			}
		}
	}
}

// unreachable returns the error of batches that were not sent. cause may be nil.
func unreachable(node uint64, addr string, cause error) error {
	if cause == nil {
		return fmt.Errorf("%w: node %d at %s", ErrUnreachable, node, addr)
	}
	return fmt.Errorf("%w: node %d at %s: %w", ErrUnreachable, node, addr, cause)
}

// end removes an endpoint from the link and reports its end: to the function set by Lost if it
// was connected, since batches on their way may not have arrived, and to the batches that
// were not sent.
func (l *Link) end(e *endpoint, connected bool, cause error) {
	var reason error
	if st, ok := status.FromError(cause); ok && cause != nil {
		cause = errors.New(st.Message())
	}
	if !connected {
		reason = cause
	}
	l.mu.Lock()
	t := l.nodes[e.node]
	// If the node has moved to another address, its next endpoint is set already.
	if t.endpoint == e {
		t.endpoint = nil
		pause := pauseAfterLoss
		if connected {
			t.failures = 0
		} else {
			t.failures++
			pause = min(pauseAfterLoss<<min(t.failures, 8), maxPause)
		}
		t.cause, t.retryAt = reason, time.Now().Add(pause)
	}
	lost, closed := l.lost, l.closed
	l.mu.Unlock()
	switch {
	case !connected:
		l.counts.failed.Add(1)
		if !closed {
			l.log(slog.LevelWarn, "another node refused the connection or did not answer", e,
				slog.Any("error", cause))
		}
	default:
		l.counts.lost.Add(1)
		if !closed {
			l.log(slog.LevelInfo, "the connection to another node has ended", e)
		}
		if lost != nil {
			lost(e.node)
		}
	}
	for {
		select {
		case o := <-e.waiting:
			o.then(unreachable(e.node, e.addr, reason))
		default:
			return
		}
	}
}

// log logs an event of a connection.
func (l *Link) log(level slog.Level, text string, e *endpoint, attrs ...slog.Attr) {
	attrs = append(attrs, slog.Uint64("node", e.node), slog.String("addr", e.addr))
	l.cfg.Logger.LogAttrs(context.Background(), level, text, attrs...)
}
