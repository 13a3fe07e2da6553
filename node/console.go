package node

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"net/http"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster/admin"
	"github.com/percolator-go/percolator/cluster/meta"
	"github.com/percolator-go/percolator/internal/certs"
	"github.com/percolator-go/percolator/internal/httpd"
	"github.com/percolator-go/percolator/internal/rpc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/node/config"
)

// console is what HTTP asks of the node for its pages: it answers their questions
// (questions.go), and here it lets people who have logged in change something. It owns
// nothing. HTTP's goroutines call it, from before the node has its parts: what needs them
// asks first whether the node serves.
//
// It implements httpd.Operators. A token is looked up in meta each time: there are few
// actions, and one that was revoked is refused at once, by every node.
type console struct{ node *Node }

var _ httpd.Operators = (*console)(nil)

// closed reports whether HTTP answers a request only to those who have logged in. The policy
// is there once the node serves; before, nobody can log in and HTTP tells little, but for
// profiles: they are for this machine only.
func (c *console) closed(req *http.Request) bool {
	if !c.node.serving.Load() {
		return c.node.cfg.HTTPLogin || strings.HasPrefix(req.URL.Path, "/debug/pprof/") &&
			!config.IsLoopback(req.RemoteAddr)
	}
	return c.node.policy.Now().GetHttpLogin()
}

// view returns what a user may be told: what calls with the same certificate or token would tell.
// Without certificates nobody can be told from anybody, and grants mean nothing.
func (c *console) view(who httpd.User) httpd.View {
	if c.node.certs.files == nil {
		return rpc.View{}
	}
	return c.guard().View(rpc.Caller{Role: certs.Role(who.Role), Name: who.Name, By: who.How})
}

// guard returns who decides which calls are made for the console.
func (c *console) guard() *rpc.Guard {
	return rpc.NewGuard(c.node.cfg.Logger, c.node.policy.LastRead, c.node.transport)
}

// Identify implements httpd.Operators.
func (c *console) Identify(ctx context.Context, token string,
	cert *x509.Certificate) (httpd.User, error) {
	// Before the node serves there may be no meta to look a token up in. A certificate would
	// do, but what could be done with it needs the cluster as well.
	if !c.node.serving.Load() {
		return httpd.User{}, unavailable(cmp.Or(c.node.ready(ctx), errStarting))
	}
	if token == "" {
		if c.node.certs.files.Revoked(cert) { // since its connection was made
			return httpd.User{}, &httpd.Refusal{
				Status: http.StatusUnauthorized, Code: httpd.CodeLogin, Text: "the certificate was revoked",
			}
		}
		role, name := certs.Identity(cert)
		c.node.certs.clients.Seen(rpc.Caller{Role: role, Name: name}, c.node.cfg.Logger, c.node.now)
		return httpd.User{
			Name: name, Role: string(role), How: rpc.ByCertificate,
			MayAct: role.Includes(certs.Operator),
		}, nil
	}
	return identify(ctx, c.node.meta.Tokens.Find, token, c.node.now())
}

// identify returns who has the token.
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

// Act implements httpd.Operators. It goes the way of remote clients' calls, except for the
// network: the same table says what the call takes, and it is audited.
func (c *console) Act(ctx context.Context, who httpd.User, from, method string,
	req, resp proto.Message) error {
	// Splits are of the service Percolator, not of Admin, and need no operator elsewhere. The
	// rest is Admin's, called in the process by the connection that it makes of itself.
	caller := rpc.Caller{Role: certs.Role(who.Role), Name: who.Name, By: who.How, From: from}
	t := c.node.transport
	_, err := c.guard().Call(ctx, caller, method, req, func() (any, error) {
		if split, ok := req.(*pb.SplitTabletRequest); ok {
			return nil, t.SplitTablet(ctx, split.Table, string(split.Row))
		}
		return nil, admin.Conn(t.admin).Invoke(ctx, method, req, resp)
	})
	return asRefusal(err)
}

// asRefusal is the error of a call as HTTP answers it: what the asker did wrong by a status of
// 4xx and the error's own text, what may be tried again by 503. Texts go to the page as
// they are, which shows them as text.
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

// unavailable says that something may be had later, or from another node.
func unavailable(err error) *httpd.Refusal {
	text := "the cluster has not answered: " + err.Error() +
		"; try again, or use the command line with a certificate, which needs no quorum to log in"
	return &httpd.Refusal{
		Status: http.StatusServiceUnavailable, Code: httpd.CodeUnavailable, Text: text,
	}
}
