package console

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/cluster/meta"
	"github.com/percolator-go/percolator/internal/certs"
	"github.com/percolator-go/percolator/internal/httpd"
	"github.com/percolator-go/percolator/internal/rpc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/node/config"
	"github.com/percolator-go/percolator/node/telemetry"
)

// Config configures a Console.
type Config struct {
	Logger *slog.Logger
	// Addr is the address of the HTTP listener.
	Addr string
	// Login demands a login before the policy of the cluster is known.
	Login bool
	// Files are the certificates of the node; nil means plain text.
	Files *certs.Files
	// SeenClient notes a client that has used its certificate.
	SeenClient func(rpc.Caller)
	Now        func() time.Time
	Policy     *cluster.PolicyView
	// Ready returns why the node does not serve; nil while it serves.
	Ready func(context.Context) error
	// Parts returns the parts of a node that serves; nil before.
	Parts func() *Parts
}

// Parts are the parts of a node that the console asks.
type Parts struct {
	Client *txn.Client
	Window *telemetry.Window
	// Transport changes the schema; it is the node's own.
	Transport txn.Transport
	// Admin is the operators' service in this process.
	Admin grpc.ClientConnInterface
	// FindToken returns the token with the hash; nil if there is none.
	FindToken func(ctx context.Context, hash []byte) (*pb.Token, error)
}

// Console answers the questions of the console's pages (questions.go) and makes the calls of
// people who have logged in. Its methods may be called concurrently; those that need the parts
// of the node fail while it does not serve.
//
// It implements httpd.Operators. It looks a token up in meta each time: actions are few, and
// every node refuses a revoked one at once.
type Console struct{ cfg Config }

var _ httpd.Operators = (*Console)(nil)

// New returns a Console.
func New(cfg Config) *Console { return &Console{cfg} }

// ErrStarting is the error of a node that does not serve yet.
var ErrStarting = errors.New("node: starting, or waiting to join a cluster")

// Closed reports whether HTTP answers a request only after a login. The policy is known once the
// node serves; before, no user can log in and HTTP serves little, except profiles, which are for
// this machine only.
func (c *Console) Closed(req *http.Request) bool {
	if c.cfg.Parts() == nil {
		return c.cfg.Login || strings.HasPrefix(req.URL.Path, "/debug/pprof/") &&
			!config.IsLoopback(req.RemoteAddr)
	}
	return c.cfg.Policy.Now().GetHttpLogin()
}

// View returns the view of a user: it hides what calls with the same certificate or token would
// hide, and all row keys from a user who has not logged in. Without certificates users are
// indistinguishable: nothing is hidden.
func (c *Console) View(who httpd.User) httpd.View {
	if c.cfg.Files == nil {
		return rpc.View{}
	}
	v := c.guard().View(rpc.Caller{Role: certs.Role(who.Role), Name: who.Name, By: who.How})
	if who == (httpd.User{}) {
		return keyless{v}
	}
	return v
}

// guard returns the guard that authorizes the console's calls.
func (c *Console) guard() *rpc.Guard {
	var schema rpc.Schema
	if p := c.cfg.Parts(); p != nil {
		schema = p.Transport
	}
	return rpc.NewGuard(c.cfg.Logger, c.cfg.Policy.LastRead, schema)
}

// Identify implements httpd.Operators.
func (c *Console) Identify(ctx context.Context, token string,
	cert *x509.Certificate) (httpd.User, error) {
	// Before the node serves, meta may be unavailable for looking up a token. A certificate could be
	// verified, but every action needs the cluster anyway.
	parts := c.cfg.Parts()
	if parts == nil {
		return httpd.User{}, unavailable(cmp.Or(c.cfg.Ready(ctx), ErrStarting))
	}
	if token == "" {
		if c.cfg.Files.Revoked(cert) { // revoked since the connection was made
			return httpd.User{}, &httpd.Refusal{
				Status: http.StatusUnauthorized, Code: httpd.CodeLogin, Text: "the certificate was revoked",
			}
		}
		role, name := certs.Identity(cert)
		c.cfg.SeenClient(rpc.Caller{Role: role, Name: name})
		return httpd.User{
			Name: name, Role: string(role), How: rpc.ByCertificate,
			MayAct: role.Includes(certs.Operator),
		}, nil
	}
	return identify(ctx, parts.FindToken, token, c.cfg.Now())
}

