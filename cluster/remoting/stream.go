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
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
)

// This file opens the streams that endpoints send on. The library calls connect, SendMsg
// and RecvMsg on goroutines of its own and takes failures badly, so it is told of none
// before a stream is up: it gets a stream that ends. Whether the other side has answered
// is in endpoint.connected, which decides if batches go out.

// Sizes and times of gRPC.
const (
	// maxReceive bounds one gRPC message: one batch of at most 16 MiB, or one larger
	// message of at most peer.MaxMessage.
	maxReceive       = 64 << 20
	streamWindow     = 4 << 20
	connectionWindow = 8 << 20
	// keepaliveTime is the least that gRPC allows a client. Gossip is faster to notice a
	// silent node.
	keepaliveTime    = 10 * time.Second
	keepaliveTimeout = 3 * time.Second
	// settle is how long a stream that has failed seems to live: the library publishes
	// "connected" beside reading from it, and the end is to come after that.
	settle = 20 * time.Millisecond
)

// options returns the configuration of the library.
func (l *Link) options(host string, port int) *remote.Config {
	transport := insecure.NewCredentials()
	if l.cfg.Files != nil {
		transport = credentials.NewTLS(l.cfg.Files.Peer())
	}
	cfg := remote.Configure(host, port,
		// One batch is one message: what waits is put together where it waits (package peer).
		remote.WithEndpointWriterBatchSize(1), remote.WithEndpointWriterQueueSize(16),
		remote.WithServerOptions(l.serverOptions()...),
		remote.WithDialOptions(
			grpc.WithTransportCredentials(transport), grpc.WithContextDialer(l.dial),
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
	cfg.MaxRetryCount = 1 // attempts do not fail, see connect
	return cfg
}

// dial connects to the address of the endpoint with the name.
func (l *Link) dial(ctx context.Context, name string) (net.Conn, error) {
	e := l.named("passthrough:///" + name)
	// The endpoint has ended: there is nowhere to connect to.
	if e == nil {
		return nil, ErrClosed
	}
	var d net.Dialer
	return d.DialContext(ctx, "tcp", e.addr)
}

// connect opens an endpoint's stream if the node answers within connectTimeout. It never
// returns an error, for the library would sleep for two seconds then: it returns a stream
// that ends instead.
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

// stream is what the library gets in place of gRPC's stream. One goroutine at a time
// receives.
type stream struct {
	grpc.ClientStream // nil if it could not be opened
	endpoint          *endpoint
	timer             *time.Timer // ends the attempt to connect
	greeted           bool        // the answer to the connecting has been received, or made up
	err               error       // the end
}

// SendMsg implements grpc.ClientStream.
func (s *stream) SendMsg(m any) error {
	// There is no connection behind this stream.
	if s.ClientStream == nil {
		return nil // the connect request; no batch gets here (outgoing.Serialize)
	}
	if err := s.ClientStream.SendMsg(m); s.endpoint.connected.Load() {
		return err
	}
	return nil // why it failed, receiving will tell
}

// RecvMsg implements grpc.ClientStream.
func (s *stream) RecvMsg(m any) error {
	if s.err == nil {
		s.err = s.ClientStream.RecvMsg(m)
	}
	first := !s.greeted
	s.greeted = true
	if s.err == nil {
		// The timer has fired: the stream is being cancelled, whatever has just come.
		if first && !s.timer.Stop() {
			s.err = fmt.Errorf("%w: no answer in time", ErrUnreachable)
		} else if first {
			s.endpoint.connected.Store(true)
			s.endpoint.link.counts.connected.Add(1)
			s.endpoint.link.log(slog.LevelInfo, "connected to another node", s.endpoint)
		}
		return nil
	}
	// The library publishes "connected" on another goroutine; see settle.
	if !first {
		time.Sleep(settle)
		return s.err
	}
	response, ok := m.(*remote.RemoteMessage)
	if !ok {
		return s.err
	}
	if s.endpoint != nil && !errors.Is(s.err, context.Canceled) {
		s.endpoint.link.log(slog.LevelWarn, "another node does not talk to this one", s.endpoint,
			slog.Any("error", s.err))
	}
	// The library waits for an answer to its connect request: it gets one, and then the
	// end.
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
