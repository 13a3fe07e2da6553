package gateway

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sync/semaphore"

	gw "github.com/percolator-go/percolator/api/gateway/v1"
	"github.com/percolator-go/percolator/internal/rpc"
	"github.com/percolator-go/percolator/internal/txn"
)

// Config configures a Server.
type Config struct {
	// Addr is the host:port to bind; port 0 picks a free one.
	Addr string
	// Advertise returns the address under which clients reach one that is bound.
	Advertise func(bound string) (string, error)
	// TLS enables TLS; nil means plain text.
	TLS *tls.Config
	// Origins are the origins of web pages that may call the gateway, such as https://app.example. "*" allows
	// all, without the browser's credentials such as certificates. Requests of other pages are refused.
	Origins []string
	// Hosts returns the host names, with or without ports, under which events are served to pages that send no
	// origin, in addition to localhost and IP addresses. Nil means none.
	Hosts func() []string
	// Token returns the caller of a bearer token that came from the address. It is called for each request that has
	// one, and for each message of its stream. Nil means that tokens are ignored. Errors are *txn.ServerErrors, with
	// CODE_PERMISSION for an invalid token.
	Token func(ctx context.Context, from netip.Addr, token string) (rpc.Caller, error)
	// Server is the server for clients, which identifies and checks the callers.
	Server *rpc.Server
	// ClusterID is the id of the node's cluster.
	ClusterID string
	// NodeID and Incarnation identify the node's process in the ids of sessions.
	NodeID, Incarnation uint64
	// Client configures the clients that act for callers.
	Client txn.Config
	// CreateOutcomes creates rpc.OutcomesTable if it does not exist.
	CreateOutcomes func(context.Context) error
	// Logger receives errors; nil discards them.
	Logger *slog.Logger

	timing timing // zero: the defaults
}

// timing holds timeouts; tests shorten them.
type timing struct {
	header  time.Duration // of a request's header
	read    time.Duration // of a request's body
	write   time.Duration // until the client has read a part of an answer
	unary   time.Duration // of a call without a deadline
	longest time.Duration // maximum of a call with a deadline
	ping    time.Duration // of silence on an HTTP/2 connection, after which a PING tests it
}

func (t timing) withDefaults() timing {
	t.header = cmp.Or(t.header, 5*time.Second)
	t.read, t.write = cmp.Or(t.read, 30*time.Second), cmp.Or(t.write, 30*time.Second)
	t.unary, t.longest = cmp.Or(t.unary, 30*time.Second), cmp.Or(t.longest, 10*time.Minute)
	t.ping = cmp.Or(t.ping, 10*time.Second)
	return t
}

const (
	// maxMessage is the maximum size of a message, in bytes: that of the client port.
	maxMessage = rpc.MaxOperation + 1<<20
	// maxHeaders is the maximum size of the headers of a request, in bytes.
	maxHeaders = 16 << 10
	// maxStreams is the maximum number of concurrent calls of one HTTP/2 connection.
	maxStreams = 64
	// bodyMemory is the maximum size of all requests that are being read or handled, in bytes.
	bodyMemory = 64 << 20
)

// Server is a listening gateway. Close it.
type Server struct {
	http     *http.Server
	listener net.Listener
	served   chan error
	service  *service
	closing  sync.Once
	err      error // of Close
}

// service implements the services of the API.
type service struct {
	cfg      Config
	callers  *callers
	sessions *sessions
	workers  sync.Map // of *workerStream, by id
	outcomes *outcomes
	counters *counters
	bodies   *semaphore.Weighted
	address  string          // for clients
	life     context.Context // ends when Close begins
	end      context.CancelFunc
}

