package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"golang.org/x/net/netutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/percolator-go/percolator/actors/tablet"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/cluster/gossip"
	"github.com/percolator-go/percolator/cluster/join"
	"github.com/percolator-go/percolator/cluster/meta"
	"github.com/percolator-go/percolator/internal/certs"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/rpc"
	"github.com/percolator-go/percolator/store"
)

// joining is what a node has before it belongs to a cluster: its listeners, its own
// record, and the door by which it comes in and lets others in. In order: openJoining,
// enter, openGossip, open, and close.
//
// It owns the addresses, and which server answers at the client's. The goroutines of Open
// and Close call it. In flight may be one goroutine that looks for other nodes, or keeps
// the node's entry in meta, which quit ends, and the server that answers early.
type joining struct {
	cfg   Config
	files *certs.Files // nil: plain text
	self  *join.Self
	door  *join.Door

	listen  *handover        // nil: there is none
	ports   *gossip.Listener // nil: none, or gossip has it
	gossip  *gossip.Gossip   // nil: the node is alone
	contact *join.GRPCContact
	at      *pb.NodeAddresses // what others are told

	early       *grpc.Server // tells who this is until the node serves; nil: not any more
	earlyServed chan error

	upkeep sync.WaitGroup     // what goes on behind the node's back: Seek, then Upkeep
	end    context.CancelFunc // of it
}

// joiningParts are the parts of it that a test replaces.
type joiningParts struct {
	// contact reaches other nodes' doors, and makes this one reachable at the address; nil: gRPC.
	contact func(listen string, door pb.MembershipServer) join.Contact
	// alone: somebody else tells who the members are, so that nothing is bound for gossip.
	alone bool
	// clock is the node's; nil: time.Now.
	clock func() time.Time
	// http is what the HTTP listener has bound; empty: there is none.
	http string
	// waiting is told why the node has to wait until it may go on.
	waiting func(why string)
}

// openJoining binds the node's addresses and reads who it is; from then on the node
// tells others that, but lets nobody in.
func openJoining(cfg Config, files *certs.Files, st *store.Store,
	bootstrap func(*store.Batch, uint64), parts joiningParts) (*joining, error) {
	e := &joining{cfg: cfg, files: files, at: &pb.NodeAddresses{}, end: func() {}}
	var err error
	if e.self, err = join.OpenSelf(st); err != nil {
		return nil, err
	}
	if err := e.bind(parts); err != nil {
		return nil, errors.Join(err, e.close())
	}
	e.contact = join.NewGRPCContact(e.credentials())
	voters, err := votersWith(st)
	if err != nil {
		return nil, errors.Join(err, e.close())
	}
	c := join.DoorConfig{
		Voters: voters, Waiting: parts.waiting, Self: e.self, Contact: e.contact,
		Join: cfg.JoinAddrs(), Expect: cfg.Expect, Addresses: e.at, Labels: cfg.Labels,
		Version: Version(), Bootstrap: bootstrap, Logger: cfg.Logger,
		Clock: parts.clock, MaxClockOff: cfg.MaxClockAhead,
	}
	if parts.contact != nil {
		later := &lateContact{}
		c.Contact = later
		e.door = join.NewDoor(c)
		later.Contact = parts.contact(cfg.Listen, e.door)
		return e, nil
	}
	e.door = join.NewDoor(c)
	e.serveEarly()
	return e, nil
}

