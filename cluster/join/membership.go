package join

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/internal/version"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/store"
)

// This file is the server's side of the door: what this node tells and promises others,
// on the goroutines of the Membership service, many at a time. Enter, Seek and Upkeep
// (joining.go, founding.go) ask others on goroutines of the node. Both sides meet in what
// is heard of others (heard.go) and in its mutex, which is never held during a
// call to another node; what must survive a crash is Self's.

// ErrOtherCluster reports that the node belongs to another cluster than the one that it asks.
var ErrOtherCluster = errors.New("join: the node belongs to another cluster")

// Contact asks another node's Membership service, by its Listen address. GRPCContact is
// the real one.
type Contact interface {
	Hello(ctx context.Context, addr string, req *pb.HelloRequest) (*pb.HelloResponse, error)
	Join(ctx context.Context, addr string, req *pb.JoinRequest) (*pb.JoinResponse, error)
	Found(ctx context.Context, addr string, req *pb.FoundRequest) (*pb.FoundResponse, error)
}

// Registry is what a node of a cluster needs to let others in. meta.Registry is the real
// one.
type Registry interface {
	// Register records an incarnation of a node in meta. Errors: ErrStaleIncarnation,
	// ErrDuplicateNode, or that it was not possible now.
	Register(ctx context.Context, r *wire.NodeRecord) error
	// Contacts returns what a node that joins must know: the nodes, and where meta is.
	Contacts(ctx context.Context) (*pb.JoinResponse, error)
}

// MembershipConfig is what a Membership needs.
type MembershipConfig struct {
	Self    *Self
	Contact Contact
	// Join are the Listen addresses of nodes, as the operator has given them.
	Join []string
	// Expect is how many fresh nodes found a cluster together; at most 1: this one does
	// not wait for others.
	Expect int
	// Addresses are where others reach this node.
	Addresses *pb.NodeAddresses
	Labels    map[string]string
	Version   string
	// Gate says which versions this build knows, and what the cluster has agreed on.
	Gate *version.Gate
	// Voters are the nodes that this one votes with, by what its store has of Raft
	// groups; it may be among them.
	Voters []uint64
	// Waiting is told why a node that comes back has to wait; may be nil.
	Waiting func(why string)
	// Discards is called when the replicas of this node have to be discarded, as Self.Discards
	// says from then on; may be nil. It may wait until ctx ends.
	Discards func(ctx context.Context)
	// Bootstrap adds the first tablets' state to the batch that begins a cluster.
	Bootstrap func(b *store.Batch, node uint64)
	// Clock is this node's clock; nil: time.Now. A fresh node whose clock is off from the
	// others' by more than MaxClockOff neither joins nor founds; 0: clocks are not
	// compared.
	Clock       func() time.Time
	MaxClockOff time.Duration
	// Upkeep is the time between two looks at who is in the cluster, for the next start;
	// default 30 s.
	Upkeep time.Duration
	Logger *slog.Logger // nil: discarded
}

// The door's intervals and timeouts.
const (
	roundPause    = 250 * time.Millisecond // between two rounds of questions to all addresses
	callTimeout   = 2 * time.Second        // how long one answer is waited for
	freshFor      = 3 * time.Second        // for how long an answer of a fresh node counts
	defaultUpkeep = 30 * time.Second
	// rankPause is how much longer each next node waits before it founds instead of those
	// before it.
	rankPause = 3 * time.Second
	// comeBackPause is how long a node that comes back looks for one that registers it.
	comeBackPause = 2 * time.Second
	// duplicatePause is how long it asks again when another process seems to have its
	// identity: its own last one may just have ended.
	duplicatePause = 15 * time.Second
	logPause       = 30 * time.Second // between two lines that say the same
)

// Membership brings a node into a cluster (Enter) and lets others in: it serves Membership from
// before the node belongs to a cluster until it stops. The package's documentation says
// how several fresh nodes found a cluster together.
//
// The mutex guards registry and said. attempts and what follows belong to the
// goroutine of Enter, which also founds a cluster.
type Membership struct {
	pb.UnimplementedMembershipServer
	cfg   MembershipConfig
	heard *heard

	mu       sync.Mutex
	registry Registry                              // nil: not open yet
	reached  func(node, incarnation uint64) uint64 // see ReachedBy; may be nil
	said     map[string]time.Time                  // what was logged within logPause, and when

	registered atomic.Bool   // this incarnation, through the registry
	again      chan struct{} // capacity 1: Upkeep is to look at once who is in the cluster

	attempts   uint64 // to found a cluster, by this process
	complete   string // the set of fresh nodes that is expected, and since when it is complete
	completeAt time.Time
	loneSince  time.Time // nodes that wait for each other are all that answer; zero: they are not
}

