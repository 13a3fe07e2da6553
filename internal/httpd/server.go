package httpd

import (
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

// Options is what a Server shows. Its functions are called on any goroutine, once a request.
type Options struct {
	// Addr is the host:port to bind; port 0 picks a free one.
	Addr string
	// Hosts are the names, with or without ports, under which requests may ask for the node
	// besides localhost and addresses; others are refused. nil: none.
	Hosts func() []string
	// Operators knows who may change something; nil: nobody may.
	Operators Operators
	// TLS serves encrypted, and lets those log in who show a certificate that it accepts; nil:
	// plain text.
	TLS *tls.Config
	// PlainLogins takes tokens in plain text from other machines too.
	PlainLogins bool
	// Profiles also serves /debug/pprof/.
	Profiles bool
	// Status describes the node.
	Status func(ctx context.Context) *pb.NodeStatusResponse
	// Cluster describes the whole cluster and lists its tables, as far as that could be
	// gathered, or says why it can't. It is called while somebody listens, one call at a
	// time; nil: the node can't tell.
	Cluster func(ctx context.Context) (*pb.ClusterStatusResponse, []*pb.Table, error)
	// Questions are what pages ask for beside that, by name.
	Questions map[string]Question
	// MayRead says why who has not logged in may not see rows and values; nil: everybody may.
	MayRead func(*http.Request) error
	// Closed reports whether the request is answered only if who makes it has logged in. It is
	// asked of all but health and the console's files, and of a stream for each event; nil:
	// everybody is answered.
	Closed func(*http.Request) bool
	// View returns what may be told to somebody; the zero User has not logged in. nil: everything is
	// told to everybody.
	View func(User) View
	// Ready is nil while the node serves, else why it does not.
	Ready func(ctx context.Context) error
	// Notes are what to tell a probe beside that; nil: nothing.
	Notes func() []string
	// MaxPending bounds the connections on which no request is answered: that shake hands, have sent
	// half a request, are idle or ask for health. One more closes another, see package connlimit;
	// default 256.
	MaxPending int
	// MaxRequests bounds the other requests that are answered at once; default 256. One address has
	// half of them at most. Those beyond it are refused with the status 503.
	MaxRequests int
	// Metrics is what /metrics exports.
	Metrics prometheus.Gatherer
	// Logger receives what net/http reports; nil discards it.
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

// timing is how long things may take, and how often they are done.
type timing struct {
	read, write time.Duration // a request; its answer
	watch       time.Duration // between two events
}

var defaultTiming = timing{
	read: 10 * time.Second, write: 30 * time.Second,
	watch: 2 * time.Second,
}

// Open binds the address and serves.
func Open(o Options) (*Server, error) { return open(o, defaultTiming) }

func open(o Options, t timing) (*Server, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	listener, err := net.Listen("tcp", o.Addr)
	if err != nil {
		return nil, fmt.Errorf("httpd: %w", err)
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

// Addr is the address that was bound.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Displaced returns how many connections without a request were closed to make room for others.
func (s *Server) Displaced() uint64 { return s.limiter.Closed() }

// Close stops listening, ends streams, and waits for other requests under way as long as
// ctx allows, then cuts them off. It is called once.
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
			text(w, http.StatusServiceUnavailable, noted(err.Error(), o.Notes))
			return
		}
		text(w, http.StatusOK, noted("ready", o.Notes))
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(o.Metrics,
		promhttp.HandlerOpts{Timeout: 10 * time.Second}))
	logins := newLogins(o)
	mux.HandleFunc("GET /api/v1/status", func(w http.ResponseWriter, req *http.Request) {
		status := o.Status(req.Context()) // before the view: grants are known once the node serves
		body, err := pbjson.Marshal(logins.viewOf(req).Narrow(status))
		if err != nil {
			text(w, http.StatusInternalServerError, err.Error())
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(append(body, '\n'))
	})
	watch.serve(mux, logins)
	logins.serve(mux)
	mux.HandleFunc("POST /api/v1/actions/{name}", logins.changing(logins.act))
	serveQuestions(mux, o, watch, logins)
	serveConsole(mux)
	if o.Profiles {
		profiles(mux)
	}
	return guard(onlyOwnHost(o.Hosts, placed(logins.only(mux))))
}

// noted adds a line for each note.
func noted(answer string, notes func() []string) string {
	if notes == nil {
		return answer
	}
	for _, n := range notes() {
		answer += "\nnote: " + n
	}
	return answer
}

// contentPolicy has browsers load nothing but what this node serves, and run no script that
// stands in a document.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; " +
	"connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; " +
	"frame-ancestors 'none'"

// guard sets what every answer carries.
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