// votersWith are the nodes that vote in the Raft groups of which the store has a replica.
func votersWith(st *store.Store) (nodes []uint64, err error) {
	stored, err := tablet.StoredReplicas(st)
	if err != nil {
		return nil, fmt.Errorf("node: %w", err)
	}
	for _, s := range stored {
		for _, r := range s.Descriptor.GetReplicas() {
			if !r.Learner {
				nodes = append(nodes, r.NodeId)
			}
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes), nil
}

// openCerts loads the node's certificates, before anything is made or bound; nil: it has none.
func openCerts(cfg Config) (*certs.Files, error) {
	if cfg.Certs == "" {
		return nil, nil
	}
	files, err := certs.Open(certs.NodeSource(cfg.Certs), cfg.Logger)
	if err != nil {
		return nil, fmt.Errorf("node: %w", err)
	}
	if cfg.GossipAddr() != "" {
		// else found when the cluster has taken the node in
		if err := gossip.CheckKeys(cfg.Certs); err != nil {
			return nil, fmt.Errorf("node: %w", err)
		}
	}
	return files, nil
}

// join opens the node's listeners and its record, and returns when it belongs to a cluster.
func (n *Node) join(ctx context.Context) error {
	n.servers = &servers{}
	bootstrap := func(b *store.Batch, node uint64) {
		for _, d := range cluster.FirstTablets(node) {
			tablet.Bootstrap(b, d, d.Replicas[0].ReplicaId)
		}
	}
	if err := n.openHTTP(); err != nil {
		return err
	}
	var err error
	n.joining, err = openJoining(n.cfg, n.certs.files, n.store, bootstrap, joiningParts{
		contact: n.parts.Contact, alone: n.parts.Members != nil, http: n.HTTPAddr(),
		clock:   n.parts.Clock,
		waiting: func(why string) { n.waiting.Store(&why) },
	})
	if err != nil {
		return err
	}
	if err := n.policy.checkFounder(n.joining.self.Identity(), n.cfg); err != nil {
		return err
	}
	n.identity, err = n.joining.enter(ctx)
	return err
}

// registry is by what the door lets others in.
func (n *Node) registry() join.Registry {
	return &meta.Registry{
		Meta: n.meta, Members: n.others.members, Tablet: func() *pb.TabletDescriptor {
			return n.router.Descriptor(cluster.MetaTablet)
		},
		Now: func(ctx context.Context) (mvcc.Timestamp, error) {
			ts, _, err := n.transport().Timestamps(ctx, 1)
			return ts, err
		},
	}
}

// fail notes why this process must end.
func (n *Node) fail(err error) {
	n.cfg.Logger.Error("this node must stop", "error", err)
	select {
	case n.failed <- err:
	default: // one reason is enough
	}
}

// Failed delivers why the node must be closed, should that come: another process runs
// with its identity.
func (n *Node) Failed() <-chan error { return n.failed }

// lateContact is a contact that is made after the door that uses it.
type lateContact struct{ join.Contact }

// bind takes all addresses but HTTP's. What is free is known only then, and whoever asks
// to join says where it is.
func (e *joining) bind(parts joiningParts) error {
	var err error
	if parts.http != "" {
		if e.at.Http, err = e.cfg.AdvertisedAddr(parts.http, false); err != nil {
			return err
		}
	}
	switch {
	case parts.contact != nil:
		e.at.Listen = e.cfg.Listen
		return nil
	case e.cfg.Listen == "":
		return nil
	}
	l, err := net.Listen("tcp", e.cfg.Listen)
	if err != nil {
		return fmt.Errorf("node: listen for clients: %w", err)
	}
	e.listen = newHandover(l)
	if e.at.Listen, err = e.cfg.AdvertisedAddr(l.Addr().String(), true); err != nil {
		return err
	}
	if addr := e.cfg.GossipAddr(); addr != "" && !parts.alone {
		if e.ports, err = gossip.Listen(addr, e.cfg.Logger); err != nil {
			return err
		}
		if e.at.Gossip, err = e.cfg.AdvertisedAddr(e.ports.Addr(), false); err != nil {
			return err
		}
	}
	if addr := e.cfg.PeerAddr(); addr != "" {
		if e.cfg.Peer, err = freePort(addr); err != nil {
			return err
		}
		e.at.Peer, err = e.cfg.AdvertisedAddr(e.cfg.Peer, false)
	}
	return err
}

// freePort is the address, with a port that was free just now in place of port 0.
func freePort(addr string) (string, error) {
	if _, port, err := net.SplitHostPort(addr); err != nil || port != "0" {
		return addr, err
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return "", fmt.Errorf("node: look for a free port: %w", err)
	}
	return l.Addr().String(), l.Close()
}

// peerAddr is the address to bind for traffic between nodes; empty if the node is alone.
func (e *joining) peerAddr() string { return e.cfg.PeerAddr() }

// credentials are those with which this node asks others.
func (e *joining) credentials() credentials.TransportCredentials {
	if e.files == nil {
		return insecure.NewCredentials()
	}
	return credentials.NewTLS(e.files.Peer())
}

// serveEarly answers Membership until the node serves clients as well. These are told
// that it does not yet, so that they ask again, or another node: that it knows no such
// service would read as if it never will.
func (e *joining) serveEarly() {
	if e.listen == nil {
		return
	}
	cfg := rpc.ServerConfig{MaxStreams: 64, MaxIdle: earlyIdle, Logger: e.cfg.Logger}
	if e.files != nil {
		cfg.TLS = e.files.Server(certs.Node, certs.Client) // the guards keep clients from the door
	}
	notYet := func(any, grpc.ServerStream) error {
		return status.Error(codes.Unavailable, errStarting.Error())
	}
	opts := append(rpc.Guards(cfg), grpc.MaxRecvMsgSize(1<<20), grpc.UnknownServiceHandler(notYet))
	e.early, e.earlyServed = grpc.NewServer(opts...), make(chan error, 1)
	pb.RegisterMembershipServer(e.early, e.door)
	l := netutil.LimitListener(e.listen.view(), maxEarlyConns)
	go func() { e.earlyServed <- e.early.Serve(l) }() // joined by takeOver
}

// maxEarlyConns bounds the connections to a node that does not serve yet, and earlyIdle
// how long one of them is held by who asks nothing: clients must not keep nodes out.
const (
	maxEarlyConns = 256
	earlyIdle     = 3 * time.Second
)

// takeOver ends the early server; the listener is that of the server that follows, which
// must register the door. nil: there is no address.
func (e *joining) takeOver() (net.Listener, error) {
	if e.listen == nil {
		return nil, nil
	}
	if e.early == nil {
		return e.listen.view(), nil
	}
	e.early.Stop()
	err := <-e.earlyServed
	e.early = nil
	if err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return nil, fmt.Errorf("node: tell others who this is: %w", err)
	}
	return e.listen.view(), nil
}

