package node

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/certs"
	"github.com/percolator-go/percolator/internal/gateway"
	"github.com/percolator-go/percolator/internal/httpd"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/rpc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/node/config"
	"github.com/percolator-go/percolator/node/console"
)

// servers are the node's listeners for clients and for HTTP. The goroutines of Open and Close open
// and close them. Requests arrive on the servers' goroutines: HTTP's already before the node belongs
// to a cluster, with few answers, and clients' once everything runs. drain waits up to drainGrace for
// clients' streams, then closes them; close stops the servers.
type servers struct {
	grpc    *rpc.Server
	served  chan error // result of the gRPC server's Serve
	http    *httpd.Server
	gateway *gateway.Server // nil: none
}

// openHTTP opens the HTTP listener, if one is configured. It is the first part that answers
// requests: until the node serves, it reports only whether the process is alive and what it waits
// for.
func (n *Node) openHTTP() (err error) {
	addr := n.cfg.HTTPAddr()
	if addr == "" {
		return nil
	}
	if n.cfg.Pprof && !config.IsLoopback(addr) {
		n.cfg.Logger.Warn("profiles are served to anyone who can reach the HTTP listener, which "+
			"is not on a loopback address, unless the policy sets http-login", "http", addr)
	}
	pages := console.New(console.Config{
		Logger: n.cfg.Logger, Addr: addr, Login: n.cfg.HTTPLogin, Files: n.certs.files, Now: n.now,
		Policy: n.policy, Ready: n.ready, Parts: n.pages.Load,
		SeenClient: func(who rpc.Caller) { n.certs.clients.Seen(who, n.cfg.Logger, n.now) },
	})
	options := httpd.Options{
		Addr: addr, Program: filepath.Base(os.Args[0]), Logger: n.cfg.Logger, Ready: n.ready, Notes: n.certs.notes, Cluster: n.clusterStatus,
		Questions: pages.Questions(), MayRead: pages.MayRead,
		Operators: pages, PlainLogins: n.cfg.Certs == "", Closed: pages.Closed, View: pages.View,
		Hosts: func() []string { return httpHosts(n.cfg, n.certs.files) }, Profiles: n.cfg.Pprof,
		Metrics: prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
			if !n.phase.started() { // the parts to measure do not exist yet
				return nil, nil
			}
			return n.exporter.Gatherer().Gather()
		}),
		Status: func(ctx context.Context) *pb.NodeStatusResponse {
			if !n.phase.started() {
				return earlyStatus(n.started)
			}
			status, _ := n.status.get(ctx, false) // possibly incomplete
			return status
		},
	}
	// Browsers' certificates are optional: pages and probes need none, and users without one log in
	// by a token.
	if n.cfg.HTTPTLS {
		options.TLS = n.certs.files.Browsers(certs.AllRoles()...)
	}
	n.servers.http, err = httpd.Open(options)
	if err != nil {
		return fmt.Errorf("node: listen for HTTP: %w", err)
	}
	return nil
}

// httpHosts returns the hosts, with or without ports, that HTTP and the gateway's events accept in
// addition to localhost and IP addresses. They refuse requests for others, so that web pages cannot
// reach the node by a DNS name of their own (DNS rebinding).
func httpHosts(cfg Config, files *certs.Files) []string {
	own := []string{cfg.Listen, cfg.Advertise, cfg.HTTPAddr()}
	if files != nil {
		own = append(own, files.Names()...)
	}
	return append(own, cfg.HTTPHosts...)
}

