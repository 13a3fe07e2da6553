package placement

import (
	"context"
	"errors"
	"log/slog"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// Meta is what is durable; *cluster.Meta has it.
type Meta interface {
	// Nodes is the node table, by node id.
	Nodes(ctx context.Context) ([]*wire.NodeRecord, error)
	// Tablets is the tablet map.
	Tablets(ctx context.Context) ([]*pb.TabletDescriptor, error)
	// Report records what a tablet says of itself in the map, unless a higher epoch stands there.
	Report(ctx context.Context, d *pb.TabletDescriptor) error
	// MoveOrders are the moves that are ordered and not done.
	MoveOrders(ctx context.Context) ([]*pb.MoveTabletRequest, error)
	// EndMove removes an order.
	EndMove(ctx context.Context, order *pb.MoveTabletRequest) error
	// SetNodeState moves a node to a state, from one of those named.
	SetNodeState(ctx context.Context, id uint64, to pb.NodeState, from ...pb.NodeState) (*wire.NodeRecord, error)
	// ForgetNode removes the record of a node that is recorded as away and holds no replica.
	ForgetNode(ctx context.Context, id uint64) error
	// SetNodeGone records since when the incarnation has not been seen; 0: it is.
	SetNodeGone(ctx context.Context, id, incarnation, since uint64) (*wire.NodeRecord, error)
}

// Cluster is what can be seen and done now.
type Cluster interface {
	// Alive are the nodes that gossip believes to be alive: a hint.
	Alive() []uint64
	// Timestamp is a fresh timestamp of the oracle.
	Timestamp(ctx context.Context) (mvcc.Timestamp, error)
	// Statuses is what the tablets' leaders say, of those that answer in time; others may
	// be among them.
	Statuses(ctx context.Context) ([]*pb.StatusResponse, error)
	// AheadClocks are the nodes whose clocks were too far ahead of the others', when
	// Statuses was asked last, for timestamps to follow: they can't lead meta for long,
	// because the oracle is beside it.
	AheadClocks() []uint64
	// FullDisks are the nodes that took no writes for want of disk space, when Statuses
	// was asked last.
	FullDisks() []uint64
	// DamagedStores are the nodes whose stores were damaged, when Statuses was asked
	// last: they answer, but what they hold is lost.
	DamagedStores() []uint64
	// Send carries an operation to a tablet's leader and retries what was surely not
	// done, until ctx ends.
	Send(ctx context.Context, tablet uint64, req *pb.TabletRequest) (*pb.TabletResponse, error)
}

// Defaults of Config.
const (
	DefaultReplicas    = 3
	DefaultGoneAfter   = 5 * time.Minute
	DefaultInterval    = 5 * time.Second
	DefaultBusy        = 250 * time.Millisecond
	DefaultRest        = time.Minute
	DefaultMaxChanging = 8
	DefaultMaxIncoming = 3
	DefaultTimeout     = 5 * time.Second
)

// Config is what placement is started with. Meta and Cluster are required; zero fields
// take the defaults.
type Config struct {
	Name    string // of the actor; default "placement"
	Meta    Meta
	Cluster Cluster

	Replicas    int           // of each tablet: 1, 3 or 5; fewer as long as there are too few nodes
	GoneAfter   time.Duration // how long a node may be away, by oracle time, before its replicas are replaced
	ForgetAfter time.Duration // how long a node without replicas may be away before its record is removed; 0: for ever
	Interval    time.Duration // between turns when there is nothing to do
	Busy        time.Duration // between turns otherwise
	Rest        time.Duration // how long a tablet is not balanced again after a step; ten times that after an order
	MaxChanging int           // most tablets with a learner at once
	MaxIncoming int           // most learners at once on a node that have not caught up
	Timeout     time.Duration // of one step
	Logger      *slog.Logger
}

var errConfig = errors.New("placement: Meta and Cluster are required, and 1, 3 or 5 replicas")

func (c Config) withDefaults() (Config, error) {
	if c.Name == "" {
		c.Name = "placement"
	}
	orDefault(&c.Replicas, DefaultReplicas)
	orDefault(&c.GoneAfter, DefaultGoneAfter)
	orDefault(&c.Interval, DefaultInterval)
	orDefault(&c.Busy, DefaultBusy)
	orDefault(&c.Rest, DefaultRest)
	orDefault(&c.MaxChanging, DefaultMaxChanging)
	orDefault(&c.MaxIncoming, DefaultMaxIncoming)
	orDefault(&c.Timeout, DefaultTimeout)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Meta == nil || c.Cluster == nil || c.Replicas%2 == 0 || c.Replicas < 1 || c.Replicas > maxReplicas {
		return c, errConfig
	}
	return c, nil
}

// maxReplicas is the largest target.
const maxReplicas = 5

func orDefault[T int | time.Duration](v *T, def T) {
	if *v == 0 {
		*v = def
	}
}
