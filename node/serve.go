package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/certs"
	"github.com/percolator-go/percolator/internal/httpd"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/rpc"
	"github.com/percolator-go/percolator/internal/version"
	"github.com/percolator-go/percolator/node/config"
	"github.com/percolator-go/percolator/node/console"
)

// servers are the node's listeners for clients and for HTTP. The goroutines of Open and
// Close open and close them. Requests come on goroutines of the servers: HTTP's from
// before the node belongs to a cluster, when it says little, and clients' as soon as
// everything runs. drain waits up to drainGrace for clients' streams, then cuts them off;
// close ends the servers.
type servers struct {
	grpc   *rpc.Server
	served chan error // the gRPC server's end
	http   *httpd.Server
}

// Version is the version of percolator in this build: that of the module, also where a
// program of another module links it.
func Version() string { return version.String() }

// openHTTP opens the HTTP listener, if there is an address for it. It is the first part
// that answers anybody: until the node serves, it says little more than that the process
// lives and what it waits for.
func (n *Node) openHTTP() (err error) {
	addr := n.cfg.HTTPAddr()
	if addr == "" {
		return nil
	}
	if n.cfg.Pprof && !config.IsLoopback(addr) {
		n.cfg.Logger.Warn("profiles are served to everybody who can reach the HTTP listener, which "+
			"is not on a loopback address", "http", addr)
	}
	pages := console.New(console.Config{
		Logger: n.cfg.Logger, Addr: addr, Login: n.cfg.HTTPLogin, Files: n.certs.files, Now: n.now,
		Policy: n.policy, Ready: n.ready, Parts: n.pages.Load,
		SeenClient: func(who rpc.Caller) { n.certs.clients.Seen(who, n.cfg.Logger, n.now) },
	})
	options := httpd.Options{
		Addr: addr, Logger: n.cfg.Logger, Ready: n.ready, Notes: n.certs.notes, Cluster: n.clusterStatus,
		Questions: pages.Questions(), MayRead: pages.MayRead,
		Operators: pages, PlainLogins: n.cfg.Certs == "", Closed: pages.Closed, View: pages.View,
		Hosts: func() []string { return httpHosts(n.cfg, n.certs.files) }, Profiles: n.cfg.Pprof,
		Metrics: prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
			if !n.serving.Load() { // the parts that are counted are not there yet
				return nil, nil
			}
			return n.exporter.Gatherer().Gather()
		}),
		Status: func(ctx context.Context) *pb.NodeStatusResponse {
			if !n.serving.Load() {
				return earlyStatus(n.started)
			}
			status, _ := n.status.get(ctx, false) // what could be gathered in time
			return status
		},
	}
	// A browser's certificate is asked for and not demanded: pages and probes go without, and
	// who has none logs in by a token.
	if n.cfg.HTTPTLS {
		options.TLS = n.certs.files.Browsers(certs.AllRoles()...)
	}
	n.servers.http, err = httpd.Open(options)
	if err != nil {
		return fmt.Errorf("node: listen for HTTP: %w", err)
	}
	return nil
}

// httpHosts returns the names under which HTTP answers. Requests for other names are
// refused, which keeps web pages from reaching the node by a name of theirs.
func httpHosts(cfg Config, files *certs.Files) []string {
	own := []string{cfg.Listen, cfg.Advertise, cfg.HTTPAddr()}
	if files != nil {
		own = append(own, files.Names()...)
	}
	return append(own, cfg.HTTPHosts...)
}

// serve begins to serve clients, if there is an address for them. Open's goroutine calls
// it last.
func (n *Node) serve(ctx context.Context) error {
	if n.joining.listen != nil {
		// All timestamps of the oracle's earlier lives are below this one, so that latest
		// need not ask the oracle about each of them.
		if _, err := n.client.Timestamp(ctx); err != nil {
			return fmt.Errorf("node: the oracle gives no timestamp: %w", err)
		}
		// From here until Serve below, who connects waits for its answer but is not refused.
		l, err := n.joining.takeOver()
		if err != nil {
			return errors.Join(err, l.Close())
		}
		s, cfg := n.servers, rpc.ServerConfig{
			Logger: n.cfg.Logger, Latest: n.latest, Admin: n.transport.admin, Register: n.joining.register,
			Policy: n.policy.LastRead, LegacyCerts: n.certs.clients, Clients: &n.clients,
			Resolve: n.client.ResolveAt,
		}
		// Without certificates the server speaks plain text, to clients and nodes alike.
		if n.joining.files != nil {
			cfg.TLS = n.joining.files.Clients(certs.AllRoles()...)
			cfg.Revoked = n.joining.files.Revoked
		}
		s.grpc, s.served = rpc.NewServer(n.transport, cfg), make(chan error, 1)
		go func() { s.served <- s.grpc.Serve(l) }() // joined by close
	}
	n.background.start(n.window.Run)
	// Last: from here on probes find the node ready, and HTTP tells everything.
	n.pages.Store(&console.Parts{
		Client: n.client, Window: n.window, Transport: n.transport,
		Admin: n.transport.AdminConn(), FindToken: n.meta.Tokens.Find,
	})
	n.serving.Store(true)
	return nil
}

