package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/percolator-go/percolator/actors/tablet"
	"github.com/percolator-go/percolator/actors/tablet/snapshot"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/cluster/gossip"
	"github.com/percolator-go/percolator/cluster/join"
	"github.com/percolator-go/percolator/cluster/meta"
	"github.com/percolator-go/percolator/internal/certs"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/rpc"
	"github.com/percolator-go/percolator/internal/version"
	"github.com/percolator-go/percolator/node/console"
	"github.com/percolator-go/percolator/store"
)

// joining holds the parts of a node that exist before it belongs to a cluster: its listeners, its
// identity record, and the membership service, by which it joins and admits others. Call order:
// openJoining, enter, openGossip, open, takeOver, quit, close; after a failed start, quit and
// close.
//
// It owns the bound addresses and the server at the clients' address. The goroutines of Open and
// Close call it; gossip calls known. In flight may be the early server and one goroutine (upkeep)
// that first searches for other nodes and later keeps this one registered; quit ends it.
type joining struct {
	cfg        Config
	files      *certs.Files // nil: plain text
	gate       *version.Gate
	self       *join.Self
	membership *join.Membership

	listen  net.Listener     // nil: none, or handed over
	ports   *gossip.Listener // nil: none, or owned by gossip
	gossip  *gossip.Gossip   // nil: not open yet, or the node is alone
	contact *join.GRPCContact
	at      *pb.NodeAddresses // announced addresses

	early       *grpc.Server // serves Membership until the node serves; nil after that
	earlyServed chan error

	upkeep sync.WaitGroup     // the background goroutine: Seek, then Upkeep
	end    context.CancelFunc // ends upkeep
}

// joiningParts are the parts of joining that tests replace, and its inputs from the rest of the
// node.
type joiningParts struct {
	// contact calls other nodes' membership services and serves this node's at the address; nil
	// means gRPC.
	contact func(listen string, membership pb.MembershipServer) join.Contact
	// noGossip means that a test provides the members: no address for gossip is bound.
	noGossip bool
	// clock is the node's; nil means time.Now.
	clock func() time.Time
	gate  *version.Gate
	// http is the bound address of the HTTP listener; empty means none.
	http string
	// waiting is called with the reason for which the node waits.
	waiting func(why string)
	// discards is called when the node's replicas must be discarded (join.Self.Discards).
	discards func(ctx context.Context)
}

// openJoining binds the node's addresses and reads its record. From then on the node answers Hello
// but admits no node. bootstrap adds the first tablets to the batch in which a founder becomes a
// member of its cluster. On error it closes everything.
func openJoining(cfg Config, files *certs.Files, st *store.Store,
	bootstrap func(*store.Batch, uint64), parts joiningParts) (*joining, error) {
	e := &joining{
		cfg: cfg, files: files, gate: parts.gate, at: &pb.NodeAddresses{}, end: func() {},
	}
	var err error
	if e.self, err = join.OpenSelf(st); err != nil {
		return nil, err
	}
	if err := e.bind(parts); err != nil {
		return nil, errors.Join(err, e.close())
	}
	e.warnOfMissingHost()
	e.contact = join.NewGRPCContact(e.credentials())
	// A node with replicas was a member before, and a quorum may need it.
	voters, err := votersWith(st, e.self.Recovery().Dead)
	if err != nil {
		return nil, errors.Join(err, e.close())
	}
	c := join.MembershipConfig{
		Voters: voters, Waiting: parts.waiting, Discards: parts.discards, Self: e.self, Contact: e.contact,
		Join: cfg.JoinAddrs(), Expect: cfg.Expect, Addresses: e.at, Labels: cfg.Labels,
		Version: Version(), Program: version.Application(), Gate: parts.gate, Bootstrap: bootstrap, Logger: cfg.Logger,
		Clock: parts.clock, MaxClockOff: cfg.MaxClockAhead,
	}
	// A test's contact needs the membership service, which needs a contact.
	if parts.contact != nil {
		later := &lateContact{}
		c.Contact = later
		e.membership = join.NewMembership(c)
		later.Contact = parts.contact(cfg.Listen, e.membership)
		return e, nil
	}
	e.membership = join.NewMembership(c)
	if err := e.serveEarly(); err != nil {
		return nil, errors.Join(err, e.close())
	}
	return e, nil
}

