package httpd

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
)

// This file says who makes a request, and which requests may change something at all. A
// browser sends cookies and certificates on its own account, also for pages of other
// sites, so a change takes more than to be logged in: it comes from this node's own pages
// (or from no browser), is JSON, and has a header that no other site's page can add. A
// session is the token itself, in a cookie that scripts cannot read: any node can judge
// it, and it ends when the token does. It is called on the goroutine of each request; the
// only state is in guesses and lookUps.

// User is who is logged in.
type User struct {
	Name, Role string
	How        string    // what says so: "token" or "certificate"
	Expires    time.Time // zero: not before the connection does
	MayAct     bool      // it has the operator's role
}

// Operators knows who may change something over HTTP, and does it. Its methods are called
// on many goroutines. Errors are a *Refusal where the client can do something about it.
type Operators interface {
	// Identify returns who knows the token or, if that is empty, who has the certificate. A
	// token that is not known, has expired or was revoked is a Refusal with the status 401.
	Identify(ctx context.Context, token string, cert *x509.Certificate) (User, error)
	// Act makes the call of a method of the services for clients, if the user may, and
	// fills in resp.
	Act(ctx context.Context, who User, from, method string, req, resp proto.Message) error
}

// Refusal is the answer to a request that is not served.
type Refusal struct {
	Status int    // of HTTP
	Code   string // for programs
	Text   string // for people: what to do
}

// Error implements error.
func (r *Refusal) Error() string { return r.Text }

// Codes of refusals.
const (
	CodeInvalid     = "INVALID"     // something is wrong with the request
	CodeLogin       = "LOGIN"       // nobody is logged in
	CodePermission  = "PERMISSION"  // this one may not, or not from there
	CodeNotFound    = "NOT_FOUND"   // there is no such action
	CodeTooMany     = "TOO_MANY"    // requests at once
	CodeUnavailable = "UNAVAILABLE" // later, or on another node
	CodeInternal    = "INTERNAL"
)

const (
	// maxBody bounds what a request that changes something may send, in bytes.
	maxBody = 64 << 10
	// actTime is how long a change may take: less than the answer has.
	actTime = 25 * time.Second
	// maxLookUps is how many tokens are looked up at once, and lookUpTime how long one may
	// take with its wait for that: with actTime, less than the answer has.
	maxLookUps = 16
	lookUpTime = 4 * time.Second
	// consoleHeader has to be there, with any value. A page of another site cannot set it
	// without being asked whether it may, which it may not.
	consoleHeader = "X-Percolator-Console"
	tokenCookie   = "percolator_token"
	// hostPrefix has browsers take the cookie over TLS only, and from this very host.
	hostPrefix = "__Host-"
)

// logins says who makes requests.
type logins struct {
	operators Operators // nil: nobody can log in
	secure    bool      // requests come over TLS
	anywhere  bool      // who logs in may do so in plain text over a network
	closed    func(*http.Request) bool
	view      func(User) View // nil: everything
	logger    *slog.Logger
	guesses   *guesses
	lookUps   chan struct{} // has one for each that is under way
	suspects  chan struct{} // of suspect tokens, likewise
}

func newLogins(o Options) *logins {
	return &logins{
		operators: o.Operators, secure: o.TLS != nil, anywhere: o.PlainLogins, logger: o.Logger,
		closed: o.Closed, view: o.View, guesses: newGuesses(time.Now), lookUps: make(chan struct{}, maxLookUps), suspects: make(chan struct{}, 1),
	}
}

// serve adds the paths.
func (l *logins) serve(mux *http.ServeMux) {
	mux.HandleFunc("GET /api/v1/session", ownSite(func(w http.ResponseWriter, req *http.Request) {
		user, err := l.identify(req, l.tokenOf(req))
		problem := ""
		if err != nil && l.tokenOf(req) != "" {
			problem = err.Error()
		}
		var refusal *Refusal
		if errors.As(err, &refusal) && refusal.Code == CodeLogin {
			l.setCookie(w, "", time.Unix(0, 0)) // it would count as a guess again and again
		}
		tellUser(w, user, problem)
	}))
	mux.HandleFunc("POST /api/v1/login", l.changing(l.login))
	mux.HandleFunc("POST /api/v1/logout", l.changing(
		func(w http.ResponseWriter, _ *http.Request, _ []byte) {
			l.setCookie(w, "", time.Unix(0, 0))
			tellUser(w, User{}, "")
		}))
}

