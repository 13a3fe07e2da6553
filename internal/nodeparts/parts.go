// Package nodeparts opens nodes of which some parts are replaced, for the tests of this
// module and for package percolatortest, which does it for users: programs outside of the module
// cannot use the types here, so these are not part of package node.
//
// Package node stores its Opener here while it is initialised.
package nodeparts

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/trace"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/cluster/join"
	"github.com/percolator-go/percolator/cluster/peer"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/version"
	"github.com/percolator-go/percolator/node/config"
	"github.com/percolator-go/percolator/store"
)

// Parts are the parts of a node that a test replaces. The zero value replaces none. A node
// only reads them. The functions are called on its goroutines, some at the same time, from
// Open until the node's Close returns.
type Parts struct {
	// Store is used instead of one that the node opens. Close leaves it open, so that another node
	// can use it.
	Store *store.Store
	// SyncDelay is added after each sync of the store that the node opens.
	SyncDelay time.Duration
	// DuplicateHints has each hint of a dirty cell sent twice.
	DuplicateHints bool
	// Transport wraps the transport of the node's own DB and of its observers; the transport of
	// remote clients is not wrapped.
	Transport func(txn.Transport) txn.Transport
	// Oracle delivers each request of a tablet to the oracle: it calls ask, at once or later on any
	// goroutine, or fail. It must not block.
	Oracle func(ask func(), fail func(error))
	// Versions is the range of versions that the node supports, as another build would; zero means
	// this build's range.
	Versions version.Range
	// Clock is the oracle's; nil means time.Now.
	Clock func() time.Time
	// Uptime is the clock of promises between nodes; nil means the time since the machine was booted.
	Uptime func() time.Duration
	// Stopped stops Raft's clock on this node while it returns true; nil means never.
	Stopped func() bool
	// Traces receives the node's spans, instead of the configured exporter.
	Traces trace.TracerProvider
	// Link carries messages to the other nodes; nil means the remoting, if the configuration asks
	// for other nodes. The node closes it.
	Link func(self peer.Self) (peer.Link, error)
	// Members returns the list of the other nodes; self is this node; nil means gossip, if the
	// configuration names other nodes.
	Members func(self cluster.Member) (cluster.Members, error)
	// Contact returns the transport for calls to other nodes, by their listen addresses, before
	// this node belongs to a cluster, and serves the membership service membership at this node's own
	// address. Nil means gRPC. With a Contact the node binds no port but that of HTTP.
	Contact func(listen string, membership pb.MembershipServer) join.Contact
}

// Opener is package node's function that opens a node: it returns a *node.Node, which is any here
// because that package imports this one.
type Opener func(ctx context.Context, cfg config.Config, parts Parts) (any, error)

var opener Opener

// Set stores package node's Opener. It returns true, so that it can initialise a variable.
func Set(f Opener) bool {
	opener = f
	return true
}

// Open is node.Open with some parts of the node replaced. Node is node.Node.
func Open[Node any](ctx context.Context, cfg config.Config, parts Parts) (*Node, error) {
	n, err := opener(ctx, cfg, parts)
	if err != nil {
		return nil, err
	}
	return n.(*Node), nil
}
