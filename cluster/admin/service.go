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
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/version"
	"github.com/percolator-go/percolator/internal/wire"
)

// This file holds the Service and what its methods share. Methods run on their callers'
// goroutines, many at a time.

// Config is what a Service works with. All of it stays the node's.
type Config struct {
	Self uint64 // this node
	// Meta's records, by topic: orders are written there, and whoever carries them out reads
	// them there.
	Nodes     *meta.NodeTable
	Moves     *meta.Moves
	Merges    *meta.Merges
	Catalogue *meta.Observers
	Backfills *meta.BackfillRecords
	Policy    *meta.Policy
	History   *meta.History
	Restores  *meta.Restores
	Tokens    *meta.Tokens
	Schedules *meta.Schedules
	Schema    *meta.Schema
	// Recoveries are those from the loss of a quorum.
	Recoveries *meta.Recoveries
	// Where tablets are, and the way to one replica; who is alive, by gossip.
	Router  *route.Router
	Carrier *route.Carrier
	Members cluster.Members
	// The rest of the node.
	Jobs   *Jobs // that clients report to this node
	Node   Node
	Gate   *version.Gate
	Logger *slog.Logger
}

// Node is what the Service needs the rest of its node for.
type Node interface {
	// Timestamp returns a fresh timestamp of the oracle.
	Timestamp(ctx context.Context) (mvcc.Timestamp, error)
	// ReplayParked has an observer run again for all that is parked.
	ReplayParked(ctx context.Context, observer string) (replayed uint64, err error)
	// ReplayRow has an observer run again for one row that is parked.
	ReplayRow(ctx context.Context, observer, row string) error
	// Restore writes records of a backup.
	Restore(ctx context.Context, records []mvcc.RestoredCell) error
	// SetTimers sets timers of a restore, in one transaction.
	SetTimers(ctx context.Context, timers []mvcc.Timer) error
	// PendingTimers returns timers as of the timestamp, from the row on, and where to go on;
	// PendingWeak the weak notifications of a column that wait.
	PendingTimers(ctx context.Context, at mvcc.Timestamp, from string) ([]*pb.PendingNotification, string, error)
	PendingWeak(ctx context.Context, column mvcc.ObservedColumn, from string) ([]*pb.PendingNotification, string, error)
	// Place has placement look at the cluster soon, if this node leads meta.
	Place()
	// WakeBackups has this node look for backups that are due, if it leads meta. Without it that
	// follows within seconds.
	WakeBackups()
	// WakeBackfills has whoever leads meta look for back-fills soon. It is a hint.
	WakeBackfills()
	// ApplyCatalogue returns when every node that is alive has applied the newest catalogue
	// and policy.
	ApplyCatalogue(ctx context.Context) error
	// ReadPolicy reads the policy from meta, LearnPolicy takes note of one that was read.
	ReadPolicy(ctx context.Context) (*pb.Policy, error)
	LearnPolicy(p *pb.Policy) error
	// CheckHistory refuses a history that is too short for this node's observers.
	CheckHistory(history time.Duration) error
	// Leaders returns what tablets' leaders have said of themselves within the last age.
	Leaders(ctx context.Context, age time.Duration) ([]*pb.StatusResponse, error)
	// PlacementStatus returns what placement says of itself on the node that leads meta,
	// nil if it has not answered.
	PlacementStatus(ctx context.Context) *pb.PlacementStatus
	// NodeStatus returns what a node says of itself, this one or another.
	NodeStatus(ctx context.Context, node uint64) (*pb.NodeStatusResponse, error)
	// Clients returns the connections of clients to a node, this one or another.
	Clients(ctx context.Context, node uint64) ([]*pb.ClientConnection, error)
	// Disconnect closes connections of clients to a node, and returns how many.
	Disconnect(ctx context.Context, node uint64, req *pb.DisconnectClientRequest) (uint32, error)
	// ObserverStates returns what waits for observers, and what all nodes do about it.
	ObserverStates(ctx context.Context) ([]*pb.ObserverState, error)
	// Metrics writes the node's metrics as /metrics has them.
	Metrics(w io.Writer) error
	// LogLevel is the level of the node's log, which may be changed; nil: it cannot be.
	LogLevel() *slog.LevelVar
}

// Service implements pb.AdminServer. Its methods run on their callers' goroutines, many at
// a time. Its only state is nodes, which has its own lock.
type Service struct {
	pb.UnsafeAdminServer
	cfg   Config
	nodes LastAnswer[[]*wire.NodeRecord] // the node table as meta had it
	// ask is the carrier's AskReplica; tests replace it.
	ask func(ctx context.Context, node uint64, req *pb.TabletRequest) (*pb.TabletResponse, error)
}

var _ pb.AdminServer = (*Service)(nil)

// New returns a Service.
func New(cfg Config) *Service {
	return &Service{cfg: cfg, ask: cfg.Carrier.AskReplica}
}

// refuse returns the refusal of a request that is wrong in itself, or at this time.
func refuse(format string, args ...any) error {
	return &txn.ServerError{Code: pb.Error_CODE_INVALID, Message: fmt.Sprintf(format, args...)}
}

// descriptor returns the tablet as the tablet map has it, read anew if so wished or if
// this node does not know the tablet.
func (s *Service) descriptor(ctx context.Context, tablet uint64,
	anew bool) (*pb.TabletDescriptor, error) {
	if d := s.cfg.Router.Descriptor(tablet); d != nil && !anew {
		return d, nil
	}
	// Shared with whoever else reads the map just now.
	if err := s.cfg.Router.Refresh(ctx); err != nil {
		return nil, coded.Errorf("admin", "read the tablet map: %w", err)
	}
	d := s.cfg.Router.Descriptor(tablet)
	if d == nil {
		return nil, refuse("there is no tablet %d", tablet)
	}
	return d, nil
}