// NewMembership returns a closed door: it answers Hello but lets nobody in before Open.
func NewMembership(cfg MembershipConfig) *Membership {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Waiting == nil {
		cfg.Waiting = func(string) {}
	}
	if cfg.Discards == nil {
		cfg.Discards = func(context.Context) {}
	}
	cfg.Upkeep = cmp.Or(cfg.Upkeep, defaultUpkeep)
	if cfg.Gate == nil {
		cfg.Gate = version.NewGate(version.Known(), version.Unnumbered,
			func(version.Number) error { return nil })
	}
	return &Membership{
		cfg: cfg, heard: newHeard(cfg.Self.Identity().NodeID, freshFor),
		said:  map[string]time.Time{},
		again: make(chan struct{}, 1),
	}
}

// LookAgain makes Upkeep note at once who is in the cluster, because somebody has come.
// It never blocks.
func (d *Membership) LookAgain() {
	select {
	case d.again <- struct{}{}:
	default:
	}
}

// Open lets others in through r from now on.
func (d *Membership) Open(r Registry) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.registry = r
}

// Hello implements pb.MembershipServer. It says who this node is and, while it is fresh,
// which other fresh nodes it has heard of. To one of the own cluster that tells its
// starts it also says whether they are known; that note is durable before the answer goes
// out.
func (d *Membership) Hello(_ context.Context, req *pb.HelloRequest) (*pb.HelloResponse, error) {
	id := d.cfg.Self.Identity()
	if err := d.admitUnnumbered(id, req); err != nil {
		return nil, joinStatus(err)
	}
	start, reached, err := d.judge(id, req)
	if err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	r := &pb.HelloResponse{
		Start: start, LogReached: reached, ClusterId: id.ClusterID, NodeId: id.NodeID, Incarnation: id.Incarnation,
		Addresses: d.cfg.Addresses,
		Expect:    uint32(max(d.cfg.Expect, 0)), Version: d.cfg.Version,
		UnixMs: d.clock().UnixMilli(),
	}
	if !id.Fresh() {
		r.Agreed = wire.AgreedPB(d.cfg.Gate.Agreed())
		if req.ClusterId == id.ClusterID {
			d.heard.fromMember(req.NodeId, req.Addresses)
		}
		return r, nil
	}
	// Who has founded or joined the cluster meanwhile that this node expects is asked back, too.
	if req.ClusterId == "" || (d.cfg.Expect > 1 && int(req.Expect) == d.cfg.Expect) {
		d.heard.fromFresh(req.NodeId, req.Addresses.GetListen())
	}
	for _, f := range d.heard.recent(func(f *freshNode) time.Time { return f.heard }) {
		r.Fresh = append(r.Fresh, f.node)
	}
	return r, nil
}

// admitUnnumbered refuses to answer a node of the own cluster whose build knows of no
// versions, once the cluster is at a later one: such a build would take any answer for a
// leave to vote. Other builds judge by the answer themselves.
func (d *Membership) admitUnnumbered(id Identity, req *pb.HelloRequest) error {
	if id.Fresh() || req.ClusterId != id.ClusterID || req.Versions != nil {
		return nil
	}
	return d.cfg.Gate.Agreed().Admit(wire.Versions(nil))
}

// judge confirms the start of the node that asks, if it is of the same cluster and tells
// its starts; otherwise it has nothing to say (UNSPECIFIED). With BEHIND it returns how far the
// node's log had come.
func (d *Membership) judge(id Identity,
	req *pb.HelloRequest) (start pb.HelloResponse_Start, reached uint64, err error) {
	if id.Fresh() || req.ClusterId != id.ClusterID || len(req.Starts) == 0 ||
		req.NodeId == id.NodeID {
		return pb.HelloResponse_START_UNSPECIFIED, 0, nil
	}
	// It is noted only once it has discarded its replicas, and asks again.
	if reached = d.behind(req.NodeId, req.Incarnation, req.LogReached); reached > 0 {
		return pb.HelloResponse_START_BEHIND, reached, nil
	}
	confirmed, err := d.cfg.Self.Confirm(req.NodeId, req.Incarnation, req.Starts)
	if err != nil || !confirmed {
		return pb.HelloResponse_START_UNKNOWN, 0, err
	}
	return pb.HelloResponse_START_CONFIRMED, 0, nil
}

// Met returns the addresses at which nodes of the cluster gossip, as they have told this
// process: newer than what it knew when it started.
func (d *Membership) Met() []string { return d.heard.gossiping() }