// votersWith returns the voters, in order, of the Raft groups of which the store has a replica,
// without those that a recovery has declared dead.
func votersWith(st *store.Store, dead []uint64) (nodes []uint64, err error) {
	stored, err := snapshot.StoredReplicas(st)
	if err != nil {
		return nil, fmt.Errorf("node: list the stored replicas: %w", err)
	}
	for _, s := range stored {
		for _, r := range s.Descriptor.GetReplicas() {
			if !r.Learner && !slices.Contains(dead, r.NodeId) {
				nodes = append(nodes, r.NodeId)
			}
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes), nil
}

// openCerts loads the node's certificates before anything is created or bound. It returns nil
// without certificates in the configuration.
func openCerts(cfg Config) (*certs.Files, error) {
	if cfg.Certs == "" {
		return nil, nil
	}
	files, err := certs.Open(certs.NodeSource(cfg.Certs), cfg.Logger)
	if err != nil {
		return nil, fmt.Errorf("node: open the certificates: %w", err)
	}
	if cfg.GossipAddr() != "" {
		// Otherwise invalid keys would be detected only after the node has joined.
		if err := gossip.CheckKeys(cfg.Certs); err != nil {
			return nil, fmt.Errorf("node: check the gossip keys: %w", err)
		}
	}
	return files, nil
}

// join opens the node's listeners and its record, and returns when the node belongs to a cluster or
// ctx ends. It opens HTTP first, so that probes can report why the node waits.
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
		contact: n.parts.Contact, noGossip: n.parts.Members != nil, http: n.HTTPAddr(),
		clock: n.parts.Clock, gate: n.gate,
		waiting: n.phase.setWaiting,
		// Before the tablets are opened this does nothing: tablets.start discards the replicas
		// itself.
		discards: func(ctx context.Context) {
			if n.tablets != nil {
				n.tablets.discard(ctx)
			}
		},
	})
	if err != nil {
		return err
	}
	if err := checkFounder(n.policy, n.joining.self.Identity(), n.cfg); err != nil {
		return err
	}
	n.identity, err = n.joining.enter(ctx)
	return err
}

// registry returns the parts of meta that the membership service needs to admit nodes.
func (n *Node) registry() join.Registry {
	return &meta.Registry{
		Nodes: n.meta.Nodes, Members: n.peerNodes.Members(), Tablet: func() *pb.TabletDescriptor {
			return n.router.Descriptor(cluster.MetaTablet)
		},
		Now: func(ctx context.Context) (mvcc.Timestamp, error) {
			ts, _, err := n.transport.Timestamps(ctx, 1)
			return ts, err
		},
	}
}

// fail records the error for which this process must end. It does not end it: the caller of Open
// receives from Failed and calls Close. It never blocks.
func (n *Node) fail(err error) {
	n.cfg.Logger.Error("node must stop", "error", err)
	select {
	case n.failed <- err:
	default: // one reason is enough
	}
}

// Failed returns a channel that delivers one error if the node must be closed, such as
// when another process runs with its identity. It is never closed.
func (n *Node) Failed() <-chan error { return n.failed }

// lateContact is a contact that is created after the membership service that uses it. It is set
// before enter, its first user.
type lateContact struct{ join.Contact }