// login answers with the cookie that has the token.
func (l *logins) login(w http.ResponseWriter, req *http.Request, body []byte) {
	var asked struct {
		Token string `json:"token"`
	}
	if err := json.Unmarshal(body, &asked); err != nil || asked.Token == "" {
		refuse(w, &Refusal{http.StatusBadRequest, CodeInvalid, `send {"token": "…"}`})
		return
	}
	user, err := l.identify(req, asked.Token)
	if err != nil {
		l.logger.Warn("console: a login is refused", "from", req.RemoteAddr, "error", err)
		refuse(w, err)
		return
	}
	l.logger.Info("console: logged in", "name", user.Name, "role", user.Role, "from", req.RemoteAddr)
	l.setCookie(w, asked.Token, user.Expires)
	tellUser(w, user, "")
}

func (l *logins) cookieName() string {
	if l.secure {
		return hostPrefix + tokenCookie
	}
	return tokenCookie
}

func (l *logins) setCookie(w http.ResponseWriter, token string, expires time.Time) {
	http.SetCookie(w, &http.Cookie{
		Name: l.cookieName(), Value: token, Path: "/", Expires: expires, HttpOnly: true,
		Secure: l.secure, SameSite: http.SameSiteStrictMode,
	})
}

// tokenOf is the token in the request: programs send it as a bearer's.
func (l *logins) tokenOf(req *http.Request) string {
	if token, ok := strings.CutPrefix(req.Header.Get("Authorization"), "Bearer "); ok {
		return token
	}
	if c, err := req.Cookie(l.cookieName()); err == nil {
		return c.Value
	}
	return ""
}

// identify returns who makes the request, with the token or with a certificate.
func (l *logins) identify(req *http.Request, token string) (User, error) {
	var cert *x509.Certificate
	if req.TLS != nil && len(req.TLS.VerifiedChains) > 0 {
		cert = req.TLS.PeerCertificates[0]
	}
	from, _ := netip.ParseAddrPort(req.RemoteAddr)
	addr := from.Addr().Unmap()
	switch {
	case l.operators == nil:
		return User{}, &Refusal{http.StatusServiceUnavailable, CodeUnavailable,
			"nobody can log in to this listener"}
	case token == "" && cert == nil:
		return User{}, &Refusal{http.StatusUnauthorized, CodeLogin, "log in with a token that " +
			"`percolator token create NAME --role operator` has made"}
	case token == "":
		return l.operators.Identify(req.Context(), "", cert)
	case !l.secure && !l.anywhere && !addr.IsLoopback():
		return User{}, &Refusal{http.StatusForbidden, CodePermission, "a token is taken in plain " +
			"text from this machine only: start the node with --http-tls, or use `ssh -L`"}
	}
	return l.lookUp(req.Context(), addr, token)
}

// lookUp returns who has the token. One that was found wrong just now is refused without a look-up.
// Those of a kind of which many were wrong wait for each other, and for no valid one.
func (l *logins) lookUp(ctx context.Context, addr netip.Addr, token string) (User, error) {
	ctx, cancel := context.WithTimeout(ctx, lookUpTime)
	defer cancel()
	room := l.lookUps
	if l.guesses.suspect(addr, token) {
		room = l.suspects
	}
	select {
	case room <- struct{}{}:
		defer func() { <-room }()
	case <-ctx.Done():
		return User{}, &Refusal{http.StatusServiceUnavailable, CodeUnavailable,
			"the node is busy looking up tokens: try again"}
	}
	if err := l.guesses.known(token); err != nil {
		return User{}, err
	}
	user, err := l.operators.Identify(ctx, token, nil)
	var refusal *Refusal
	switch {
	case err == nil:
		l.guesses.add(addr, token, nil)
	case errors.As(err, &refusal) && refusal.Status == http.StatusUnauthorized:
		l.guesses.add(addr, token, refusal)
	}
	return user, err
}

