package join

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/internal/coded"
	"github.com/percolator-go/percolator/internal/version"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/store"
)

// The server side of Membership: responses and promises to other nodes, on the goroutines of the
// Membership service, many concurrently. Enter, Seek and Upkeep (joining.go, founding.go) contact
// others on goroutines of the node. Both sides share heard (heard.go) and the mutex, which is
// never held during a call to another node; durable state belongs to Self.

// ErrOtherCluster reports that the node belongs to another cluster than the one that it
// contacted.
var ErrOtherCluster = errors.New("join: the node belongs to another cluster")

// Contact calls another node's Membership service at its Listen address. GRPCContact is the
// production implementation.
type Contact interface {
	Hello(ctx context.Context, addr string, req *pb.HelloRequest) (*pb.HelloResponse, error)
	Join(ctx context.Context, addr string, req *pb.JoinRequest) (*pb.JoinResponse, error)
	Found(ctx context.Context, addr string, req *pb.FoundRequest) (*pb.FoundResponse, error)
}

// Registry is the interface to meta that a member needs to admit others. meta.Registry is the
// production implementation.
type Registry interface {
	// Register records an incarnation of a node in meta. Errors: ErrStaleIncarnation,
	// ErrDuplicateNode, ErrForgotten, version.ErrIncompatible, or a temporary failure.
	Register(ctx context.Context, r *wire.NodeRecord) error
	// Contacts returns the data for a joining node: the nodes, and the location of meta.
	Contacts(ctx context.Context) (*pb.JoinResponse, error)
}

// MembershipConfig configures a Membership.
type MembershipConfig struct {
	Self    *Self
	Contact Contact
	// Join are the Listen addresses of nodes named by the operator.
	Join []string
	// Expect is the number of fresh nodes that found a cluster together. If Expect is at most 1,
	// this node waits to join one instead. If Join is empty, it founds one alone, whatever Expect.
	Expect int
	// Addresses are the addresses at which other nodes reach this one.
	Addresses *pb.NodeAddresses
	Labels    map[string]string
	Version   string
	Program   string // name and version of the program that links the library; may be empty
	// Gate contains the versions supported by this build and those agreed on by the cluster.
	Gate *version.Gate
	// Voters are the nodes that this one votes with, according to the Raft groups in its store;
	// it may be among them.
	Voters []uint64
	// Waiting is called with the reason why a returning node must wait; it may be nil.
	Waiting func(why string)
	// Discards is called when the replicas of this node must be discarded, as Self.Discards then
	// reports; it may be nil. It may block until ctx ends.
	Discards func(ctx context.Context)
	// Bootstrap adds the first tablets' state to the batch that founds a cluster.
	Bootstrap func(b *store.Batch, node uint64)
	// Clock is this node's clock. Defaults to time.Now. A fresh node whose clock differs from the
	// others' by more than MaxClockOff neither joins nor founds; 0 disables the comparison.
	Clock       func() time.Time
	MaxClockOff time.Duration
	// Upkeep is the interval between two updates of the stored contacts. Defaults to 30 s.
	Upkeep time.Duration
	Logger *slog.Logger // nil: discarded
}

// Intervals and timeouts of Membership.
const (
	roundPause    = 250 * time.Millisecond // pause between two rounds of requests to all addresses
	callTimeout   = 2 * time.Second        // timeout of Hello and Found; Join has twice as much
	soundTimeout  = time.Second            // timeout of sound, the first Hello of each round
	freshFor      = 3 * time.Second        // validity of a fresh node's response
	defaultUpkeep = 30 * time.Second
	// rankPause is the delay after which each next node founds if those before it have not.
	rankPause = 3 * time.Second
	// rejoinTimeout limits one round in which a returning node tries to be registered. After it the
	// node starts unregistered if its start is confirmed, and otherwise tries again.
	rejoinTimeout = 2 * time.Second
	// duplicatePause bounds the retries of a node while another process appears to have its
	// identity: its own previous process may only just have ended.
	duplicatePause = 15 * time.Second
	logPause       = 30 * time.Second // minimum time between two identical log lines
)

// Membership makes a node a member of a cluster (Enter) and admits others: it serves Membership
// from before the node belongs to a cluster until it stops. The package documentation explains how
// several new nodes found a cluster together.
//
// The mutex guards registry, reached and said. attempts and the following fields belong to the
// goroutine of Enter, which also founds a cluster.
type Membership struct {
	pb.UnimplementedMembershipServer
	cfg   MembershipConfig
	heard *heard

	mu       sync.Mutex
	registry Registry                              // nil before Open
	reached  func(node, incarnation uint64) uint64 // see ReachedBy; may be nil
	said     map[string]time.Time                  // texts logged within logPause, with their times

	registered atomic.Bool   // Register has registered this incarnation
	again      chan struct{} // capacity 1: makes Upkeep update the contacts at once

	attempts   uint64 // attempts of this process to found a cluster
	complete   string // ids of the fresh nodes in the last round; unchanged since completeAt
	completeAt time.Time
	loneSince  time.Time // since when all responding nodes wait for each other; zero if they do not
}

// NewMembership returns a Membership that responds to Hello but admits no node before Open.
func NewMembership(cfg MembershipConfig) *Membership {
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
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

// LookAgain makes Upkeep update its contacts at once, because a node has joined. It never blocks.
func (d *Membership) LookAgain() {
	select {
	case d.again <- struct{}{}:
	default:
	}
}

// Open admits other nodes through r from now on.
func (d *Membership) Open(r Registry) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.registry = r
}

