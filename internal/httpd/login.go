package httpd

import (
	"cmp"
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

// Authentication of requests, and protection of requests that change something. A browser sends
// cookies and certificates automatically, also for pages of other sites, so a login alone does not
// authorize a change: the request must come from this node's own pages (or not from a browser), be
// JSON, and carry a header that another site's page cannot add. The session is the token itself, in
// a cookie that scripts cannot read: any node can verify it, and it expires with the token. Handlers
// run on the goroutine of the request; the only state is that of Tokens.

// User is the user of a request.
type User struct {
	Name, Role string
	How        string    // how the user was identified: "token" or "certificate"
	Expires    time.Time // of the token; zero, with a certificate: when the connection ends
	MayAct     bool      // the user's role includes the operator's
}

// Operators identifies users and performs their actions. Its methods are called concurrently. An
// error that the client can fix is a *Refusal.
type Operators interface {
	// Identify returns the user of the token or, if that is empty, of the certificate. An unknown,
	// expired or revoked token, or a revoked certificate, yields a Refusal with status 401.
	Identify(ctx context.Context, token string, cert *x509.Certificate) (User, error)
	// Act calls a method of the client services if the user is authorized, and fills in resp.
	Act(ctx context.Context, who User, from, method string, req, resp proto.Message) error
}

// Refusal is the error sent for a refused request.
type Refusal struct {
	Status int    // HTTP status
	Code   string // for programs
	Text   string // for people, with the remedy
}

// Error implements error.
func (r *Refusal) Error() string { return r.Text }

// Codes of refusals.
const (
	CodeInvalid     = "INVALID"     // the request is malformed
	CodeLogin       = "LOGIN"       // a login is required
	CodePermission  = "PERMISSION"  // the user, or the request's origin, is not authorized
	CodeNotFound    = "NOT_FOUND"   // unknown action
	CodeTooMany     = "TOO_MANY"    // too many concurrent requests
	CodeUnavailable = "UNAVAILABLE" // retry later or on another node
	CodeInternal    = "INTERNAL"
)

const (
	// maxBody bounds the body of a request that changes something, in bytes.
	maxBody = 64 << 10
	// actTime bounds an action; it is below the write timeout.
	actTime = 25 * time.Second
	// consoleHeader is required, with any value. Browsers let a page of another site set it only
	// after a CORS preflight, which fails.
	consoleHeader = "X-Percolator-Console"
	tokenCookie   = "percolator_token"
	// hostPrefix makes browsers accept the cookie over TLS and from this host only.
	hostPrefix = "__Host-"
)

// logins authenticates requests.
type logins struct {
	operators Operators // nil: nobody can log in
	program   string    // of the commands that pages show
	secure    bool      // the listener uses TLS
	anywhere  bool      // tokens are accepted in plain text from other machines
	closed    func(*http.Request) bool
	view      func(User) View // nil: everything
	logger    *slog.Logger
	tokens    *Tokens
}

func newLogins(o Options) *logins {
	find := func(ctx context.Context, token string) (User, error) { return o.Operators.Identify(ctx, token, nil) }
	return &logins{
		operators: o.Operators, secure: o.TLS != nil, anywhere: o.PlainLogins, logger: o.Logger,
		closed: o.Closed, program: cmp.Or(o.Program, "percolator"), view: o.View, tokens: NewTokens(find, 0),
	}
}

// serve registers the paths.
func (l *logins) serve(mux *http.ServeMux) {
	mux.HandleFunc("GET /api/v1/session", ownSite(func(w http.ResponseWriter, req *http.Request) {
		user, err := l.identify(req, l.tokenOf(req))
		problem := ""
		if err != nil && l.tokenOf(req) != "" {
			problem = err.Error()
		}
		var refusal *Refusal
		if errors.As(err, &refusal) && refusal.Code == CodeLogin {
			l.setCookie(w, "", time.Unix(0, 0)) // otherwise every request counts as a guess
		}
		l.sendUser(w, user, problem)
	}))
	mux.HandleFunc("POST /api/v1/login", l.rejectForged(l.login))
	mux.HandleFunc("POST /api/v1/logout", l.rejectForged(
		func(w http.ResponseWriter, _ *http.Request, _ []byte) {
			l.setCookie(w, "", time.Unix(0, 0))
			l.sendUser(w, User{}, "")
		}))
}

// login verifies a token and sets it as the cookie.
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
		l.logger.Warn("console: refused a login", "from", req.RemoteAddr, "error", err)
		refuse(w, err)
		return
	}
	l.logger.Info("console: logged in", "name", user.Name, "role", user.Role, "from", req.RemoteAddr)
	l.setCookie(w, asked.Token, user.Expires)
	l.sendUser(w, user, "")
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

