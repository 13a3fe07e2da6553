package gateway

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/rpc"
	"github.com/percolator-go/percolator/internal/txn"
)

// From an HTTP request to a call: its caller, its bounds, its deadline and its error.

type connKey struct{}

// withConn implements http.Server's ConnContext.
func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// admitted identifies the callers of requests, counts their calls, and bounds what they read and write.
func (s *service) admitted(next http.Handler) http.Handler {
	writer := connect.NewErrorWriter()
	refuse := func(w http.ResponseWriter, req *http.Request, err error) {
		refusal := failure(err)
		s.counters.count(refusal)
		_ = writer.Write(w, req, refusal)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		ctx, who, end, err := s.admit(req)
		if err != nil {
			refuse(w, req, err)
			return
		}
		defer end()
		c, done, err := s.callers.call(who)
		if err != nil {
			refuse(w, req, err)
			return
		}
		defer done()
		in := &body{ReadCloser: req.Body, s: s, deadlines: http.NewResponseController(w)}
		defer in.end()
		req = req.WithContext(context.WithValue(ctx, callerKey{}, &call{c, who, tokenOf(req)}))
		req.Body = in
		next.ServeHTTP(&answer{w, in.deadlines, s.cfg.timing.write, false}, req)
	})
}

// admit identifies the caller of a request.
func (s *service) admit(req *http.Request) (ctx context.Context, who rpc.Caller, end func(), err error) {
	p := &peer.Peer{}
	if c, ok := req.Context().Value(connKey{}).(net.Conn); ok {
		p.Addr = c.RemoteAddr()
	}
	if req.TLS != nil {
		p.AuthInfo = credentials.TLSInfo{State: *req.TLS}
	}
	ctx = peer.NewContext(req.Context(), p)
	if token := tokenOf(req); token != "" && s.cfg.Token != nil {
		if who, err = s.tokenCaller(ctx, token); err == nil {
			end, err = s.cfg.Server.AdmitAs(ctx, who)
		}
	} else {
		who, end, err = s.cfg.Server.Admit(ctx)
	}
	return ctx, who, end, unauthenticated(err)
}

// tokenOf returns the request's bearer token; "" if its header Authorization is absent or has another
// scheme.
func tokenOf(req *http.Request) string {
	scheme, token, _ := strings.Cut(req.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// tokenCaller returns the caller of a token that has come on the connection of ctx.
func (s *service) tokenCaller(ctx context.Context, token string) (rpc.Caller, error) {
	from := ""
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		from = p.Addr.String()
	}
	at, _ := netip.ParseAddrPort(from)
	who, err := s.cfg.Token(ctx, at.Addr().Unmap(), token)
	who.From = from
	return who, err
}

// recheck returns an error if the certificate or the token of a call has been revoked since the
// call began, or the token has expired.
func (s *service) recheck(ctx context.Context) (err error) {
	c := ctx.Value(callerKey{}).(*call)
	if c.who.By == rpc.ByToken {
		_, err = s.tokenCaller(ctx, c.token)
	} else {
		err = s.cfg.Server.Recheck(ctx, c.who)
	}
	return unauthenticated(err)
}

// unauthenticated wraps errUnauthenticated around an error with CODE_PERMISSION, which here means
// that the caller's certificate or token is not valid.
func unauthenticated(err error) error {
	if refusal, ok := errors.AsType[*txn.ServerError](err); ok && refusal.Code == pb.Error_CODE_PERMISSION {
		return txn.Errorf("%w: %w", errUnauthenticated, err)
	}
	return err
}

type callerKey struct{}

// call is the caller of one call.
type call struct {
	*caller
	who   rpc.Caller
	token string // "" if it has none
}

// callerIn returns the caller of the call.
func callerIn(ctx context.Context) *caller { return ctx.Value(callerKey{}).(*call).caller }

// body is the body of a request, of at most one message of maxMessage bytes. It counts what is read
// against the memory of all bodies, until end.
type body struct {
	io.ReadCloser
	s         *service
	deadlines *http.ResponseController
	held      int64
	timed     bool // the connection has a deadline for reading
}

const (
	// bodyChunk is the maximum size of one read of a body, in bytes.
	bodyChunk = 64 << 10
	// envelopePrefix is the size of what precedes a message in gRPC, gRPC-Web and Connect's streams, in bytes.
	envelopePrefix = 5
)

// Read implements io.Reader. The whole body must arrive in time.
func (b *body) Read(p []byte) (int, error) {
	if !b.timed && b.held == 0 {
		b.timed = b.deadlines.SetReadDeadline(time.Now().Add(b.s.cfg.timing.read)) == nil
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), bodyChunk)])
	if b.held+int64(n) > maxMessage+envelopePrefix {
		b.end()
		// Discard what the client is still sending: many clients would otherwise see a broken
		// connection instead of the answer.
		_, _ = io.CopyN(io.Discard, b.ReadCloser, 4*maxMessage)
		return 0, failure(txn.Errorf("%w: a request of more than %d MiB", percolator.ErrTooLarge, maxMessage>>20))
	}
	if n > 0 && !b.s.bodies.TryAcquire(int64(n)) {
		return 0, failure(txn.Errorf("%w: this node's gateway already holds %d MiB of requests", percolator.ErrOverloaded,
			bodyMemory>>20))
	}
	b.held += int64(n)
	// At the end of the body its deadline is removed: otherwise the server would take its expiry
	// for a disconnected client. A body that is not read to its end keeps the deadline, since the
	// server may read the rest.
	if b.timed && errors.Is(err, io.EOF) {
		b.timed = b.deadlines.SetReadDeadline(time.Time{}) != nil
	}
	return n, err
}