// serve starts to serve clients, if an address for them is configured. Open's goroutine calls it
// last.
func (n *Node) serve(ctx context.Context) error {
	if n.joining.listen != nil {
		// All timestamps of the oracle's earlier leaders are below this one, so that n.latest need
		// not ask the oracle about each of them.
		if _, err := n.client.Timestamp(ctx); err != nil {
			return fmt.Errorf("node: get a first timestamp: %w", err)
		}
		// From here until Serve below, clients that connect wait but are not refused.
		l, err := n.joining.takeOver()
		if err != nil {
			return errors.Join(err, l.Close())
		}
		s, cfg := n.servers, rpc.ServerConfig{
			Logger: n.cfg.Logger, Latest: n.latest, Admin: n.transport.admin, Register: n.joining.register,
			Policy: n.policy.LastRead, LegacyCerts: n.certs.clients, Clients: &n.clients,
			Resolve: n.client.ResolveAt, LeaderOf: n.leaderOf, Tracer: n.tracing.tracer,
			Work: func(ctx context.Context, stream rpc.WorkStream, may func(uint32) error) error {
				return n.observers.Serve(ctx, stream, may)
			},
		}
		// Without certificates the server uses plain text for clients and nodes.
		if n.joining.files != nil {
			cfg.TLS = n.joining.files.Clients(certs.AllRoles()...)
			cfg.Revoked = n.joining.files.Revoked
		}
		s.grpc, s.served = rpc.NewServer(n.transport, cfg), make(chan error, 1)
		go func() { s.served <- s.grpc.Serve(l) }() // joined by close
		if err := n.openGateway(cfg.TLS); err != nil {
			return err
		}
	}
	n.background.start(n.window.Run)
	// Last: from here on probes report the node ready, and HTTP serves everything.
	n.pages.Store(&console.Parts{
		Client: n.client, Window: n.window, Transport: n.transport,
		Admin: n.transport.AdminConn(), FindToken: n.meta.Tokens.Find,
	})
	n.phase.setServing()
	return nil
}

// openGateway opens the gateway, if one is configured. clients is the TLS configuration of the listener for
// clients.
func (n *Node) openGateway(clients *tls.Config) (err error) {
	if n.cfg.Gateway == "" {
		return nil
	}
	cfg := gateway.Config{
		Addr: n.cfg.GatewayAddr(), Origins: n.cfg.GatewayOrigins, Server: n.servers.grpc, Logger: n.cfg.Logger,
		NodeID: n.identity.NodeID, Incarnation: n.identity.Incarnation, Client: n.clientConfig(),
		ClusterID: n.identity.ClusterID,
		Hosts:     func() []string { return httpHosts(n.cfg, n.certs.files) },
		Advertise: func(bound string) (string, error) { return n.cfg.AdvertisedAddr(bound, false) },
		CreateOutcomes: func(ctx context.Context) error {
			if _, err := n.client.TableID(ctx, rpc.OutcomesTable); !errors.Is(err, txn.ErrNoTable) {
				return err
			}
			return n.client.CreateExpiring(ctx, rpc.OutcomesTable, nil,
				&pb.TableExpiry{AfterMs: uint64(outcomesKept.Milliseconds())})
		},
	}
	// Browsers ask without a certificate whether they may call, and then may use a token.
	if clients != nil {
		cfg.TLS = n.joining.files.Browsers(certs.AllRoles()...)
		cfg.Token = console.TokenCallers(n.meta.Tokens.Find, n.now)
	}
	if n.servers.gateway, err = gateway.Open(cfg); err != nil {
		return fmt.Errorf("node: open the gateway: %w", err)
	}
	return nil
}

// outcomesKept is how long the gateways of a cluster keep the outcomes of idempotency keys.
const outcomesKept = 24 * time.Hour

// leaderOf implements rpc.ServerConfig.LeaderOf.
func (n *Node) leaderOf(tablet uint64) string {
	leader, members := n.router.Leader(tablet), n.peerNodes.Members()
	if leader == 0 || leader == n.identity.NodeID || members == nil {
		return ""
	}
	m, _ := members.Member(leader)
	return m.Listen
}