// bind binds the addresses for clients and gossip, chooses the one for other nodes, and records
// the announced ones. It precedes joining, because a join request carries the addresses, and port
// 0 is resolved by binding.
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
	e.listen = l
	if e.at.Listen, err = e.cfg.AdvertisedAddr(l.Addr().String(), true); err != nil {
		return err
	}
	if addr := e.cfg.GossipAddr(); addr != "" && !parts.noGossip {
		if e.ports, err = gossip.Listen(addr, e.cfg.Logger); err != nil {
			return err
		}
		if e.at.Gossip, err = e.cfg.AdvertisedAddr(e.ports.Addr(), false); err != nil {
			return err
		}
	}
	// The remoting binds this address later; only its port is chosen here. If another process
	// binds that port in between, the start fails.
	if addr := e.cfg.PeerAddr(); addr != "" {
		if e.cfg.Peer, err = freePort(addr); err != nil {
			return err
		}
		e.at.Peer, err = e.cfg.AdvertisedAddr(e.cfg.Peer, false)
	}
	return err
}

// warnOfMissingHost warns if the certificate does not cover the announced address.
func (e *joining) warnOfMissingHost() {
	host, _, err := net.SplitHostPort(e.at.Listen)
	if e.files == nil || err != nil { // without a listener there is nothing to reach
		return
	}
	if problem, next := e.files.MissingHost(host); problem != "" {
		e.cfg.Logger.Warn("node: the certificate lacks this node's address", "problem", problem,
			"next", next)
	}
}

// freePort returns the address with port 0 replaced by a currently free port.
func freePort(addr string) (string, error) {
	if _, port, err := net.SplitHostPort(addr); err != nil || port != "0" {
		return addr, err
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return "", fmt.Errorf("node: find a free port: %w", err)
	}
	return l.Addr().String(), l.Close()
}

// peerAddr returns the address to bind for traffic between nodes, or "" if the node is alone.
func (e *joining) peerAddr() string { return e.cfg.PeerAddr() }

// credentials returns the credentials of join requests.
func (e *joining) credentials() credentials.TransportCredentials {
	if e.files == nil {
		return insecure.NewCredentials()
	}
	return credentials.NewTLS(e.files.Peer())
}

// serveEarly serves Membership until the node serves clients. Other services return Unavailable, so
// that clients retry or fail over; gRPC's own Unimplemented would be permanent.
func (e *joining) serveEarly() error {
	if e.listen == nil {
		return nil
	}
	early, err := another(e.listen)
	if err != nil {
		return err
	}
	cfg := rpc.ServerConfig{
		MaxStreams: 64, MaxIdle: earlyIdle, MaxConnections: maxEarlyConns, Logger: e.cfg.Logger,
	}
	if e.files != nil {
		// The guards restrict Membership to nodes.
		cfg.TLS, cfg.Revoked = e.files.Clients(certs.AllRoles()...), e.files.Revoked
	}
	notYet := func(any, grpc.ServerStream) error {
		return rpc.Starting(console.ErrStarting.Error())
	}
	opts := append(rpc.Guards(cfg), grpc.MaxRecvMsgSize(1<<20), grpc.UnknownServiceHandler(notYet))
	e.early, e.earlyServed = grpc.NewServer(opts...), make(chan error, 1)
	pb.RegisterMembershipServer(e.early, e.membership)
	l := rpc.Limit(early, cfg)
	go func() { e.earlyServed <- e.early.Serve(l) }() // joined by takeOver
	return nil
}

// another returns a second listener at the same address, which stays bound until both are
// closed.
func another(l net.Listener) (net.Listener, error) {
	f, err := l.(*net.TCPListener).File()
	if err != nil {
		return nil, fmt.Errorf("node: open a second listener at the address for clients: %w", err)
	}
	defer f.Close()
	return net.FileListener(f)
}

// maxEarlyConns limits the connections to a node that does not serve yet, and earlyIdle the time that
// one of them may be idle, so that clients cannot exclude joining nodes.
const (
	maxEarlyConns = 256
	earlyIdle     = 3 * time.Second
)

// takeOver ends the early server and returns the listener for its successor, which must register
// the membership service. The address stays bound, so connections in between wait. The caller owns
// the listener; it is nil without an address.
func (e *joining) takeOver() (net.Listener, error) {
	l := e.listen
	e.listen = nil
	if e.early == nil {
		return l, nil
	}
	// Fails running requests; other nodes retry.
	e.early.Stop()
	err := <-e.earlyServed
	e.early = nil
	if err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return l, fmt.Errorf("node: serve membership before joining: %w", err)
	}
	return l, nil
}