// identify returns the user of the token.
func identify(ctx context.Context, find func(context.Context, []byte) (*pb.Token, error),
	token string, now time.Time) (httpd.User, error) {
	unknown := &httpd.Refusal{
		Status: http.StatusUnauthorized, Code: httpd.CodeLogin,
		Text: "there is no such token, or it was revoked: `percolator token create NAME --role " +
			"operator` makes one",
	}
	hash, ok := certs.TokenHash(token)
	if !ok {
		return httpd.User{}, unknown
	}
	t, err := find(ctx, hash)
	switch {
	case err != nil:
		return httpd.User{}, unavailable(err)
	case t == nil:
		return httpd.User{}, unknown
	case !meta.TokenValid(t, now):
		return httpd.User{}, &httpd.Refusal{
			Status: http.StatusUnauthorized, Code: httpd.CodeLogin, Text: "the token has expired: " +
				"`percolator token create NAME --role operator` makes another",
		}
	}
	role := certs.Role(t.Role)
	return httpd.User{
		Name: t.Name, Role: t.Role, How: rpc.ByToken, Expires: time.UnixMilli(t.ExpiresUnixMs),
		MayAct: role.Includes(certs.Operator),
	}, nil
}

// tokenKept is how long the gateway acts upon a token without looking it up again.
const tokenKept = time.Second

// TokenCallers returns the function that finds the callers of tokens for the gateway, by the hashes
// that find looks up. A revocation takes effect within tokenKept.
func TokenCallers(find func(context.Context, []byte) (*pb.Token, error), now func() time.Time,
) func(context.Context, netip.Addr, string) (rpc.Caller, error) {
	tokens := httpd.NewTokens(func(ctx context.Context, token string) (httpd.User, error) {
		return identify(ctx, find, token, now())
	}, tokenKept)
	return func(ctx context.Context, from netip.Addr, token string) (rpc.Caller, error) {
		user, err := tokens.User(ctx, from, token)
		if refusal, ok := errors.AsType[*httpd.Refusal](err); ok {
			code := pb.Error_CODE_UNAVAILABLE
			if refusal.Status == http.StatusUnauthorized {
				code = pb.Error_CODE_PERMISSION
			}
			err = &txn.ServerError{Code: code, Message: "percolator: " + refusal.Text}
		}
		return rpc.Caller{Role: certs.Role(user.Role), Name: user.Name, By: user.How}, err
	}
}

// Act implements httpd.Operators. Calls are authorized and audited like those of remote clients.
func (c *Console) Act(ctx context.Context, who httpd.User, from, method string,
	req, resp proto.Message) error {
	// Splits belong to the service Percolator, which the transport performs. The other calls belong
	// to Admin and use its in-process connection.
	caller := rpc.Caller{Role: certs.Role(who.Role), Name: who.Name, By: who.How, From: from}
	parts := c.cfg.Parts()
	if parts == nil {
		return unavailable(cmp.Or(c.cfg.Ready(ctx), ErrStarting))
	}
	_, err := c.guard().Call(ctx, caller, method, req, func() (any, error) {
		if split, ok := req.(*pb.SplitTabletRequest); ok {
			return nil, parts.Transport.SplitTablet(ctx, split.Table, string(split.Row))
		}
		return nil, parts.Admin.Invoke(ctx, method, req, resp)
	})
	return asRefusal(err)
}

// asRefusal converts the error of a call for HTTP, with its text, which the page displays: a
// missing permission to status 403, a node that is unavailable or overloaded and any error that is
// no *txn.ServerError to 503, any other to 400.
func asRefusal(err error) error {
	var refused *txn.ServerError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &refused), refused.Code == pb.Error_CODE_UNAVAILABLE,
		refused.Code == pb.Error_CODE_OVERLOADED:
		return unavailable(err)
	case refused.Code == pb.Error_CODE_PERMISSION:
		return &httpd.Refusal{
			Status: http.StatusForbidden, Code: httpd.CodePermission, Text: refused.Message,
		}
	}
	return &httpd.Refusal{
		Status: http.StatusBadRequest, Code: httpd.CodeInvalid, Text: refused.Message,
	}
}

// unavailable returns a retryable refusal.
func unavailable(err error) *httpd.Refusal {
	text := "the cluster has not answered: " + err.Error() +
		"; try again, or use the command line with a certificate, which needs no quorum to log in"
	return &httpd.Refusal{
		Status: http.StatusServiceUnavailable, Code: httpd.CodeUnavailable, Text: text,
	}
}
