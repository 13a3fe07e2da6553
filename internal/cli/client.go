package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/certs"
	"github.com/percolator-go/percolator/internal/config"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/rpc"
	"github.com/percolator-go/percolator/internal/txn"
)

// errTimeout ends a command that took longer than --timeout, errInterrupted one that got a signal.
var (
	errTimeout     = errors.New("no answer in time")
	errInterrupted = errors.New("interrupted")
)

// timeoutFlag bounds a client command.
type timeoutFlag = time.Duration

// clientFlags say how a node is reached.
type clientFlags struct {
	addrs         []string
	insecure      bool
	certs         string // a folder of them
	cert, key, ca string
}

// withClient gives the command the flags of every command that talks to a node.
func (r *run) withClient(cmd *cobra.Command) *cobra.Command {
	flags := cmd.Flags()
	flags.StringSliceVar(&r.client.addrs, "addr", []string{config.DefaultListen}, "--listen addresses of nodes; the first that answers serves")
	flags.BoolVar(&r.client.insecure, "insecure", false, "talk plain text to addresses that are not this machine's")
	flags.StringVar(&r.client.certs, "certs", "", "folder with ca.crt, client.crt and client.key, or a node's folder")
	flags.StringVar(&r.client.cert, "cert", "", "PEM file with this client's certificate")
	flags.StringVar(&r.client.key, "key", "", "PEM file with its key")
	flags.StringVar(&r.client.ca, "ca", "", "PEM file with the authority that signed the nodes' certificates")
	flags.DurationVar(&r.timeout, "timeout", 15*time.Second, "give up after this time; a command that may take long connects in it")
	return r.withOutput(cmd)
}

// session is a connection to a running node.
type session struct {
	transport txn.Transport
	client    *txn.Client
	admin     pb.AdminClient
	db        *percolator.DB
}

// talk connects, runs the function, and closes. The context ends after --timeout, or with a signal.
func (r *run) talk(cmd *cobra.Command, fn func(ctx context.Context, s *session) error) error {
	ctx, end := r.interruptible(cmd.Context())
	defer end()
	ctx, cancel := context.WithTimeoutCause(ctx, r.timeout, errTimeout)
	defer cancel()
	s, err := r.connect(ctx, cmd)
	if err != nil {
		return r.cutShort(ctx, err)
	}
	return r.cutShort(ctx, s.during(ctx, fn))
}

// talkLong is talk for what may take hours: --timeout bounds the connecting only, and
// whatever fn bounds by itself. Nothing hangs for that: an operation that nobody serves
// fails by itself (txn.Config.OperationTimeout).
func (r *run) talkLong(cmd *cobra.Command, fn func(ctx context.Context, s *session) error) error {
	ctx, end := r.interruptible(cmd.Context())
	defer end()
	connecting, cancel := context.WithTimeoutCause(ctx, r.timeout, errTimeout)
	defer cancel()
	s, err := r.connect(connecting, cmd)
	if err != nil {
		return r.cutShort(connecting, err)
	}
	return r.cutShort(ctx, s.during(ctx, fn))
}

// connect reaches a node by the command's flags.
func (r *run) connect(ctx context.Context, cmd *cobra.Command) (*session, error) {
	cfg, err := r.clientConfig(cmd)
	if err != nil {
		return nil, err
	}
	transport, err := r.Connect(ctx, r.client.addrs, cfg)
	if err != nil {
		return nil, err
	}
	r.connected = true
	client := txn.NewClient(transport, txn.Config{})
	return &session{transport: transport, client: client, admin: client.Admin(), db: percolator.NewDB(client)}, nil
}

// during runs the function and closes the connection; an error of the function goes
// before one of closing.
func (s *session) during(ctx context.Context, fn func(ctx context.Context, s *session) error) error {
	err := fn(ctx, s)
	if closing := s.client.Close(); err == nil {
		err = closing
	}
	return err
}

// now is the oracle's time. Ages and expiries are told by it: this machine's clock has no
// say in them.
func (s *session) now(ctx context.Context) (mvcc.Timestamp, error) { return s.client.Timestamp(ctx) }

// interruptible returns a context that the first signal ends, so that a command may put
// its things in order. end lets go of the signals.
func (r *run) interruptible(parent context.Context) (ctx context.Context, end func()) {
	ctx, cancel := context.WithCancelCause(parent)
	if r.Signals == nil {
		return ctx, func() { cancel(nil) }
	}
	done := make(chan struct{})
	stopped := make(chan struct{})
	go func() { // joined by end
		defer close(stopped)
		select {
		case _, ok := <-r.Signals:
			if ok {
				cancel(errInterrupted)
			}
		case <-done:
		}
	}()
	return ctx, func() {
		close(done)
		<-stopped
		cancel(nil)
	}
}

// cutShort says what ended the context before the command was through: a signal, or
// --timeout, which names the addresses.
func (r *run) cutShort(ctx context.Context, err error) error {
	switch cause := context.Cause(ctx); {
	case err == nil || ctx.Err() == nil || errors.Is(err, cause):
		return err
	case errors.Is(cause, errInterrupted): // what failed because of it is told after it
		return fmt.Errorf("%w: %w", errInterrupted, err)
	case errors.Is(cause, errTimeout):
		return fmt.Errorf("%w (%v, %v): %w", errTimeout, r.timeout, r.client.addrs, err)
	}
	return err
}

// clientConfig decides between certificates and plain text. Plain text needs no flag on
// loopback addresses.
func (r *run) clientConfig(cmd *cobra.Command) (rpc.ClientConfig, error) {
	c := r.client
	cfg := rpc.ClientConfig{Insecure: c.insecure, CertFile: c.cert, KeyFile: c.key, CAFile: c.ca}
	files := c.cert != "" || c.key != "" || c.ca != ""
	switch {
	case len(c.addrs) == 0:
		return cfg, usagef(cmd, "--addr names no address")
	case c.insecure && (files || c.certs != ""):
		return cfg, usagef(cmd, "--insecure and certificates exclude each other")
	case c.certs != "" && files:
		return cfg, usagef(cmd, "--certs names a folder, --cert, --key and --ca name files: give one or the other")
	case c.certs != "":
		return folderConfig(c.certs), nil
	case files && (c.cert == "" || c.key == "" || c.ca == ""):
		return cfg, usagef(cmd, "--cert, --key and --ca go together")
	case files, c.insecure:
		return cfg, nil
	}
	for _, addr := range c.addrs {
		if !config.IsLoopback(addr) {
			return cfg, usagef(cmd, "%s is not this machine: give --certs, or --insecure for plain text", addr)
		}
	}
	cfg.Insecure = true
	return cfg, nil
}

// folderConfig uses a client's files in a folder; where there is no client's certificate,
// a node's, which may do more.
func folderConfig(dir string) rpc.ClientConfig {
	s := certs.ClientSource(dir)
	if node := certs.NodeSource(dir); !exists(s.Cert) && exists(node.Cert) {
		s = node
	}
	return rpc.ClientConfig{CertFile: s.Cert, KeyFile: s.Key, CAFile: s.CA}
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// pause waits, unless ctx ends first.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