// Join implements pb.MembershipServer: it registers the caller in meta and returns whom
// it must know. The calls to the registry may take long, so mu is not held.
func (d *Membership) Join(ctx context.Context, req *pb.JoinRequest) (*pb.JoinResponse, error) {
	id := d.cfg.Self.Identity()
	d.mu.Lock()
	registry := d.registry
	d.mu.Unlock()
	switch {
	case id.Fresh():
		return nil, status.Error(codes.Unavailable, "this node belongs to no cluster yet")
	case req.ClusterId != "" && req.ClusterId != id.ClusterID:
		d.cfg.Logger.Warn("a node of another cluster was refused", "its_cluster", req.ClusterId,
			"its_address", req.Addresses.GetListen())
		return nil, joinStatus(fmt.Errorf("%w: it is of %s, this is %s", ErrOtherCluster,
			req.ClusterId, id.ClusterID))
	case d.cfg.Self.declaredDead(req.NodeId):
		return nil, joinStatus(fmt.Errorf("%w: node %d was declared dead when the cluster was "+
			"recovered without it: delete its directory, and join with an empty one",
			cluster.ErrForgotten, req.NodeId))
	case registry == nil:
		return nil, status.Error(codes.Unavailable, "this node is starting")
	}
	err := registry.Register(ctx, &wire.NodeRecord{
		NodeId: req.NodeId, Incarnation: req.Incarnation, Labels: req.Labels, Version: req.Version,
		Versions: req.Versions,
		Listen:   req.Addresses.GetListen(), Peer: req.Addresses.GetPeer(),
		Gossip: req.Addresses.GetGossip(), Http: req.Addresses.GetHttp(),
		Starts: req.Starts,
	})
	if err != nil {
		d.cfg.Logger.Warn("a node was not let in", "node", req.NodeId, "incarnation",
			req.Incarnation,
			"its_address", req.Addresses.GetListen(), "error", err)
		return nil, joinStatus(err)
	}
	r, err := registry.Contacts(ctx)
	if err != nil {
		return nil, joinStatus(err)
	}
	r.ClusterId, r.Agreed = id.ClusterID, wire.AgreedPB(d.cfg.Gate.Agreed())
	return r, nil
}

// Found implements pb.MembershipServer: it promises another node that it may found the
// cluster, or takes such a promise back. Either is durable before the answer.
func (d *Membership) Found(_ context.Context, req *pb.FoundRequest) (*pb.FoundResponse, error) {
	id := d.cfg.Self.Identity()
	named := false
	for _, node := range req.Nodes {
		named = named || node == id.NodeID
	}
	// A founder with another idea of who belongs together must not get a promise.
	if !named || req.Founder == 0 || req.Founder == id.NodeID ||
		len(req.Nodes) != int(req.Expect) || int(req.Expect) != d.cfg.Expect {
		return nil, status.Error(codes.FailedPrecondition, "this node does not expect that cluster")
	}
	if req.Withdraw {
		return &pb.FoundResponse{}, d.cfg.Self.Withdraw(req.Founder, req.Attempt)
	}
	holder, err := d.cfg.Self.Promise(req.Founder, req.Attempt)
	if err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	return &pb.FoundResponse{Granted: holder == req.Founder, Founder: holder}, nil
}

// refusals pairs the errors of Join that waiting does not help with the codes they travel
// by. Any other error travels as Unavailable.
var refusals = []struct {
	code codes.Code
	err  error
}{
	{codes.FailedPrecondition, ErrOtherCluster},
	{codes.AlreadyExists, cluster.ErrDuplicateNode},
	{codes.OutOfRange, cluster.ErrStaleIncarnation},
	{codes.NotFound, cluster.ErrForgotten},
	{codes.Aborted, version.ErrIncompatible},
}

// joinStatus returns the gRPC status by which an error travels.
func joinStatus(err error) error {
	for _, r := range refusals {
		if errors.Is(err, r.err) {
			return status.Error(r.code, err.Error())
		}
	}
	return status.Error(codes.Unavailable, err.Error())
}

// joinError undoes joinStatus.
func joinError(err error) error {
	for _, r := range refusals {
		if status.Code(err) == r.code {
			return &refusal{text: status.Convert(err).Message(), kind: r.err}
		}
	}
	return err
}

// refusal is another node's refusal, in its words, and which error it stands for.
type refusal struct {
	text string
	kind error
}

func (r *refusal) Error() string { return r.text }
func (r *refusal) Unwrap() error { return r.kind }
