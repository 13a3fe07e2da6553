package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/percolator-go/percolator/internal/certs"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/rpc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/node/config"
)

// This file connects commands to a node, and ends them early. What they ask is in
// session.go.

// usualTimeout is --timeout unless given.
const usualTimeout = 15 * time.Second

// errTimeout ends a command after --timeout, errInterrupted after a signal.
var (
	errTimeout     = errors.New("no answer in time")
	errInterrupted = errors.New("interrupted")
)

// connector connects a command to a node. It holds the flags for that, and ends commands
// early on a signal.
type connector struct {
	app           *App
	out           *printer
	addrs         []string
	insecure      bool
	certs         string // a folder of them
	cert, key, ca string
	proxy         bool
	timeout       time.Duration
	// reached is set once a node has answered: later failures have another reason than
	// that no node runs.
	reached bool
}

// register adds the flags of every command that talks to a node.
func (c *connector) register(flags *pflag.FlagSet) {
	flags.StringSliceVar(&c.addrs, "addr", []string{config.DefaultListen},
		"--listen addresses of nodes; the first that answers serves")
	flags.BoolVar(&c.insecure, "insecure", false,
		"talk plain text to addresses that are not this machine's")
	flags.StringVar(&c.certs, "certs", "",
		"folder with ca.crt, client.crt and client.key, or a node's folder")
	flags.StringVar(&c.cert, "cert", "", "PEM file with this client's certificate")
	flags.StringVar(&c.key, "key", "", "PEM file with its key")
	flags.StringVar(&c.ca, "ca", "", "PEM file with the authority that signed the nodes' "+
		"certificates")
	flags.BoolVar(&c.proxy, "proxy", false,
		"connect through the proxy that HTTPS_PROXY names; without it connections are direct")
	flags.DurationVar(&c.timeout, "timeout", usualTimeout,
		"give up after this time; a command that may take long connects in it")
}

// run connects, runs fn, and closes. The context ends after --timeout, or with a signal.
func (c *connector) run(cmd *cobra.Command, fn func(context.Context, *session) error) error {
	return c.talk(cmd, fn, false)
}

// runLong is like run for commands that may take hours: --timeout limits only the
// connection, and what fn itself limits by it. Operations that nobody serves still fail, by
// txn.Config.OperationTimeout.
func (c *connector) runLong(cmd *cobra.Command, fn func(context.Context, *session) error) error {
	return c.talk(cmd, fn, true)
}

func (c *connector) talk(cmd *cobra.Command, fn func(context.Context, *session) error,
	long bool) error {
	ctx, end := c.interruptible(cmd.Context())
	defer end()
	bounded, cancel := context.WithTimeoutCause(ctx, c.timeout, errTimeout)
	defer cancel()
	s, err := c.connect(bounded, cmd)
	if err != nil {
		return c.cutShort(bounded, err)
	}
	if !long {
		ctx = bounded
	}
	err = fn(ctx, s)
	if closing := s.client.Close(); err == nil {
		err = closing
	}
	return c.cutShort(ctx, err)
}

// connect reaches a node by the command's flags.
func (c *connector) connect(ctx context.Context, cmd *cobra.Command) (*session, error) {
	cfg, err := c.config(cmd)
	if err != nil {
		return nil, err
	}
	// Who gives more time than usual waits for a node to be started.
	if c.timeout > usualTimeout {
		cfg.DialTimeout, cfg.AwaitStart = c.timeout, true
	}
	transport, err := c.app.Connect(ctx, c.addrs, cfg)
	if err != nil {
		return nil, err
	}
	c.reached = true
	client := txn.NewClient(transport, txn.Config{})
	return &session{
		out: c.out, conn: c, transport: transport, client: client, admin: client.Admin(),
		db: handle.NewDB(client),
	}, nil
}

// interruptible returns a context that the first signal cancels, so that a command can
// save its progress. end releases the signals.
func (c *connector) interruptible(parent context.Context) (ctx context.Context, end func()) {
	ctx, cancel := context.WithCancelCause(parent)
	if c.app.Signals == nil {
		return ctx, func() { cancel(nil) }
	}
	done := make(chan struct{})
	stopped := make(chan struct{})
	go func() { // joined by end
		defer close(stopped)
		select {
		case _, ok := <-c.app.Signals:
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

// cutShort adds to err why ctx ended before the command did: a signal, or --timeout, for
// which it names the addresses.
func (c *connector) cutShort(ctx context.Context, err error) error {
	switch cause := context.Cause(ctx); {
	case err == nil || ctx.Err() == nil || errors.Is(err, cause):
		return err
	case errors.Is(cause, errInterrupted): // err is a consequence of it
		return fmt.Errorf("%w: %w", errInterrupted, err)
	case errors.Is(cause, errTimeout):
		return fmt.Errorf("%w (%v, %v): %w", errTimeout, c.timeout, c.addrs, err)
	}
	return err
}

// config decides between certificates and plain text. Plain text needs no flag on
// loopback addresses.
func (c *connector) config(cmd *cobra.Command) (rpc.ClientConfig, error) {
	cfg := rpc.ClientConfig{Insecure: c.insecure, CertFile: c.cert, KeyFile: c.key, CAFile: c.ca, Proxy: c.proxy}
	files := c.cert != "" || c.key != "" || c.ca != ""
	switch {
	case len(c.addrs) == 0:
		return cfg, usagef(cmd, "--addr names no address")
	case c.insecure && (files || c.certs != ""):
		return cfg, usagef(cmd, "--insecure%s and certificates%s exclude each other",
			origin(cmd, "insecure"), origin(cmd, "certs"))
	case c.certs != "" && files:
		return cfg, usagef(cmd, "--certs names a folder, --cert, --key and --ca name files: "+
			"give one or the other")
	case c.certs != "":
		cfg = folderConfig(c.certs)
		cfg.Proxy = c.proxy
		return cfg, nil
	case files && (c.cert == "" || c.key == "" || c.ca == ""):
		return cfg, usagef(cmd, "--cert, --key and --ca go together")
	case files, c.insecure:
		return cfg, nil
	}
	for _, addr := range c.addrs {
		if err := rpc.CheckAddress(addr); err != nil {
			return cfg, err
		}
		if !config.IsLoopback(rpc.WithPort(addr)) {
			return cfg, usagef(cmd, "%s is not this machine: give --certs, or --insecure for "+
				"plain text", addr)
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