// register registers the membership service with a server.
func (e *joining) register(r grpc.ServiceRegistrar) { pb.RegisterMembershipServer(r, e.membership) }

// enter waits until the node belongs to a cluster and returns its identity there.
func (e *joining) enter(ctx context.Context) (join.Identity, error) {
	err := e.membership.Enter(ctx)
	return e.self.Identity(), err
}

// openGossip starts gossip if it has an address; otherwise the node runs alone. replaced is called
// on gossip's goroutine when a later incarnation of this node appears: this process must then end.
func (e *joining) openGossip(self cluster.Member,
	replaced func(by cluster.Member)) (cluster.Members, error) {
	if e.ports == nil {
		return cluster.NewAlone(self), nil
	}
	self.Listen, self.Peer, self.Gossip = e.at.Listen, e.at.Peer, e.at.Gossip
	g, err := gossip.Open(gossip.Config{
		ClusterID: e.self.Identity().ClusterID, Self: self, Certs: e.cfg.Certs, Known: e.known,
		Gate: e.gate, Logger: e.cfg.Logger,
		Replaced: func(by cluster.Member) {
			// The next start needs an incarnation above that of the process that has replaced this
			// one: other nodes treat any lower incarnation as dead.
			if err := e.self.Outlive(by.Incarnation); err != nil {
				e.cfg.Logger.Error("cannot record the incarnation that has replaced this one",
					"error", err)
			}
			replaced(by)
		},
	}, e.ports)
	if err != nil {
		return nil, err
	}
	e.gossip, e.ports = g, nil // gossip closes its listener from here on
	ctx, cancel := context.WithCancel(context.Background())
	e.end = cancel
	e.upkeep.Go(func() { e.membership.Seek(ctx) })
	return g, nil
}

// known returns the gossip addresses of all known nodes, possibly out of date and with duplicates.
func (e *joining) known() []string {
	var out []string
	for _, n := range e.self.Contacts().Nodes {
		out = append(out, n.Gossip)
	}
	return append(out, e.membership.Met()...)
}

// firstRegister bounds the first attempt to register, which delays the start.
const firstRegister = 2 * time.Second

// open starts to admit nodes and registers this incarnation in meta. If the first attempt fails,
// the upkeep retries. refused is called on the upkeep's goroutine if meta rejects the incarnation:
// this process must then end.
func (e *joining) open(r join.Registry, refused func(error)) {
	ctx, cancel := context.WithCancel(context.Background())
	e.quit() // ends Seek: from now on meta provides the nodes' addresses
	e.end = cancel
	e.membership.Open(r)
	first, done := context.WithTimeout(ctx, firstRegister)
	defer done()
	if err := e.membership.Register(first, r); err != nil {
		e.cfg.Logger.Debug("not registered yet", "error", err) // the upkeep retries
	}
	e.upkeep.Go(func() {
		if err := e.membership.Upkeep(ctx, r); err != nil {
			refused(err)
		}
	})
}

// quit stops the upkeep and waits for it. It must be called before the parts that the upkeep uses are
// closed. It may be called again.
func (e *joining) quit() {
	e.end()
	e.upkeep.Wait()
}

// close closes everything that is open, also after a failed start. The node's own server must have
// stopped. Gossip announces to other nodes that this incarnation has ended.
func (e *joining) close() error {
	e.quit()
	var errs []error
	if l, err := e.takeOver(); l != nil { // the start failed before serve
		errs = append(errs, err, l.Close())
	}
	if e.gossip != nil {
		errs = append(errs, e.gossip.Close())
	}
	if e.ports != nil { // gossip does not own it
		errs = append(errs, e.ports.Close())
	}
	if e.contact != nil {
		errs = append(errs, e.contact.Close())
	}
	return errors.Join(errs...)
}
