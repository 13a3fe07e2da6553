package shell

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/certs"
	"github.com/percolator-go/percolator/internal/coded"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/inspect"
	"github.com/percolator-go/percolator/internal/rpc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/node/config"
)

// Connecting commands to a node, and ending them early. session.go contains their requests.

// usualTimeout is the default of --timeout.
const usualTimeout = 15 * time.Second

// ErrTimeout ends a command after --timeout, errInterrupted after a signal.
var (
	ErrTimeout     = errors.New("no answer in time")
	errInterrupted = errors.New("interrupted")
)

// Connector connects a command to a node. It contains the flags for that, and ends commands early on a
// signal.
type Connector struct {
	app           *App
	out           *Printer
	addrs         []string
	insecure      bool
	certs         string // a folder
	cert, key, ca string
	proxy         bool
	Timeout       time.Duration
	// reached is set once a node has answered, so that the advice on a later failure does not
	// suggest that no node runs.
	reached bool
	// noQuorum is set if a command has failed while tablets had no quorum.
	noQuorum bool
}

// register adds the flags of every command that talks to a node.
func (c *Connector) register(flags *pflag.FlagSet) {
	flags.StringSliceVar(&c.addrs, "addr", []string{config.DefaultListen},
		"--listen addresses of nodes; the first that answers is used")
	flags.BoolVar(&c.insecure, "insecure", false,
		"allow plain text to addresses of other machines")
	flags.StringVar(&c.certs, "certs", "",
		"folder with ca.crt, client.crt and client.key, or a node's folder")
	flags.StringVar(&c.cert, "cert", "", "PEM file with this client's certificate")
	flags.StringVar(&c.key, "key", "", "PEM file with the client's key")
	flags.StringVar(&c.ca, "ca", "", "PEM file with the authority of the nodes' "+
		"certificates")
	flags.BoolVar(&c.proxy, "proxy", false,
		"connect through the proxy that HTTPS_PROXY names; without it connections are direct")
	flags.DurationVar(&c.Timeout, "timeout", usualTimeout,
		"timeout of the command; for long-running commands, of connecting only")
}

// Run connects, runs fn, and closes. The context ends after --timeout, or with a signal.
func (c *Connector) Run(cmd *cobra.Command, fn func(context.Context, *Session) error) error {
	return c.Talk(cmd, fn, false)
}

// RunLong connects and runs fn, for commands that may take hours: --timeout limits only connecting, and
// what fn itself limits by it. Operations that no node serves still fail after txn.Config.OperationTimeout.
func (c *Connector) RunLong(cmd *cobra.Command, fn func(context.Context, *Session) error) error {
	return c.Talk(cmd, fn, true)
}

// Talk connects, runs fn, and closes. --timeout limits all of that, or only the connection if
// long is set.
func (c *Connector) Talk(cmd *cobra.Command, fn func(context.Context, *Session) error,
	long bool) error {
	ctx, end := c.Interruptible(cmd.Context())
	defer end()
	bounded, cancel := context.WithTimeoutCause(ctx, c.Timeout, ErrTimeout)
	defer cancel()
	s, err := c.Connect(bounded, cmd)
	if err != nil {
		return c.CutShort(bounded, err)
	}
	if !long {
		ctx = bounded
	}
	err = fn(ctx, s)
	if unserved := errors.Is(err, percolator.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded); unserved &&
		!errors.Is(context.Cause(ctx), errInterrupted) {
		c.noQuorum = noQuorum(s)
	}
	if closing := s.Client.Close(); err == nil {
		err = closing
	}
	return c.CutShort(ctx, err)
}

// Connect reaches a node by the command's flags.
func (c *Connector) Connect(ctx context.Context, cmd *cobra.Command) (*Session, error) {
	cfg, err := c.Config(cmd)
	if err != nil {
		return nil, err
	}
	c.out.Flags = givenFlags(cmd)
	// A longer timeout than the default also waits for a node to be started.
	if c.Timeout > usualTimeout {
		cfg.DialTimeout, cfg.AwaitStart = c.Timeout, true
	}
	transport, err := c.app.Connect(ctx, c.addrs, cfg)
	if err != nil {
		return nil, err
	}
	c.reached = true
	client := txn.NewClient(transport, txn.Config{})
	return &Session{
		Out: c.out, Conn: c, Transport: transport, Client: client, Admin: client.Admin(),
		DB: handle.NewDB(client),
	}, nil
}