// clusterStatus returns what the console shows of the cluster. Tables that meta does not
// tell within a second are missing.
func (n *Node) clusterStatus(ctx context.Context) (*pb.ClusterStatusResponse, []*pb.Table,
	error) {
	if !n.serving.Load() {
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

// errStopping is the error of readiness once Close has begun.
var errStopping = errors.New("node: stopping")

// ready returns nil while the node serves, else all reasons why it does not. Probes call
// it on any goroutine. After a quiet time it waits for meta, see metaHealth.
func (n *Node) ready(ctx context.Context) error {
	serves := func() error {
		n.mu.Lock()
		defer n.mu.Unlock()
		// This comes first: serving, once true, stays so.
		if n.closed {
			return errStopping
		}
		if why := n.waiting.Load(); !n.serving.Load() && why != nil {
			return fmt.Errorf("%w: %s", console.ErrStarting, *why)
		}
		if !n.serving.Load() {
			return console.ErrStarting
		}
		return nil
	}
	if err := serves(); err != nil {
		return err
	}
	// The wait may take seconds, in which the node may be closed: look again after it.
	// All reasons are joined, so that one probe shows everything that is to be mended.
	meta := n.health.check(ctx)
	if err := serves(); err != nil {
		return err
	}
	return errors.Join(n.store.Damaged(), n.tablets.failures.first(),
		n.tablets.replicas.Stats().Why, n.store.WriteBlocked(), n.certs.expired(), meta)
}

// latest returns a timestamp of at least ts if the oracle has issued ts, and one below ts
// otherwise. It asks the oracle only if ts is later than all that this node has seen.
func (n *Node) latest(ctx context.Context, ts mvcc.Timestamp) (mvcc.Timestamp, error) {
	// An oracle that runs here knows the last timestamp itself; otherwise what came from
	// the leader's is the latest that this node can know of.
	last, _, _ := n.oracle.stats()
	if seen := max(last, n.oracles.Seen()); ts <= seen {
		return seen, nil
	}
	return n.client.Timestamp(ctx)
}

// Addr returns the address that serves remote clients, as others are told it; empty if
// there is none or the node does not serve yet.
func (n *Node) Addr() string {
	if !n.serving.Load() || n.servers.grpc == nil {
		return ""
	}
	return n.joining.at.Listen
}

// reachedBy returns the host at which clients are told to reach this node; empty if there is none or the
// node does not serve yet.
func (n *Node) reachedBy() string {
	host, _, err := net.SplitHostPort(n.Addr())
	if err != nil {
		return ""
	}
	return host
}

// HTTPAddr returns the address of the HTTP listener; empty if there is none.
func (n *Node) HTTPAddr() string {
	if n.servers == nil || n.servers.http == nil {
		return ""
	}
	return n.servers.http.Addr()
}

// drainGrace bounds the wait for remote clients' streams, since an idle one never ends by
// itself.
const drainGrace = 2 * time.Second

// drain refuses new remote work and waits, up to drainGrace, for what is under way.
func (s *servers) drain(ctx context.Context) {
	if s.grpc == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, drainGrace)
	defer cancel()
	// Streams that are still open at the end of ctx are cut off.
	s.grpc.Shutdown(ctx)
}

// close ends the servers and what is under way in them, and joins the gRPC server.
func (s *servers) close() error {
	var errs []error
	if s.grpc != nil {
		s.grpc.Stop()
		errs = append(errs, <-s.served)
	}
	// HTTP ends last: until then probes are told that the node is stopping.
	if s.http != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		errs = append(errs, s.http.Close(ctx))
	}
	return errors.Join(errs...)
}