// Hello implements pb.MembershipServer. It returns this node's identity and, while it is fresh,
// the fresh nodes that it knows. A caller of the same cluster that sends its starts also learns
// whether they are confirmed; that record is durable before the response is sent.
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
	// A node that has since founded or joined the expected cluster is contacted, too.
	if req.ClusterId == "" || (d.cfg.Expect > 1 && int(req.Expect) == d.cfg.Expect) {
		d.heard.fromFresh(req.NodeId, req.Addresses.GetListen())
	}
	for _, f := range d.heard.recent(func(f *freshNode) time.Time { return f.heard }) {
		r.Fresh = append(r.Fresh, f.node)
	}
	return r, nil
}

// admitUnnumbered rejects a node of the same cluster whose build has no versions once the cluster
// is at a later one: such a build would treat any response as permission to vote. Other builds
// decide by the response themselves.
func (d *Membership) admitUnnumbered(id Identity, req *pb.HelloRequest) error {
	if id.Fresh() || req.ClusterId != id.ClusterID || req.Versions != nil {
		return nil
	}
	return d.cfg.Gate.Agreed().Admit(wire.Versions(nil))
}

// judge confirms the start of the calling node, if it is of the same cluster and sends its
// starts; otherwise it returns UNSPECIFIED. With BEHIND it returns the known position of the
// node's log.
func (d *Membership) judge(id Identity,
	req *pb.HelloRequest) (start pb.HelloResponse_Start, reached uint64, err error) {
	if id.Fresh() || req.ClusterId != id.ClusterID || len(req.Starts) == 0 ||
		req.NodeId == id.NodeID {
		return pb.HelloResponse_START_UNSPECIFIED, 0, nil
	}
	// The caller must first discard its replicas: its start is recorded when it asks again.
	if reached = d.behind(req.NodeId, req.Incarnation, req.LogReached); reached > 0 {
		return pb.HelloResponse_START_BEHIND, reached, nil
	}
	confirmed, err := d.cfg.Self.Confirm(req.NodeId, req.Incarnation, req.Starts)
	if err != nil || !confirmed {
		return pb.HelloResponse_START_UNKNOWN, 0, err
	}
	return pb.HelloResponse_START_CONFIRMED, 0, nil
}

// Met returns the gossip addresses of nodes of the cluster received by this process: newer than
// those stored at its start.
func (d *Membership) Met() []string { return d.heard.gossiping() }

// Join implements pb.MembershipServer: it registers the caller in meta and returns the registry's
// contacts. The calls to the registry may take long, so mu is not held.
func (d *Membership) Join(ctx context.Context, req *pb.JoinRequest) (*pb.JoinResponse, error) {
	id := d.cfg.Self.Identity()
	d.mu.Lock()
	registry := d.registry
	d.mu.Unlock()
	switch {
	case id.Fresh():
		return nil, status.Error(codes.Unavailable, "the node asked belongs to no cluster yet")
	case req.ClusterId != "" && req.ClusterId != id.ClusterID:
		d.cfg.Logger.Warn("a node of another cluster was rejected", "its_cluster", req.ClusterId,
			"its_address", req.Addresses.GetListen())
		return nil, joinStatus(fmt.Errorf("%w: node %d is of cluster %s, the node that it asked is of %s",
			ErrOtherCluster, req.NodeId, req.ClusterId, id.ClusterID))
	case d.cfg.Self.declaredDead(req.NodeId):
		return nil, joinStatus(fmt.Errorf("%w: node %d was declared dead when the cluster was "+
			"recovered without it: delete its directory, and join with an empty one",
			cluster.ErrForgotten, req.NodeId))
	case registry == nil:
		return nil, status.Error(codes.Unavailable, "the node asked is starting")
	}
	err := registry.Register(ctx, &wire.NodeRecord{
		NodeId: req.NodeId, Incarnation: req.Incarnation, Labels: req.Labels, Version: req.Version,
		Program:  req.Program,
		Versions: req.Versions,
		Listen:   req.Addresses.GetListen(), Peer: req.Addresses.GetPeer(),
		Gossip: req.Addresses.GetGossip(), Http: req.Addresses.GetHttp(),
		Starts: req.Starts,
	})
	if err != nil {
		d.cfg.Logger.Warn("a node was not admitted", "node", req.NodeId, "incarnation",
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

// Found implements pb.MembershipServer: it promises another node that it may found the cluster,
// or withdraws such a promise. Either is durable before the response.
func (d *Membership) Found(_ context.Context, req *pb.FoundRequest) (*pb.FoundResponse, error) {
	id := d.cfg.Self.Identity()
	// A founder that expects other nodes must not get a promise.
	if !slices.Contains(req.Nodes, id.NodeID) || req.Founder == 0 || req.Founder == id.NodeID ||
		len(req.Nodes) != int(req.Expect) || int(req.Expect) != d.cfg.Expect {
		return nil, status.Error(codes.FailedPrecondition, "the node asked does not expect to found that cluster: "+
			"start all nodes with the same --bootstrap-expect")
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

// refusals maps the final errors of Join to their gRPC codes. Any other error is sent as
// Unavailable.
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

// joinStatus returns the gRPC status that carries an error.
func joinStatus(err error) error {
	for _, r := range refusals {
		if errors.Is(err, r.err) {
			return status.Error(r.code, err.Error())
		}
	}
	return status.Error(codes.Unavailable, err.Error())
}

// joinError is the inverse of joinStatus.
func joinError(err error) error {
	for _, r := range refusals {
		if status.Code(err) == r.code {
			return coded.Mark(errors.New(status.Convert(err).Message()), r.err)
		}
	}
	return err
}