// instead returns nil if who makes the request has logged in, and so may read what others
// may not; else a refusal, which is why if no login was tried.
func (l *logins) instead(req *http.Request, why error) error {
	_, err := l.identify(req, l.tokenOf(req))
	if err != nil && l.tokenOf(req) == "" {
		return &Refusal{http.StatusUnauthorized, CodeLogin, why.Error()}
	}
	return err
}

// mayRead returns nil if who makes the request has logged in, with whatever role, or need
// not; else a refusal.
func (l *logins) mayRead(req *http.Request) error {
	if l.closed == nil || !l.closed(req) {
		return nil
	}
	_, err := l.identify(req, l.tokenOf(req))
	return err
}

// only has next answer those who may read. Open stay health, the files of the console, which are the same everywhere, and what
// one logs in by.
func (l *logins) only(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		switch path := req.URL.Path; {
		case isHealth(req), path == "/", strings.HasPrefix(path, "/console/"),
			path == "/api/v1/session", path == "/api/v1/login", path == "/api/v1/logout":
		default:
			if err := l.mayRead(req); err != nil {
				refuse(w, err)
				return
			}
		}
		next.ServeHTTP(w, req)
	})
}

// changing has next handle requests that may change something, and refuses others.
func (l *logins) changing(next func(http.ResponseWriter, *http.Request, []byte)) http.HandlerFunc {
	sameOrigin := http.NewCrossOriginProtection()
	return func(w http.ResponseWriter, req *http.Request) {
		kind, _, _ := mime.ParseMediaType(req.Header.Get("Content-Type"))
		switch {
		case sameOrigin.Check(req) != nil:
			refuse(w, &Refusal{http.StatusForbidden, CodePermission,
				"this is for the node's own pages, not for other sites'"})
			return
		case req.Header.Get(consoleHeader) == "":
			refuse(w, &Refusal{http.StatusForbidden, CodePermission,
				"the header " + consoleHeader + " is missing: set it to 1"})
			return
		case kind != "application/json":
			refuse(w, &Refusal{http.StatusUnsupportedMediaType, CodeInvalid,
				"send JSON, as application/json"})
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxBody))
		var large *http.MaxBytesError
		switch {
		case errors.As(err, &large):
			refuse(w, &Refusal{http.StatusRequestEntityTooLarge, CodeInvalid,
				"the request is larger than 64 KiB"})
		case err != nil:
			refuse(w, &Refusal{http.StatusBadRequest, CodeInvalid, "the request has not come whole"})
		default:
			next(w, req, body)
		}
	}
}

// tellUser answers with who is logged in.
func tellUser(w http.ResponseWriter, u User, problem string) {
	expires := int64(0)
	if !u.Expires.IsZero() {
		expires = u.Expires.UnixMilli()
	}
	tell(w, http.StatusOK, map[string]any{
		"name": u.Name, "role": u.Role, "how": u.How, "expires_unix_ms": expires,
		"may_act": u.MayAct, "problem": problem,
	})
}

// refuse answers with an error. One that is no Refusal is the node's own fault.
func refuse(w http.ResponseWriter, err error) {
	r := &Refusal{http.StatusInternalServerError, CodeInternal, err.Error()}
	_ = errors.As(err, &r)
	if r.Status == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "60")
	}
	tell(w, r.Status, map[string]any{"error": r.Text, "code": r.Code})
}

func tell(w http.ResponseWriter, status int, what map[string]any) {
	body, err := json.Marshal(what)
	if err != nil { // of texts and numbers
		status, body = http.StatusInternalServerError, []byte("{}")
	}
	tellJSON(w, status, body)
}

func tellJSON(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n'))
}
