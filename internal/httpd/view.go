package httpd

import (
	"net/http"
	"slices"
	"sync"

	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// Filtering of answers by the user's permissions: HTTP hides what the user's gRPC calls would hide.
// A user who has not logged in sees what everybody may see.

// View filters answers for one user.
type View interface {
	// Key returns a key that is equal for views that hide the same; empty means nothing is hidden.
	Key() string
	// HidesKeys reports whether the row keys of the table are hidden.
	HidesKeys(table uint32) bool
	// Narrow returns a copy of the message without hidden parts; nil if nothing is left.
	Narrow(m proto.Message) proto.Message
}

// everything hides nothing.
type everything struct{}

func (everything) Key() string                          { return "" }
func (everything) HidesKeys(uint32) bool                { return false }
func (everything) Narrow(m proto.Message) proto.Message { return m }

// viewOf returns the view of the request's user. It looks a token up only if something is hidden
// from users without one. A token that is invalid, or cannot be looked up now, counts as none.
func (l *logins) viewOf(req *http.Request) View {
	if l.view == nil {
		return everything{}
	}
	v := l.view(User{})
	if v.Key() == "" {
		return v
	}
	if user, err := l.identify(req, l.tokenOf(req)); err == nil {
		return l.view(user)
	}
	return v
}

// views caches an answer of the cluster by view, each filled at its first request.
type views struct {
	mu    sync.Mutex
	byKey map[string]clusterNews // at most one entry per name with grants
}

// seen returns the answer filtered by v.
func (w *clusterWatch) seen(n clusterNews, v View) clusterNews {
	key := v.Key()
	if key == "" || n.views == nil {
		return n
	}
	n.views.mu.Lock()
	defer n.views.mu.Unlock()
	out, ok := n.views.byKey[key]
	if !ok {
		out = clusterNews{at: n.at, err: n.err}
		if n.status != nil {
			out.status, _ = v.Narrow(n.status).(*pb.ClusterStatusResponse)
		}
		if tables, ok := v.Narrow(&pb.TablesResponse{Tables: n.tables}).(*pb.TablesResponse); ok {
			out.tables = slices.DeleteFunc(tables.Tables, (*pb.Table).GetHidden)
		}
		out = w.encoded(out)
		n.views.byKey[key] = out
	}
	return out
}