// Open binds the address and starts to serve.
func Open(cfg Config) (*Server, error) {
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	cfg.timing = cfg.timing.withDefaults()
	bound, err := net.Listen("tcp", cfg.Addr)
	if err != nil {
		return nil, fmt.Errorf("gateway: listen: %w", err)
	}
	advertised, err := cfg.Advertise(bound.Addr().String())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("gateway: choose the advertised address: %w", err), bound.Close())
	}
	sv := &service{
		cfg: cfg, counters: &counters{}, outcomes: &outcomes{create: cfg.CreateOutcomes},
		bodies: semaphore.NewWeighted(bodyMemory), address: advertised,
	}
	sv.sessions = newSessions(cfg.NodeID, cfg.Incarnation, &sv.counters.expired)
	sv.life, sv.end = context.WithCancel(context.Background())
	sv.callers = newCallers(func(who rpc.Caller) *txn.Client { return txn.NewClient(cfg.Server.Local(who), cfg.Client) })
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(cfg.TLS == nil)
	s := &Server{
		service: sv, listener: cfg.Server.Listen(bound), served: make(chan error, 1),
		http: &http.Server{
			Handler: sv.handler(), Protocols: protocols, ConnContext: withConn,
			ReadHeaderTimeout: cfg.timing.header, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: maxHeaders,
			HTTP2: &http.HTTP2Config{
				MaxConcurrentStreams: maxStreams, SendPingTimeout: cfg.timing.ping, PingTimeout: cfg.timing.ping / 2,
				WriteByteTimeout: cfg.timing.write,
			},
			ErrorLog: slog.NewLogLogger(cfg.Logger.Handler(), slog.LevelDebug),
		},
	}
	if cfg.TLS != nil {
		s.listener = tls.NewListener(s.listener, withHTTP2(cfg.TLS))
	}
	go func() { s.served <- s.http.Serve(s.listener) }() // joined by Close
	return s, nil
}

// withHTTP2 returns a copy of the configuration that offers HTTP/2 and HTTP/1.1 by ALPN, as do the
// configurations that its GetConfigForClient returns.
func withHTTP2(cfg *tls.Config) *tls.Config {
	cfg = cfg.Clone()
	cfg.NextProtos = []string{"h2", "http/1.1"}
	if each := cfg.GetConfigForClient; each != nil {
		cfg.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			one, err := each(hello)
			if one != nil {
				one = one.Clone()
				one.NextProtos = cfg.NextProtos
			}
			return one, err
		}
	}
	return cfg
}

// Addr returns the bound address.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Address returns the address that clients use.
func (s *Server) Address() string { return s.service.address }

// Close stops accepting calls, ends streams and sessions, waits for other calls until ctx ends, and closes
// their connections. Later calls return the result of the first.
func (s *Server) Close(ctx context.Context) error {
	s.closing.Do(func() {
		s.service.end()
		s.err = s.http.Shutdown(ctx)
		if s.err != nil {
			s.err = errors.Join(s.err, s.http.Close())
		}
		if serving := <-s.served; !errors.Is(serving, http.ErrServerClosed) {
			s.err = errors.Join(s.err, serving)
		}
		s.service.sessions.close()
		s.service.callers.close(ctx)
	})
	return s.err
}

// handler returns the handler of all requests.
func (s *service) handler() http.Handler {
	mux := http.NewServeMux()
	opts := []connect.HandlerOption{
		connect.WithCodec(jsonCodec("json")), connect.WithCodec(jsonCodec("json; charset=utf-8")),
		connect.WithSendMaxBytes(maxMessage), // the size of requests is bounded by the type body
		// No compression: a small compressed message may expand to a large one.
		connect.WithCompression("gzip", nil, nil), connect.WithInterceptors(calls{s}),
		connect.WithRecover(func(_ context.Context, spec connect.Spec, _ http.Header, p any) error {
			s.cfg.Logger.Error("handler panicked", "method", spec.Procedure, "panic", fmt.Sprint(p))
			return errors.New("internal error")
		}),
	}
	mux.Handle(gw.NewGatewayHandler(s, opts...))
	mux.Handle(gw.NewControlHandler(s, opts...))
	mux.Handle(gw.NewChangesHandler(s, opts...))
	mux.Handle(gw.NewWorkHandler(s, opts...))
	mux.HandleFunc(eventsPath, s.events)
	mux.HandleFunc("GET /openapi.yaml", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/yaml")
		_, _ = w.Write(gw.OpenAPI)
	})
	return fromPages(s.cfg.Origins, s.admitted(mux))
}
