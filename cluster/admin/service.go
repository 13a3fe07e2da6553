package admin

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/cluster/meta"
	"github.com/percolator-go/percolator/cluster/route"
	"github.com/percolator-go/percolator/internal/coded"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/version"
	"github.com/percolator-go/percolator/internal/wire"
)

// The Service and what its methods share. Methods run on their callers' goroutines, many
// concurrently.

// Config configures a Service. The node owns all of it.
type Config struct {
	Self uint64 // this node
	// Meta's records, by topic: orders are written there, and read there by the jobs that carry
	// them out.
	*meta.Meta
	// The locations of tablets, access to single replicas, and gossip's members.
	Router  *route.Router
	Carrier *route.Carrier
	Members cluster.Members
	// Other parts of the node.
	Jobs   *Jobs // those that clients report to this node, and its creations of tables
	Client *txn.Client
	View   *cluster.PolicyView // the policy as this node knows it
	Node   Node
	Gate   *version.Gate
	Logger *slog.Logger
}

// Node is the Service's interface to other parts of its node.
type Node interface {
	// ObserverRun returns the last run of an observer for a row that a node remembers; nil if none does.
	ObserverRun(ctx context.Context, observer, row string) *pb.ObserverRun
	// Place wakes placement, if this node leads meta.
	Place()
	// WakeBackups makes this node check for due backups at once, if it leads meta. Without this
	// call the check follows within seconds.
	WakeBackups()
	// WakeExpiry makes this node read the tables' expiry at once, if it leads meta. Without this
	// call the read follows within seconds.
	WakeExpiry()
	// WakeBackfills makes the node that leads meta check for back-fills soon. It is a hint.
	WakeBackfills()
	// ApplyCatalogue returns when every live node has applied the newest catalogue and policy.
	ApplyCatalogue(ctx context.Context) error
	// Leaders returns the statuses of tablets' leaders, at most age old.
	Leaders(ctx context.Context, age time.Duration) ([]*pb.StatusResponse, error)
	// PlacementStatus returns placement's status on the node that leads meta, or nil without a
	// response.
	PlacementStatus(ctx context.Context) *pb.PlacementStatus
	// NodeStatus returns the status of a node, this one or another.
	NodeStatus(ctx context.Context, node uint64) (*pb.NodeStatusResponse, error)
	// Clients returns the connections of clients to a node, this one or another.
	Clients(ctx context.Context, node uint64) ([]*pb.ClientConnection, error)
	// Disconnect closes connections of clients to a node, and returns their number.
	Disconnect(ctx context.Context, node uint64, req *pb.DisconnectClientRequest) (uint32, error)
	// ObserverStates returns the pending work of observers, and what all nodes do about it.
	ObserverStates(ctx context.Context) ([]*pb.ObserverState, error)
	// Metrics writes the node's metrics in the format of /metrics.
	Metrics(w io.Writer) error
	// LogLevel is the level of the node's log; nil if it is fixed.
	LogLevel() *slog.LevelVar
}

// Service implements pb.AdminServer. Its methods run on their callers' goroutines, many
// concurrently. Its only state is nodes, which has its own lock.
type Service struct {
	pb.UnsafeAdminServer
	cfg   Config
	nodes LastAnswer[[]*wire.NodeRecord] // the node table as last read from meta
	// ask is cfg.Carrier.AskReplica; tests replace it.
	ask func(ctx context.Context, node uint64, req *pb.TabletRequest) (*pb.TabletResponse, error)
}

var _ pb.AdminServer = (*Service)(nil)

// New returns a Service.
func New(cfg Config) *Service {
	return &Service{cfg: cfg, ask: cfg.Carrier.AskReplica}
}

// refuse returns the rejection of a request that is invalid, or impossible at this time.
func refuse(format string, args ...any) error {
	return &txn.ServerError{Code: pb.Error_CODE_INVALID, Message: fmt.Sprintf(format, args...)}
}

// descriptor returns the tablet from the tablet map, refreshed on request or if this node does
// not know the tablet.
func (s *Service) descriptor(ctx context.Context, tablet uint64,
	anew bool) (*pb.TabletDescriptor, error) {
	if d := s.cfg.Router.Descriptor(tablet); d != nil && !anew {
		return d, nil
	}
	// Concurrent calls of Refresh share one read of the map.
	if err := s.cfg.Router.Refresh(ctx); err != nil {
		return nil, coded.Errorf("admin", "read the tablet map: %w", err)
	}
	d := s.cfg.Router.Descriptor(tablet)
	if d == nil {
		return nil, refuse("there is no tablet %d", tablet)
	}
	return d, nil
}
