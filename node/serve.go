package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/httpd"
	"github.com/percolator-go/percolator/internal/rpc"
	"github.com/percolator-go/percolator/internal/version"
)

// servers are the node's listeners.
type servers struct {
	grpc   *rpc.Server
	listen net.Listener
	served chan error // the gRPC server's end
	http   *httpd.Server
}

// Version is the version of this build.
func Version() string { return version.String() }

// serve opens the listeners.
func (n *Node) serve(ctx context.Context) error {
	s := &servers{}
	n.servers = s
	var err error
	if n.cfg.Listen != "" {
		// So that latest knows without asking for each: timestamps of the oracle's last life are below this one.
		if _, err = n.client.Timestamp(ctx); err != nil {
			return fmt.Errorf("node: the oracle gives no timestamp: %w", err)
		}
		if s.listen, err = net.Listen("tcp", n.cfg.Listen); err != nil {
			return fmt.Errorf("node: listen for clients: %w", err)
		}
		s.grpc, s.served = rpc.NewServer(n.transport(), rpc.ServerConfig{Logger: n.cfg.Logger, Latest: n.latest}), make(chan error, 1)
		go func() { s.served <- s.grpc.Serve(s.listen) }() // joined by close
	}
	if addr := n.cfg.HTTPAddr(); addr != "" {
		s.http, err = httpd.Open(httpd.Options{
			Addr: addr, Metrics: n.gatherer(), Logger: n.cfg.Logger, Ready: n.ready, Cluster: n.overview,
			Status: func(ctx context.Context) *pb.NodeStatusResponse {
				status, _ := n.status(ctx) // what could be gathered in time
				return status
			},
		})
		if err != nil {
			return fmt.Errorf("node: listen for HTTP: %w", err)
		}
	}
	return nil
}

// overview is what the page shows of the cluster: what could be gathered in time.
func (n *Node) overview(ctx context.Context) ([]*pb.ObserverState, []*pb.Table) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	observers, _ := n.transport().Observers(ctx)
	tables, _ := n.meta.Tables(ctx)
	return observers, tables
}

var errStopping = errors.New("node: stopping")

// ready is nil while the node serves.
func (n *Node) ready(context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return errStopping
	}
	return errors.Join(n.host.failure(), n.store.WriteBlocked())
}

// Addr is the address that serves remote clients; empty if there is none.
func (n *Node) Addr() string {
	if n.servers == nil || n.servers.grpc == nil {
		return ""
	}
	if n.cfg.Advertise != "" {
		return n.cfg.Advertise
	}
	return n.servers.listen.Addr().String()
}

// HTTPAddr is the address of the HTTP listener; empty if there is none.
func (n *Node) HTTPAddr() string {
	if n.servers == nil || n.servers.http == nil {
		return ""
	}
	return n.servers.http.Addr()
}

// drainGrace bounds how long remote clients' streams are waited for: an idle one never ends by itself.
const drainGrace = 2 * time.Second

// drain takes no new remote work and waits for what is under way.
func (s *servers) drain(ctx context.Context) {
	if s.grpc == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, drainGrace)
	defer cancel()
	s.grpc.Shutdown(ctx)
}

func (s *servers) close() error {
	var errs []error
	if s.grpc != nil {
		s.grpc.Stop()
		errs = append(errs, <-s.served)
	}
	if s.http != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		errs = append(errs, s.http.Close(ctx))
	}
	return errors.Join(errs...)
}