// clusterStatus returns the cluster's status for the console. If meta does not answer within 1 s,
// the tables are missing.
func (n *Node) clusterStatus(ctx context.Context) (*pb.ClusterStatusResponse, []*pb.Table,
	error) {
	if !n.phase.started() {
		return nil, nil, cmp.Or(n.ready(ctx), console.ErrStarting)
	}
	var tables []*pb.Table
	var wait sync.WaitGroup
	wait.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		tables, _ = n.meta.Schema.Tables(ctx)
	})
	status, err := n.transport.admin.ClusterStatus(ctx, &pb.ClusterStatusRequest{})
	wait.Wait()
	if err == nil {
		n.window.NoteFindings(len(status.GetFindings()))
	}
	return status, tables, err
}

// ready returns nil while the node serves, else all reasons why it does not. Probes call it on any
// goroutine. Unless meta has answered recently it waits for meta, see metaHealth.
func (n *Node) ready(ctx context.Context) error {
	if err := n.phase.err(); err != nil {
		return err
	}
	// The node may be closed during this wait of up to seconds, so check again after it. All
	// reasons are joined, so that one probe shows everything to repair.
	meta := n.health.check(ctx)
	if err := n.phase.err(); err != nil {
		return err
	}
	return errors.Join(n.store.Damaged(), n.tablets.failures.first(),
		n.tablets.replicas.Stats().Why, n.store.WriteBlocked(), n.certs.expired(), meta)
}

// latest returns a timestamp of at least ts if the oracle has issued ts, and one below ts otherwise.
// It asks the oracle only if ts is above all timestamps that this node has received.
func (n *Node) latest(ctx context.Context, ts mvcc.Timestamp) (mvcc.Timestamp, error) {
	// An oracle that runs here knows the last timestamp; otherwise use the latest one received
	// from the leader's.
	last, _, _ := n.oracle.stats()
	if seen := max(last, n.oracles.Seen()); ts <= seen {
		return seen, nil
	}
	return n.client.Timestamp(ctx)
}

// Addr returns the announced address for remote clients, or "" if there is none or the node does not
// serve yet.
func (n *Node) Addr() string {
	if !n.phase.started() || n.servers.grpc == nil {
		return ""
	}
	return n.joining.at.Listen
}

// reachedBy returns the announced host for remote clients, or "" if there is none or the node does
// not serve yet.
func (n *Node) reachedBy() string {
	host, _, err := net.SplitHostPort(n.Addr())
	if err != nil {
		return ""
	}
	return host
}

// HTTPAddr returns the address of the HTTP listener, or "" if there is none.
func (n *Node) HTTPAddr() string {
	if n.servers == nil || n.servers.http == nil {
		return ""
	}
	return n.servers.http.Addr()
}

// GatewayAddr returns the address at which clients reach the gateway, or "" if there is none.
func (n *Node) GatewayAddr() string {
	if n.servers == nil || n.servers.gateway == nil {
		return ""
	}
	return n.servers.gateway.Address()
}

// drainGrace limits the wait for remote clients' streams: an idle one would never end.
const drainGrace = 2 * time.Second

// drain refuses new remote requests and waits up to drainGrace for running ones.
func (s *servers) drain(ctx context.Context) {
	if s.grpc == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, drainGrace)
	defer cancel()
	// At the end of ctx both servers close the calls that are still open.
	var wait sync.WaitGroup
	defer wait.Wait()
	if s.gateway != nil {
		wait.Go(func() { _ = s.gateway.Close(ctx) }) // close returns its error
	}
	s.grpc.Shutdown(ctx)
}

// close stops the servers with their running requests, and joins the gRPC server.
func (s *servers) close() error {
	var errs []error
	if s.gateway != nil {
		if err := s.gateway.Close(context.Background()); !errors.Is(err, context.DeadlineExceeded) {
			errs = append(errs, err)
		}
	}
	if s.grpc != nil {
		s.grpc.Stop()
		errs = append(errs, <-s.served)
	}
	// HTTP stops last: until then probes report that the node is stopping.
	if s.http != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		// It closes the connections of requests that take longer, which is no failure.
		if err := s.http.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
