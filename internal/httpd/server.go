package httpd

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/connlimit"
	"github.com/percolator-go/percolator/internal/pbjson"
)

// Options configures a Server. Its functions, except Cluster, are called concurrently.
type Options struct {
	// Addr is the host:port to bind; port 0 picks a free one.
	Addr string
	// Hosts returns the host names, with or without ports, that requests may use in addition to
	// localhost and IP addresses; others are refused. Nil means none.
	Hosts func() []string
	// Program is the name of the binary in the commands that pages show; default percolator.
	Program string
	// Operators authorizes and performs actions; nil means there are none.
	Operators Operators
	// TLS enables TLS and logins by an accepted client certificate; nil means plain text.
	TLS *tls.Config
	// PlainLogins accepts tokens in plain text from other machines.
	PlainLogins bool
	// Profiles enables /debug/pprof/.
	Profiles bool
	// Status returns the node's status.
	Status func(ctx context.Context) *pb.NodeStatusResponse
	// Cluster returns the status and the tables of the cluster, as far as known, or an error. It
	// is called while there are listeners, one call at a time; nil means not supported.
	Cluster func(ctx context.Context) (*pb.ClusterStatusResponse, []*pb.Table, error)
	// Questions are the other requests of pages, by name.
	Questions map[string]Question
	// MayRead returns why users without a login may not read rows and values; nil means that they
	// may.
	MayRead func(*http.Request) error
	// Closed reports whether a request requires a login. It is called for all requests except
	// health, the console's files and the login itself, and for each event of a stream; nil means
	// none requires one.
	Closed func(*http.Request) bool
	// View returns the view of a user; the zero User has not logged in. Nil means nothing is
	// hidden.
	View func(User) View
	// Ready returns nil while the node serves, otherwise why it does not.
	Ready func(ctx context.Context) error
	// Notes returns remarks for probes; nil means none.
	Notes func() []string
	// MaxPending bounds the connections without a request in flight: during the handshake, with a
	// partial request, idle, or with a health check. Above it a new connection displaces the
	// oldest of the address that has most of them (package connlimit). Default 256.
	MaxPending int
	// MaxRequests bounds the other concurrent requests; default 256, of which one address can use at
	// most half. Requests above it are refused with status 503.
	MaxRequests int
	// Metrics is the source of /metrics.
	Metrics prometheus.Gatherer
	// Logger receives logins, and net/http's errors at debug level; nil discards them.
	Logger *slog.Logger
}

// Server is a listening HTTP server. Close it.
type Server struct {
	http     *http.Server
	listener net.Listener
	limiter  *connlimit.Limiter
	served   chan error
	watch    *clusterWatch
}

// timing holds timeouts and intervals.
type timing struct {
	read, write time.Duration // timeouts of a request and of its answer
	watch       time.Duration // interval between events
}

var defaultTiming = timing{
	read: 10 * time.Second, write: 30 * time.Second,
	watch: 2 * time.Second,
}

// Open binds the address and starts to serve.
func Open(o Options) (*Server, error) { return open(o, defaultTiming) }

func open(o Options, t timing) (*Server, error) {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	listener, err := net.Listen("tcp", o.Addr)
	if err != nil {
		return nil, fmt.Errorf("httpd: listen: %w", err)
	}
	watch := newClusterWatch(o, t.watch)
	s := &Server{
		http: &http.Server{
			Handler:           handler(o, watch),
			ConnContext:       withConnection,
			ReadHeaderTimeout: 5 * time.Second,
			ReadTimeout:       t.read,
			WriteTimeout:      t.write,
			IdleTimeout:       2 * time.Minute,
			MaxHeaderBytes:    64 << 10,
			ErrorLog:          slog.NewLogLogger(o.Logger.Handler(), slog.LevelDebug),
		},
		limiter: connlimit.New(placesFor(o)),
		served:  make(chan error, 1),
		watch:   watch,
	}
	s.listener = s.limiter.Listen(listener)
	if o.TLS != nil {
		s.listener = tls.NewListener(s.listener, o.TLS)
	}
	go func() { s.served <- s.http.Serve(s.listener) }() // joined by Close
	return s, nil
}

// Addr returns the bound address.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Displaced returns the number of connections without a request that were closed in favor of others.
func (s *Server) Displaced() uint64 { return s.limiter.Closed() }

// Close stops listening, ends streams, waits for other requests until ctx ends, and then closes
// their connections. It must be called once.
func (s *Server) Close(ctx context.Context) error {
	s.watch.close()
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, s.http.Close())
	}
	if serving := <-s.served; !errors.Is(serving, http.ErrServerClosed) {
		err = errors.Join(err, serving)
	}
	return err
}

func handler(o Options, watch *clusterWatch) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		text(w, http.StatusOK, "alive")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, req *http.Request) {
		if err := o.Ready(req.Context()); err != nil {
			text(w, http.StatusServiceUnavailable, appendNotes(err.Error(), o.Notes))
			return
		}
		text(w, http.StatusOK, appendNotes("ready", o.Notes))
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(o.Metrics,
		promhttp.HandlerOpts{Timeout: 10 * time.Second}))
	logins := newLogins(o)
	mux.HandleFunc("GET /api/v1/status", func(w http.ResponseWriter, req *http.Request) {
		// Before the view: one of a node that does not serve yet knows no grants, and would hide
		// nothing in a later status.
		status := o.Status(req.Context())
		body, err := pbjson.Marshal(logins.viewOf(req).Narrow(status))
		if err != nil {
			text(w, http.StatusInternalServerError, err.Error())
			return
		}
		sendJSON(w, http.StatusOK, body)
	})
	watch.serve(mux, logins)
	logins.serve(mux)
	mux.HandleFunc("POST /api/v1/actions/{name}", logins.rejectForged(logins.act))
	serveQuestions(mux, o, watch, logins)
	serveConsole(mux)
	if o.Profiles {
		profiles(mux)
	}
	return guard(onlyOwnHost(o.Hosts, placed(logins.only(mux))))
}

// appendNotes appends a line for each note.
func appendNotes(answer string, notes func() []string) string {
	if notes == nil {
		return answer
	}
	for _, n := range notes() {
		answer += "\nnote: " + n
	}
	return answer
}

// contentPolicy makes browsers load resources from this node only, and run no inline scripts.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; " +
	"connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; " +
	"frame-ancestors 'none'"

// guard sets the headers of every answer.
func guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Content-Security-Policy", contentPolicy)
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, req)
	})
}

func text(w http.ResponseWriter, code int, body string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = fmt.Fprintln(w, body)
}
