package search

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/netutil"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/examples/webindex/webindex/export"
)

const (
	requestTimeout = 10 * time.Second
	headerTimeout  = 5 * time.Second
	maxHeader      = 16 << 10
	maxAtOnce      = 16 // concurrent searches; further ones are refused with status 503
	// further ones wait to be accepted: the node in this process needs file descriptors too
	maxConnections = 256
)

// security is sent with everything: no script, no frame, no style or font but our own,
// nothing from elsewhere.
const security = "default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

//go:embed assets
var assets embed.FS

// Status describes the progress of the index.
type Status struct {
	Pages   uint64        // documents in the index
	Waiting uint64        // notifications, of all observers
	Oldest  time.Duration // age of the oldest of them; 0: not known
}

// Config configures a Server.
type Config struct {
	Addr   string // host:port; port 0 takes a free one
	Index  *export.Index
	DB     *percolator.DB
	Status func(context.Context) (Status, error)
	Logger *slog.Logger
}

// Server serves the search page.
type Server struct {
	cfg      Config
	pages    *template.Template
	listener net.Listener
	http     *http.Server
	slots    chan struct{}
	served   sync.WaitGroup
}

// Open starts the server. The index and the database must stay open until Close has returned.
func Open(cfg Config) (*Server, error) {
	functions := template.FuncMap{"thousands": thousands}
	pages, err := template.New("").Funcs(functions).ParseFS(assets, "assets/*.html")
	if err != nil {
		return nil, fmt.Errorf("search: %w", err)
	}
	listener, err := net.Listen("tcp", cfg.Addr)
	if err != nil {
		return nil, fmt.Errorf("search: %w", err)
	}
	s := &Server{
		cfg: cfg, pages: pages, listener: netutil.LimitListener(listener, maxConnections),
		slots: make(chan struct{}, maxAtOnce),
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", s.search)
	mux.HandleFunc("GET /style.css", s.style)
	s.http = &http.Server{
		Handler: secured(onlyOwnHost(cfg.Addr, mux)), ReadHeaderTimeout: headerTimeout,
		ReadTimeout:  headerTimeout,
		WriteTimeout: requestTimeout + headerTimeout, MaxHeaderBytes: maxHeader,
		ErrorLog: slog.NewLogLogger(cfg.Logger.Handler(), slog.LevelDebug),
	}
	s.served.Go(func() {
		if err := s.http.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
			cfg.Logger.Error("search: the server ended", "error", err)
		}
	})
	return s, nil
}

// Addr returns the bound address, host:port.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Close stops the server. It waits for requests in flight until ctx ends.
func (s *Server) Close(ctx context.Context) error {
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, s.http.Close())
	}
	s.served.Wait()
	return err
}

// secured sets the security headers of every response.
func secured(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Content-Security-Policy", security)
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Referrer-Policy", "no-referrer")
		header.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.ServeHTTP(w, r)
	})
}

func (s *Server) style(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "max-age=3600")
	http.ServeFileFS(w, r, assets, "assets/style.css")
}

// view is the data of the page's template.
type view struct {
	Query    string
	MaxQuery int
	Error    string // what is wrong with the query, or that the search failed; "": neither
	Searched bool
	Total    uint64
	First    int // number of the first result on this page
	Last     int
	Results  []Result
	Page     int
	Pages    int
	Previous int // 0: there is none
	Next     int
	Cut      bool // there are more results than can be paged to
	Took     string
	Status   Status
	// how old the oldest waiting notification is; "" means nothing waits, or that is not known
	Behind string
	Known  bool // whether Status is known
}

// search serves the search page.
func (s *Server) search(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
	defer cancel()
	v := view{MaxQuery: maxQuery, Query: strings.TrimSpace(r.FormValue("q"))}
	var code int
	select {
	case s.slots <- struct{}{}:
		code = s.fill(ctx, &v, r.FormValue("page"))
		<-s.slots
	default:
		v.Error, code = "Too many searches at once. Please try again in a moment.",
			http.StatusServiceUnavailable
	}
	s.status(ctx, &v)
	var page bytes.Buffer
	if err := s.pages.ExecuteTemplate(&page, "page.html", v); err != nil {
		s.cfg.Logger.Error("search: page", "error", err)
		http.Error(w, "internal error", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_, _ = w.Write(page.Bytes()) // fails only if the client has gone
}

// fill runs the query, if there is one, and returns the status code.
func (s *Server) fill(ctx context.Context, v *view, page string) int {
	terms, err := parse(v.Query)
	if err == nil && len(terms) == 0 {
		return http.StatusOK
	}
	if err == nil {
		v.Page, err = pageNumber(page)
	}
	began := time.Now()
	var f found
	if err == nil {
		f, err = s.find(ctx, terms, v.Page)
	}
	if bad := (*queryError)(nil); errors.As(err, &bad) {
		if len(v.Query) > maxQuery {
			v.Query = "" // too long to be repeated on the page
		}
		v.Error = strings.ToUpper(bad.reason[:1]) + bad.reason[1:] + "." // reasons begin with ASCII
		return http.StatusBadRequest
	}
	if err != nil {
		s.cfg.Logger.Warn("search: failed", "error", err)
		v.Error = "The search failed. Please try again."
		return http.StatusInternalServerError
	}
	v.show(f)
	v.Took = time.Since(began).Round(time.Millisecond).String()
	return http.StatusOK
}

// pageNumber parses the number of a page of results.
func pageNumber(text string) (int, error) {
	if text == "" {
		return 1, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > maxPages {
		return 0, refuse("pages of results are numbered from 1 to %d", maxPages)
	}
	return n, nil
}

// show adds the results to the page.
func (v *view) show(f found) {
	v.Searched, v.Total, v.Results = true, f.total, f.results
	v.Pages = int((f.total + perPage - 1) / perPage)
	if v.Pages > maxPages {
		v.Pages, v.Cut = maxPages, true
	}
	v.First = (v.Page-1)*perPage + 1
	v.Last = v.First + len(f.results) - 1
	if v.Page > 1 {
		v.Previous = min(v.Page-1, max(v.Pages, 1))
	}
	if v.Page < v.Pages {
		v.Next = v.Page + 1
	}
}

// status adds the progress of indexing. The page is usable without it.
func (s *Server) status(ctx context.Context, v *view) {
	status, err := s.cfg.Status(ctx)
	if err != nil {
		s.cfg.Logger.Debug("search: status", "error", err)
		return
	}
	v.Status, v.Known = status, true
	if status.Waiting > 0 && status.Oldest > 0 {
		v.Behind = status.Oldest.Round(100 * time.Millisecond).String()
	}
}

// thousands formats a number as 12,345.
func thousands(n uint64) string {
	s := strconv.FormatUint(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
