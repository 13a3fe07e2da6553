package node

import (
	"cmp"
	"time"

	"go.opentelemetry.io/otel/trace"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/cluster/join"
	"github.com/percolator-go/percolator/cluster/peer"
	"github.com/percolator-go/percolator/internal/memory"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/version"
	"github.com/percolator-go/percolator/store"
)

// Parts are the parts of a node that a test replaces; package percolatortest does it for
// users. The zero value replaces none. A node only reads them. The functions are called
// on its goroutines, some at the same time, from Open until Close returns.
type Parts struct {
	// Store is used instead of one that the node opens. Close leaves it open, so that
	// another node may go on with it.
	Store *store.Store
	// Transport wraps the transport of the node's own DB and of its observers; remote
	// clients' is left as it is.
	Transport func(txn.Transport) txn.Transport
	// Oracle gets each request of a tablet to the oracle: it calls ask, at once or later
	// on any goroutine, or fail. It must not block.
	Oracle func(ask func(), fail func(error))
	// Versions are those that the node knows, as another build would; zero: this build's.
	Versions version.Range
	// Clock is the oracle's; nil: time.Now.
	Clock func() time.Time
	// Stopped has Raft's clock on this node stand still while it says so; nil: never.
	Stopped func() bool
	// Traces has what becomes of the node's spans, instead of the configured exporter.
	Traces trace.TracerProvider
	// Link carries messages to the other nodes; nil: the remoting, if the configuration
	// asks for other nodes. The node closes it.
	Link func(self peer.Self) (peer.Link, error)
	// Members is who the other nodes are, from this one on; nil: gossip, if the
	// configuration asks for other nodes.
	Members func(self cluster.Member) (cluster.Members, error)
	// Contact reaches other nodes before this one belongs to a cluster, by the addresses
	// that they listen at, and makes the door known to them at its own; nil: gRPC.
	// Nothing is bound then, and Listen, if it is empty, must not be needed.
	Contact func(listen string, door pb.MembershipServer) join.Contact
}

// store is the given one, or one as cfg says.
func (p Parts) store(cfg Config) (*store.Store, error) {
	if p.Store != nil {
		return p.Store, nil
	}
	bound := memory.Find(cfg.Memory)
	sizes := store.SizesFor(bound.Bytes)
	cfg.Logger.Info("node: memory", "bound", bound.Bytes, "from", bound.From, "heap", memory.Held(),
		"memtable", cmp.Or(cfg.Store.MemTableSize, sizes.MemTable), "table", sizes.Table)
	return store.Open(store.Options{
		Versions: p.Versions,
		Memory:   bound.Bytes, Dir: cfg.Dir, LogDir: cfg.LogDir, InMemory: cfg.Store.InMemory,
		Logger:       cfg.Logger,
		MemTableSize: cfg.Store.MemTableSize, MinFreeBytes: cfg.Store.MinFreeBytes,
		SyncDelay: cfg.Store.SyncDelay,
	})
}

// wrap returns the transport of the node's own client, as a test wants it.
func (p Parts) wrap(t txn.Transport) txn.Transport {
	if p.Transport == nil {
		return t
	}
	return p.Transport(t)
}
