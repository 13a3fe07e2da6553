package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/config"
	"github.com/percolator-go/percolator/internal/rpc"
	"github.com/percolator-go/percolator/internal/txn"
)

// errTimeout ends a command that took longer than --timeout.
var errTimeout = errors.New("no answer in time")

// timeoutFlag bounds a client command.
type timeoutFlag = time.Duration

// clientFlags say how a node is reached.
type clientFlags struct {
	addrs         []string
	insecure      bool
	cert, key, ca string
}

// withClient gives the command the flags of every command that talks to a node.
func (r *run) withClient(cmd *cobra.Command) *cobra.Command {
	flags := cmd.Flags()
	flags.StringSliceVar(&r.client.addrs, "addr", []string{config.DefaultListen}, "--listen addresses of nodes; the first that answers serves")
	flags.BoolVar(&r.client.insecure, "insecure", false, "talk plain text to addresses that are not this machine's")
	flags.StringVar(&r.client.cert, "cert", "", "PEM file with this client's certificate")
	flags.StringVar(&r.client.key, "key", "", "PEM file with its key")
	flags.StringVar(&r.client.ca, "ca", "", "PEM file with the authority that signed the nodes' certificates")
	flags.DurationVar(&r.timeout, "timeout", 15*time.Second, "give up after this time")
	return r.withOutput(cmd)
}

// session is a connection to a running node.
type session struct {
	transport txn.Transport
	client    *txn.Client
	db        *percolator.DB
}

// talk connects, runs the function, and closes. The context ends after --timeout.
func (r *run) talk(cmd *cobra.Command, fn func(ctx context.Context, s *session) error) error {
	ctx, cancel := context.WithTimeoutCause(cmd.Context(), r.timeout, errTimeout)
	defer cancel()
	cfg, err := r.clientConfig(cmd)
	if err != nil {
		return err
	}
	transport, err := r.Connect(ctx, r.client.addrs, cfg)
	if err != nil {
		return r.timedOut(ctx, err)
	}
	client := txn.NewClient(transport, txn.Config{})
	s := &session{transport: transport, client: client, db: percolator.NewDB(client)}
	err = fn(ctx, s)
	if closing := client.Close(); err == nil {
		err = closing
	}
	return r.timedOut(ctx, err)
}

// timedOut names the addresses if time ran out.
func (r *run) timedOut(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil || !errors.Is(context.Cause(ctx), errTimeout) {
		return err
	}
	return fmt.Errorf("%w (%v, %v): %w", errTimeout, r.timeout, r.client.addrs, err)
}

// clientConfig decides between certificates and plain text. Plain text needs no flag on loopback addresses.
func (r *run) clientConfig(cmd *cobra.Command) (rpc.ClientConfig, error) {
	c := r.client
	cfg := rpc.ClientConfig{Insecure: c.insecure, CertFile: c.cert, KeyFile: c.key, CAFile: c.ca}
	if len(c.addrs) == 0 {
		return cfg, usagef(cmd, "--addr names no address")
	}
	if c.cert != "" || c.key != "" || c.ca != "" {
		if c.insecure {
			return cfg, usagef(cmd, "--insecure and certificates exclude each other")
		}
		if c.cert == "" || c.key == "" || c.ca == "" {
			return cfg, usagef(cmd, "--cert, --key and --ca go together")
		}
		return cfg, nil
	}
	if c.insecure {
		return cfg, nil
	}
	for _, addr := range c.addrs {
		if !config.IsLoopback(addr) {
			return cfg, usagef(cmd, "%s is not this machine: give --cert, --key and --ca, or --insecure for plain text", addr)
		}
	}
	cfg.Insecure = true
	return cfg, nil
}