// givenFlags returns the flags of the command line by which a node is reached: commands that are
// suggested need them too, but not those of the environment or a file.
func givenFlags(cmd *cobra.Command) string {
	var given []string
	for _, name := range []string{"addr", "certs", "cert", "key", "ca", "insecure", "proxy"} {
		f := cmd.Flags().Lookup(name)
		switch {
		case f == nil || !f.Changed || Origin(cmd, name) != "":
		case f.Value.Type() == "bool":
			given = append(given, "--"+name)
		case name == "addr":
			given = append(given, "--addr "+inspect.Quote(strings.Trim(f.Value.String(), "[]")))
		default:
			given = append(given, "--"+name+" "+inspect.Quote(f.Value.String()))
		}
	}
	return strings.Join(given, " ")
}

// noQuorum reports whether tablets have no quorum, as far as the node knows and answers.
func noQuorum(s *Session) bool {
	ctx, cancel := context.WithTimeout(context.Background(), NodesPatience)
	defer cancel()
	status, err := s.Admin.ClusterStatus(ctx, &pb.ClusterStatusRequest{})
	return err == nil && status.GetSurvives() < 0
}

// Interruptible returns a context that the first signal cancels, so that a command can
// save its progress. end releases the signals.
func (c *Connector) Interruptible(parent context.Context) (ctx context.Context, end func()) {
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

// CutShort adds to err why ctx ended before the command did: a signal, or --timeout, with the
// addresses.
func (c *Connector) CutShort(ctx context.Context, err error) error {
	switch cause := context.Cause(ctx); {
	case err == nil || ctx.Err() == nil || errors.Is(err, cause):
		return err
	case errors.Is(cause, errInterrupted): // err is a consequence of it
		return coded.Errorf("", "%w: %w", errInterrupted, err)
	case errors.Is(cause, ErrTimeout):
		return coded.Errorf("", "%w (%v, %v): %w", ErrTimeout, c.Timeout, c.addrs, err)
	}
	return err
}

// Config chooses between certificates and plain text, which needs no flag on loopback addresses.
func (c *Connector) Config(cmd *cobra.Command) (rpc.ClientConfig, error) {
	cfg := rpc.ClientConfig{Insecure: c.insecure, CertFile: c.cert, KeyFile: c.key, CAFile: c.ca, Proxy: c.proxy}
	files := c.cert != "" || c.key != "" || c.ca != ""
	switch {
	case len(c.addrs) == 0:
		return cfg, Usagef(cmd, "--addr contains no address")
	case c.insecure && (files || c.certs != ""):
		return cfg, Usagef(cmd, "--insecure%s and certificates%s exclude each other",
			Origin(cmd, "insecure"), Origin(cmd, "certs"))
	case c.certs != "" && files:
		return cfg, Usagef(cmd, "--certs names a folder, --cert, --key and --ca name files: "+
			"use one or the other")
	case c.certs != "":
		cfg = folderConfig(c.certs)
		cfg.Proxy = c.proxy
		return cfg, nil
	case files && (c.cert == "" || c.key == "" || c.ca == ""):
		return cfg, Usagef(cmd, "--cert, --key and --ca go together")
	case files, c.insecure:
		return cfg, nil
	}
	for _, addr := range c.addrs {
		if err := rpc.CheckAddress(addr); err != nil {
			return cfg, err
		}
		if !config.IsLoopback(rpc.WithPort(addr)) {
			return cfg, Usagef(cmd, "%s is not this machine: give --certs, or --insecure for "+
				"plain text", addr)
		}
	}
	cfg.Insecure = true
	return cfg, nil
}

// folderConfig uses a client's files in a folder or, without a client's certificate, a node's, which
// has all permissions.
func folderConfig(dir string) rpc.ClientConfig {
	s := certs.ClientSource(dir)
	if node := certs.NodeSource(dir); !Exists(s.Cert) && Exists(node.Cert) {
		s = node
	}
	return rpc.ClientConfig{CertFile: s.Cert, KeyFile: s.Key, CAFile: s.CA}
}

// Exists reports whether the file can be found.
func Exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// WhoAmI returns the user and host of this process, for operators; only the host if the user is
// unknown, and "" if the host is.
func WhoAmI() string {
	host, err := os.Hostname()
	who, also := user.Current()
	if err != nil || also != nil {
		return host
	}
	return who.Username + "@" + host
}

// OriginKey is the key of a flag's annotation with the origin of a value that was not on the command
// line.
const OriginKey = "origin"

// Origin returns, in parentheses, the origin of a flag's value, or "" if it was on the command line or
// is the default.
func Origin(cmd *cobra.Command, flag string) string {
	if f := cmd.Flags().Lookup(flag); f != nil && len(f.Annotations[OriginKey]) > 0 {
		return fmt.Sprintf(" (from %s)", f.Annotations[OriginKey][0])
	}
	return ""
}
