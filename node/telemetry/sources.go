package telemetry

import (
	"context"
	"time"

	"github.com/percolator-go/percolator/actors/expirer"
	"github.com/percolator-go/percolator/actors/lockd"
	"github.com/percolator-go/percolator/actors/observer"
	"github.com/percolator-go/percolator/actors/oracle"
	"github.com/percolator-go/percolator/actors/tablet"
	"github.com/percolator-go/percolator/actors/tablet/replicas"
	"github.com/percolator-go/percolator/actors/tablet/snapshot"
	"github.com/percolator-go/percolator/actors/tablet/writers"
	"github.com/percolator-go/percolator/actors/timers"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/cluster/liveness"
	"github.com/percolator-go/percolator/cluster/peer"
	"github.com/percolator-go/percolator/cluster/remoting"
	"github.com/percolator-go/percolator/cluster/route"
	"github.com/percolator-go/percolator/internal/gateway"
	"github.com/percolator-go/percolator/internal/httpd"
	"github.com/percolator-go/percolator/internal/rpc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/version"
	"github.com/percolator-go/percolator/store"
)

// Sources are the parts of a node that telemetry reads. Fields are required unless stated
// otherwise.
type Sources struct {
	// Self is the id of the node, Started the time of its start.
	Self    uint64
	Started time.Time
	// InMemory reports that the store has no disk.
	InMemory bool
	// Now returns the time by the oracle's clock.
	Now func() time.Time
	// Status gathers the status of the node. It bounds its own waits.
	Status func() *pb.NodeStatusResponse

	Router  *route.Router
	Oracles *route.Oracles
	Peers   *cluster.PeerNodes
	// Link and Remoting are nil if the node runs alone; Remoting also if a test replaces the link.
	Link     *peer.Peers
	Remoting *remoting.Link
	Liveness *liveness.Node
	Client   *txn.Client
	Store    *store.Store
	Gate     *version.Gate
	Policy   *cluster.PolicyView

	Tablets   Tablets
	Observers Observers
	Jobs      Jobs
	// Oracle, Lockd, Server, HTTP and Gateway return nil while the part does not run.
	Oracle  func() *oracle.Oracle
	Lockd   func() *lockd.Lockd
	Server  func() *rpc.Server
	HTTP    func() *httpd.Server
	Gateway func() *gateway.Server
}

// Tablets are the tablets of the node and their shared parts.
type Tablets struct {
	// Leading returns the statuses of the tablets led here that answer before ctx ends.
	Leading   func(ctx context.Context) []*pb.StatusResponse
	Measured  *tablet.Metrics // the histograms that all replicas share
	Writers   *writers.Pair   // the log actor and the state actor
	Snapshots *snapshot.Sender
	Replicas  *replicas.Set
}

// Observers are the observers that the node runs.
type Observers interface {
	Status() []*pb.ObserverStatus
	Stats() []observer.Stats
	// WorkerRuns returns, for each observer of workers, its name, the number and the total duration
	// of its runs and the number of its failures; and the number of workers that report to this
	// node.
	WorkerRuns() (runs []*pb.ObserverStatus, reporting int)
	// States returns the notifications that wait in the whole cluster, and the age of that answer;
	// ok is false before the first answer.
	States() (states []*pb.ObserverState, age time.Duration, ok bool)
}

// Jobs are the jobs of meta's leader.
type Jobs interface {
	Timers() *timers.Stats
	Expired() *expirer.Stats
	// Expiry returns the rules of expiry; nil if the job does not run here.
	Expiry() *pb.ExpiryStatus
	// Schedules returns the schedules of backups; nil if the archiver does not run here.
	Schedules() []*pb.BackupSchedule
	// Offsets returns the offsets of the nodes' clocks as placement has last measured each.
	Offsets() map[uint64]time.Duration
}
