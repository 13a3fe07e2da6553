package remoting

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/asynkron/protoactor-go/remote"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/keepalive"
)

// This file opens the streams that endpoints send on. The library calls connect, SendMsg
// and RecvMsg on its own goroutines and handles a failed connection badly, so a failure
// looks to it like a stream that ends. endpoint.connected tells whether the other side has
// answered; only then are batches sent.

// Sizes and times of gRPC.
const (
	// maxReceive bounds one gRPC message: one batch of at most 16 MiB, or one larger
	// message of at most peer.MaxMessage.
	maxReceive       = 64 << 20
	streamWindow     = 4 << 20
	connectionWindow = 8 << 20
	// keepaliveTime is the least that gRPC allows a client. Gossip notices a silent node
	// sooner.
	keepaliveTime    = 10 * time.Second
	keepaliveTimeout = 3 * time.Second
	// settle is how long a failed stream seems to live. The library publishes "connected"
	// concurrently with reading from the stream, and the end must come after that.
	settle = 20 * time.Millisecond
)

// options returns the configuration of the library.
func (l *Link) options(host string, port int) *remote.Config {
	cfg := remote.Configure(host, port,
		// One batch is one message, because package peer does the batching.
		remote.WithEndpointWriterBatchSize(1), remote.WithEndpointWriterQueueSize(16),
		remote.WithServerOptions(l.serverOptions()...),
		remote.WithDialOptions(
			grpc.WithTransportCredentials(newClientCredentials(l.cfg.Files)), grpc.WithContextDialer(l.dial),
			grpc.WithNoProxy(),
			grpc.WithDisableServiceConfig(), grpc.WithIdleTimeout(0),
			grpc.WithChainStreamInterceptor(l.connect),
			grpc.WithInitialWindowSize(streamWindow),
			grpc.WithInitialConnWindowSize(connectionWindow),
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
		),
	)
	cfg.MaxRetryCount = 1 // connect never fails
	return cfg
}

// dial connects to the address of the endpoint with the name.
func (l *Link) dial(ctx context.Context, name string) (net.Conn, error) {
	e := l.named("passthrough:///" + name)
	// The endpoint has ended.
	if e == nil {
		return nil, ErrClosed
	}
	var d net.Dialer
	return d.DialContext(ctx, "tcp", e.addr)
}

// connect opens an endpoint's stream if the node answers within connectTimeout. Instead of
// an error, after which the library would sleep for two seconds, it returns a stream that
// ends.
func (l *Link) connect(_ context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string,
	streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	e := l.named(cc.Target())
	if e == nil {
		return &stream{err: ErrClosed}, nil
	}
	// The stream's context is the endpoint's, so ending the endpoint ends the stream.
	s := &stream{endpoint: e, timer: time.AfterFunc(connectTimeout, e.cancel)}
	if s.ClientStream, s.err = streamer(e.ctx, desc, cc, method,
		append(opts, grpc.WaitForReady(true))...); s.err != nil {
		l.log(slog.LevelDebug, "no connection to another node", e, slog.Any("error", s.err))
	}
	return s, nil
}

// stream wraps gRPC's stream for the library. One goroutine at a time receives.
type stream struct {
	grpc.ClientStream // nil if it could not be opened
	endpoint          *endpoint
	timer             *time.Timer // ends the attempt to connect
	greeted           bool        // the connect response has been received or made up
	err               error       // why the stream has ended
}

// SendMsg implements grpc.ClientStream.
func (s *stream) SendMsg(m any) error {
	// Only the connect request is sent without a connection (see outgoing.Serialize).
	if s.ClientStream == nil {
		return nil
	}
	if err := s.ClientStream.SendMsg(m); s.endpoint.connected.Load() {
		return err
	}
	return nil // RecvMsg returns why it failed
}

// RecvMsg implements grpc.ClientStream.
func (s *stream) RecvMsg(m any) error {
	if s.err == nil {
		s.err = s.ClientStream.RecvMsg(m)
	}
	first := !s.greeted
	s.greeted = true
	if s.err == nil {
		// If the timer has fired, the stream is being cancelled whatever was received.
		if first && !s.timer.Stop() {
			s.err = fmt.Errorf("%w: the node did not answer in time", ErrUnreachable)
		} else if first {
			s.endpoint.connected.Store(true)
			s.endpoint.link.counts.connected.Add(1)
			s.endpoint.link.log(slog.LevelInfo, "connected to another node", s.endpoint)
		}
		return nil
	}
	// The end must come after the library has published "connected"; see settle.
	if !first {
		time.Sleep(settle)
		return s.err
	}
	response, ok := m.(*remote.RemoteMessage)
	if !ok {
		return s.err
	}
	if s.endpoint != nil && !errors.Is(s.err, context.Canceled) {
		s.endpoint.fault(s.err)
		s.endpoint.link.log(slog.LevelWarn, "another node refused the connection or did not "+
			"answer", s.endpoint,
			slog.Any("error", s.err))
	}
	// The library waits for a connect response. It gets one here, and the end next time.
	response.MessageType = &remote.RemoteMessage_ConnectResponse{
		ConnectResponse: &remote.ConnectResponse{},
	}
	return nil
}

// CloseSend implements grpc.ClientStream.
func (s *stream) CloseSend() error {
	if s.timer != nil {
		s.timer.Stop()
	}
	if s.ClientStream == nil {
		return nil
	}
	return s.ClientStream.CloseSend()
}