// end returns the memory.
func (b *body) end() {
	b.s.bodies.Release(b.held)
	b.held = 0
}

// answer is the answer to a request. A client that does not read a part in time loses its connection or stream.
type answer struct {
	http.ResponseWriter
	deadlines *http.ResponseController
	within    time.Duration
	timed     bool
}

// Write implements http.ResponseWriter.
func (w *answer) Write(p []byte) (int, error) {
	if !w.timed {
		w.timed = w.deadlines.SetWriteDeadline(time.Now().Add(w.within)) == nil
	}
	return w.ResponseWriter.Write(p)
}

// Flush implements http.Flusher. What follows has a deadline of its own.
func (w *answer) Flush() {
	if !w.timed {
		w.timed = w.deadlines.SetWriteDeadline(time.Now().Add(w.within)) == nil
	}
	_ = w.deadlines.Flush() // after an error the next write fails too
	w.timed = w.deadlines.SetWriteDeadline(time.Time{}) != nil
}

// Unwrap implements what http.ResponseController needs.
func (w *answer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// calls is the interceptor of all calls.
type calls struct{ s *service }

// WrapUnary implements connect.Interceptor. It bounds the duration of each call and adds a Failure to
// its error.
func (c calls) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		within := c.s.cfg.timing.longest
		if _, given := ctx.Deadline(); !given {
			within = c.s.cfg.timing.unary
		}
		ctx, cancel := context.WithTimeout(ctx, within)
		defer cancel()
		resp, err := next(ctx, req)
		if err != nil {
			resp, err = nil, failure(err)
		}
		c.s.counters.count(err)
		return resp, err
	}
}

// WrapStreamingClient implements connect.Interceptor.
func (calls) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler implements connect.Interceptor. It ends a stream when the server closes, or
// before the first message after the caller's certificate or token was revoked.
func (c calls) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(c.s.life, cancel)()
		err := next(ctx, &stream{conn, c.s, ctx})
		if err != nil && c.s.life.Err() != nil {
			err = txn.Errorf("%w: the node is stopping", percolator.ErrClosed)
		}
		if err != nil {
			err = failure(err)
		}
		c.s.counters.count(err)
		return err
	}
}

// stream is a stream that checks before each message that its caller's certificate or token is valid.
type stream struct {
	connect.StreamingHandlerConn
	s   *service
	ctx context.Context
}

// Send implements connect.StreamingHandlerConn.
func (s *stream) Send(m any) error {
	if err := s.s.recheck(s.ctx); err != nil {
		return err
	}
	return s.StreamingHandlerConn.Send(m)
}