// tokenOf returns the request's token: programs send it as a bearer token, browsers as the cookie.
func (l *logins) tokenOf(req *http.Request) string {
	if token, ok := strings.CutPrefix(req.Header.Get("Authorization"), "Bearer "); ok {
		return token
	}
	if c, err := req.Cookie(l.cookieName()); err == nil {
		return c.Value
	}
	return ""
}

// identify returns the request's user by the token or the certificate.
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
			"this listener does not accept logins"}
	case token == "" && cert == nil:
		return User{}, &Refusal{http.StatusUnauthorized, CodeLogin, "log in with a token from " +
			"`percolator token create NAME --role operator`"}
	case token == "":
		return l.operators.Identify(req.Context(), "", cert)
	case !l.secure && !l.anywhere && !addr.IsLoopback():
		return User{}, &Refusal{http.StatusForbidden, CodePermission, "tokens are accepted in plain " +
			"text from this machine only: start the node with --http-tls, or use `ssh -L`"}
	}
	return l.tokens.User(req.Context(), addr, token)
}

// admitByLogin returns nil if the request's user has logged in, and so may read what others may not.
// Otherwise it returns a refusal with the text of why, if the request carries no token, or the
// error of the login.
func (l *logins) admitByLogin(req *http.Request, why error) error {
	_, err := l.identify(req, l.tokenOf(req))
	if err != nil && l.tokenOf(req) == "" {
		return &Refusal{http.StatusUnauthorized, CodeLogin, why.Error()}
	}
	return err
}

// mayRead returns nil if the request's user has logged in, with any role, or needs no login;
// otherwise a refusal.
func (l *logins) mayRead(req *http.Request) error {
	if l.closed == nil || !l.closed(req) {
		return nil
	}
	_, err := l.identify(req, l.tokenOf(req))
	return err
}

// only restricts next to users who may read. Health, the console's static files and the login stay
// open.
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

// rejectForged passes requests that are protected against forgery to next and refuses others.
func (l *logins) rejectForged(next func(http.ResponseWriter, *http.Request, []byte)) http.HandlerFunc {
	sameOrigin := http.NewCrossOriginProtection()
	return func(w http.ResponseWriter, req *http.Request) {
		kind, _, _ := mime.ParseMediaType(req.Header.Get("Content-Type"))
		switch {
		case sameOrigin.Check(req) != nil:
			refuse(w, &Refusal{http.StatusForbidden, CodePermission,
				"only pages of this node may send this request"})
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
			refuse(w, &Refusal{http.StatusBadRequest, CodeInvalid, "the request's body could not be read"})
		default:
			next(w, req, body)
		}
	}
}

// sendUser sends the user.
func (l *logins) sendUser(w http.ResponseWriter, u User, problem string) {
	expires := int64(0)
	if !u.Expires.IsZero() {
		expires = u.Expires.UnixMilli()
	}
	tell(w, http.StatusOK, map[string]any{
		"name": u.Name, "role": u.Role, "how": u.How, "expires_unix_ms": expires,
		"may_act": u.MayAct, "problem": problem, "program": l.program,
	})
}

// refuse sends an error. One that is not a Refusal has status 500.
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
	if err != nil { // cannot happen: the map contains only texts, numbers and booleans
		status, body = http.StatusInternalServerError, []byte("{}")
	}
	sendJSON(w, status, body)
}

func sendJSON(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n'))
}