// register serves the door beside what else a server serves.
func (e *joining) register(r grpc.ServiceRegistrar) { pb.RegisterMembershipServer(r, e.door) }

// enter returns when the node belongs to a cluster.
func (e *joining) enter(ctx context.Context) (join.Identity, error) {
	err := e.door.Enter(ctx)
	return e.self.Identity(), err
}

// openGossip begins to gossip, if there is an address for that; else the node is alone.
// replaced is called when a later incarnation of this node shows up: this process must
// end.
func (e *joining) openGossip(self cluster.Member,
	replaced func(by cluster.Member)) (cluster.Members, error) {
	if e.ports == nil {
		return cluster.NewAlone(self), nil
	}
	self.Listen, self.Peer, self.Gossip = e.at.Listen, e.at.Peer, e.at.Gossip
	g, err := gossip.Open(gossip.Config{
		ClusterID: e.self.Identity().ClusterID, Self: self, Certs: e.cfg.Certs, Known: e.known,
		Logger: e.cfg.Logger,
		Replaced: func(by cluster.Member) {
			if err := e.self.Outlive(by.Incarnation); err != nil {
				e.cfg.Logger.Error("the incarnation that has replaced this one could not be noted",
					"error", err)
			}
			replaced(by)
		},
	}, e.ports)
	if err != nil {
		return nil, err
	}
	e.gossip, e.ports = g, nil
	ctx, cancel := context.WithCancel(context.Background())
	e.end = cancel
	e.upkeep.Go(func() { e.door.Seek(ctx) })
	return g, nil
}

// known are the gossip addresses of all nodes that this one has been told of.
func (e *joining) known() []string {
	var out []string
	for _, n := range e.self.Contacts().Nodes {
		out = append(out, n.Gossip)
	}
	return append(out, e.door.Met()...)
}

// metaDescriptor is where meta was when the node last heard of it; nil if it has not.
func (e *joining) metaDescriptor() *pb.TabletDescriptor { return e.self.Contacts().Meta }

// firstRegister bounds how long the first attempt to register holds up the start.
const firstRegister = 2 * time.Second

// open lets others in from now on, and registers this incarnation in meta: at once, or
// later as soon as that is possible. refused is called if meta does not take it: this
// process must end.
func (e *joining) open(r join.Registry, refused func(error)) {
	ctx, cancel := context.WithCancel(context.Background())
	e.quit() // looking for others: meta tells from now on
	e.end = cancel
	e.door.Open(r)
	first, done := context.WithTimeout(ctx, firstRegister)
	defer done()
	if err := e.door.Register(first, r); err != nil {
		e.cfg.Logger.Debug("not registered yet", "error", err) // the upkeep goes on
	}
	e.upkeep.Go(func() {
		if err := e.door.Upkeep(ctx, r); err != nil {
			refused(err)
		}
	})
}

// quit ends the upkeep: before what it asks is stopped.
func (e *joining) quit() {
	e.end()
	e.upkeep.Wait()
}

// close ends all of it; the node's own server has ended. The others learn by gossip that
// this incarnation is over.
func (e *joining) close() error {
	e.quit()
	var errs []error
	if e.early != nil {
		_, err := e.takeOver()
		errs = append(errs, err)
	}
	if e.gossip != nil {
		errs = append(errs, e.gossip.Close())
	}
	if e.ports != nil {
		errs = append(errs, e.ports.Close())
	}
	if e.contact != nil {
		errs = append(errs, e.contact.Close())
	}
	if e.listen != nil {
		errs = append(errs, e.listen.Close())
	}
	return errors.Join(errs...)
}
