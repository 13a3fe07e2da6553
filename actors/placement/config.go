package placement

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// This file declares what placement needs from others, and its configuration. Nothing here
// changes after Spawn. The methods of Meta and Cluster are called in turns, on the actor's
// goroutine; Send is called by several goroutines at once.

// Meta is the durable state that placement reads and writes. *meta.NodeTable,
// *meta.TabletMap and *meta.Moves together implement it.
type Meta interface {
	// Nodes returns the node table in order of node id.
	Nodes(ctx context.Context) ([]*wire.NodeRecord, error)
	// Tablets returns the tablet map.
	Tablets(ctx context.Context) ([]*pb.TabletDescriptor, error)
	// Report stores a tablet's own descriptor in the map, unless the map's has the same or a
	// higher epoch.
	Report(ctx context.Context, d *pb.TabletDescriptor) error
	// MoveOrders returns the operator's orders that have not ended.
	MoveOrders(ctx context.Context) ([]*pb.MoveTabletRequest, error)
	// EndMove removes an order, unless another one for the tablet has replaced it.
	EndMove(ctx context.Context, order *pb.MoveTabletRequest) error
	// SetNodeState sets a node's state. It fails unless the present state is to or one of from.
	SetNodeState(
		ctx context.Context, id uint64, to pb.NodeState, from ...pb.NodeState,
	) (*wire.NodeRecord, error)
	// ForgetNode removes the record of a node that is recorded as absent and holds no
	// replica.
	ForgetNode(ctx context.Context, id uint64) error
	// SetNodeGone records the oracle time since which the node's incarnation has been silent. A
	// since of 0 records that it has returned, and makes a gone node active. SetNodeGone changes
	// nothing if another incarnation has registered.
	SetNodeGone(ctx context.Context, id, incarnation, since uint64) (*wire.NodeRecord, error)
}

// Cluster observes the running cluster and carries out operations on it.
type Cluster interface {
	// Alive returns the nodes that gossip believes to be alive. It is only a hint.
	Alive() []uint64
	// Timestamp returns a fresh timestamp from the oracle.
	Timestamp(ctx context.Context) (mvcc.Timestamp, error)
	// Statuses returns the status of every replica that answered in time, leaders and
	// possibly others.
	Statuses(ctx context.Context) ([]*pb.StatusResponse, error)
	// AheadClocks returns the nodes whose clocks, at the last call of Statuses, were too
	// far ahead of the others' for timestamps to follow. Such a node cannot lead meta for
	// long, because the oracle runs where meta is led.
	AheadClocks() []uint64
	// FullDisks returns the nodes that, at the last call of Statuses, refused writes for lack of
	// disk space or of another resource for files.
	FullDisks() []uint64
	// DamagedStores returns the nodes whose stores were damaged at the last call of Statuses. They
	// still answer, but their data is lost.
	DamagedStores() []uint64
	// Send carries an operation to a tablet's leader. Until ctx ends it retries attempts
	// that certainly had no effect.
	Send(ctx context.Context, tablet uint64, req *pb.TabletRequest) (*pb.TabletResponse, error)
}

// Defaults of Config.
const (
	DefaultReplicas  = 3
	DefaultGoneAfter = 5 * time.Minute
	DefaultInterval  = 5 * time.Second
	DefaultBusy      = 250 * time.Millisecond
	DefaultRest      = time.Minute
)

const (
	maxChanging = 8               // limit of tablets with a learner; maxRepairing for repairs
	stepsAtOnce = 64              // steps sent concurrently
	maxIncoming = 3               // limit of learners on one node that have not caught up
	stepTimeout = 5 * time.Second // limit of one step, and of each other part of a turn
)

// Config configures placement. Meta and Cluster are required; other zero fields take their
// defaults.
type Config struct {
	Meta    Meta
	Cluster Cluster

	// Replicas is the number of replicas of each tablet: 1, 3 or 5. Tablets have fewer
	// while there are too few nodes.
	Replicas int
	// GoneAfter is the downtime of a node, in oracle time, after which its replicas are replaced.
	GoneAfter time.Duration
	// ForgetAfter is the downtime, in oracle time, after which the record of a node without
	// replicas is removed. Zero keeps records forever.
	ForgetAfter time.Duration
	Interval    time.Duration // pause after a turn with nothing to do
	// Busy is the pause after a turn that has changed something. While a change is incomplete it
	// doubles with every fourth idle turn, up to Interval.
	Busy time.Duration
	// Rest is the time after a step during which a tablet is not balanced again; ten times as long
	// after an operator's request.
	Rest   time.Duration
	Logger *slog.Logger
}

var errConfig = errors.New("placement: Meta, Cluster and a replica count of 1, 3 or 5 are required")

func (c Config) withDefaults() (Config, error) {
	c.Replicas = cmp.Or(c.Replicas, DefaultReplicas)
	c.GoneAfter = cmp.Or(c.GoneAfter, DefaultGoneAfter)
	c.Interval = cmp.Or(c.Interval, DefaultInterval)
	c.Busy = cmp.Or(c.Busy, DefaultBusy)
	c.Rest = cmp.Or(c.Rest, DefaultRest)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	// An even number would enlarge the quorum and tolerate no more failures.
	if c.Replicas%2 == 0 || c.Replicas < 1 || c.Replicas > maxReplicas {
		return c, errConfig
	}
	if c.Meta == nil || c.Cluster == nil {
		return c, errConfig
	}
	return c, nil
}

// maxReplicas is the largest value of Config.Replicas.
const maxReplicas = 5
