package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/percolator-go/percolator/internal/config"
	"github.com/percolator-go/percolator/internal/policy"
)

// startCommand runs one of a cluster's nodes, or the only one.
func (r *run) startCommand() *cobra.Command {
	n := &nodeFlags{}
	cmd := &cobra.Command{
		Use:   "start --dir DIR (--certs DIR | --insecure)",
		Short: "Run a node",
		Long: `Run a node over the data in --dir, which is created when missing.

SIGTERM or SIGINT drains the node: it takes no new work, finishes observers and commits under way, and exits 0.
A second signal, a moment later, ends it at once; nothing acknowledged is lost either way.

With an empty directory it begins a new cluster. With --join it becomes a node of the one that the nodes at those
addresses belong to, and waits for them as long as it takes. With --expect N on N nodes with empty directories and the
same --join, they begin one cluster together. A node that has been started before comes back to its cluster by itself.

Nodes show each other certificates (--certs; "cert" makes them), or talk in plain text on loopback addresses (--insecure).`,
		Example: r.example("start --dir data --insecure", "start --dir data2 --insecure --listen 127.0.0.1:7900 --join 127.0.0.1:7800",
			"start --dir data --certs certs --listen 10.0.0.1:7800 --join 10.0.0.1,10.0.0.2,10.0.0.3 --expect 3 --labels zone=a"),
		Args: noArgs,
	}
	flags := cmd.Flags()
	n.register(flags)
	flags.StringVar(&n.cfg.Dir, "dir", "", "directory of the node's data and identity")
	flags.StringVar(&n.cfg.LogDir, "log-dir", "", "directory of the Raft log, such as on a device of its own; empty: inside of --dir")
	flags.StringSliceVar(&n.cfg.Join, "join", nil, "host[:port] of nodes to join, as they were given to --listen")
	flags.IntVar(&n.cfg.Expect, "expect", n.cfg.Expect, "how many nodes with empty directories begin a cluster together")
	flags.StringVar(&n.cfg.Peer, "peer", n.cfg.Peer, "host:port for traffic between nodes; auto: --listen's next port")
	flags.StringVar(&n.cfg.Gossip, "gossip", n.cfg.Gossip, "host:port for gossip, TCP and UDP; auto: --listen's second next port")
	flags.IntVar(&n.cfg.Replicas, "replicas", n.cfg.Replicas, "target number of replicas of a tablet: 1, 3 or 5"+founds)
	flags.StringVar(&n.cfg.Certs, "certs", "", "folder of the node's certificates and gossip keys")
	flags.BoolVar(&n.cfg.Insecure, "insecure", false, "serve plain text, on loopback addresses only")
	flags.BoolVar(&n.cfg.InsecureForce, "insecure-force", false, "lift --insecure's restriction to loopback addresses")
	flags.BoolVar(&n.cfg.InsecureHTTP, "insecure-http", false, "with --certs: serve HTTP, which is plain text, where others reach it")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if n.cfg.InsecureForce {
			n.cfg.Insecure = true
		}
		for _, s := range policy.Settings() {
			if flags.Changed(s.Name) {
				n.cfg.Given = append(n.cfg.Given, s.Name)
			}
		}
		return r.serve(cmd.Context(), n)
	}
	return r.withOutput(cmd)
}

// devCommand is start with a directory that goes with the node.
func (r *run) devCommand() *cobra.Command {
	n := &nodeFlags{}
	cmd := &cobra.Command{
		Use:     "dev",
		Short:   "Run a throw-away node: a temporary directory, gone when it stops",
		Example: r.example("dev", "dev --listen 127.0.0.1:0 --http="),
		Args:    noArgs,
	}
	n.register(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		dir, err := os.MkdirTemp("", "percolator-dev-")
		if err != nil {
			return err
		}
		n.cfg.Dir, n.cfg.Insecure, n.cfg.Replicas = dir, true, 1
		n.cfg.Peer, n.cfg.Gossip = "", "" // it stays alone
		err = r.serve(cmd.Context(), n)
		return errors.Join(err, os.RemoveAll(dir))
	}
	return r.withOutput(cmd)
}

// serve runs a node until a signal or the end of ctx.
func (r *run) serve(ctx context.Context, n *nodeFlags) error {
	logger, err := r.logger(n)
	if err != nil {
		return err
	}
	n.cfg.Logger, n.cfg.Labels, n.cfg.Observers = logger, n.labels, r.Observers
	if err := n.cfg.Validate(); err != nil {
		return err
	}
	if n.cfg.Insecure {
		_, _ = fmt.Fprint(r.Stderr, banner(&n.cfg))
	}
	opening, cancel := context.WithCancel(ctx)
	defer cancel()
	forced := r.watch(cancel)
	node, err := r.Start(opening, n.cfg)
	if err != nil && opening.Err() != nil && ctx.Err() == nil && errors.Is(err, context.Canceled) {
		r.note("stopped before it served")
		return nil // a signal, such as to a node that waits to join
	}
	if err != nil {
		return err
	}
	if err := r.announce(node, n.ready); err != nil {
		return errors.Join(err, node.Close(ctx))
	}
	var failed error
	select {
	case <-opening.Done():
	case failed = <-failure(node):
	}
	err = r.stop(context.WithoutCancel(ctx), node, &n.cfg, forced)
	if n.ready != "" {
		err = errors.Join(err, os.Remove(n.ready))
	}
	return errors.Join(failed, err)
}

// failure delivers why a node cannot go on, such as that another process runs as this node.
func failure(node RunningNode) <-chan error {
	if f, ok := node.(interface{ Failed() <-chan error }); ok {
		return f.Failed()
	}
	return nil
}

// sameSignal: signals that come so soon after the first are the first, for timeout(1) and
// the like send one to the process and again to its process group.
const sameSignal = 50 * time.Millisecond

// watch cancels on the first signal and closes the channel it returns on the second. Its
// goroutine ends with the process, or with Signals.
func (r *run) watch(cancel context.CancelFunc) <-chan struct{} {
	forced := make(chan struct{})
	if r.Signals == nil {
		return forced
	}
	go func() {
		if _, ok := <-r.Signals; !ok {
			return
		}
		first := time.Now()
		cancel()
		for range r.Signals {
			if time.Since(first) >= sameSignal {
				close(forced)
				return
			}
		}
	}()
	return forced
}

// errForced is how a node ends that a second signal stopped.
var errForced = errors.New("stopped before it was drained")

// stop drains and closes the node; a second signal cuts both short.
func (r *run) stop(ctx context.Context, node RunningNode, cfg *config.Config, forced <-chan struct{}) error {
	r.note("draining; a second signal stops at once")
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(chan error, 1)
	go func() { // ends with Close, or with the process after a second signal
		drain, end := context.WithTimeout(ctx, cfg.DrainTimeout)
		defer end()
		err := node.Drain(drain)
		if err != nil && errors.Is(err, context.DeadlineExceeded) {
			cfg.Logger.Warn("drain did not finish in time; closing", "timeout", cfg.DrainTimeout)
			err = nil
		}
		done <- errors.Join(err, node.Close(ctx))
	}()
	select {
	case err := <-done:
		return err
	case <-forced:
		cancel(errForced)
		return errForced
	}
}

// readyJSON is where a node serves: what -o json prints, and what the ready file holds.
type readyJSON struct {
	Addr string `json:"addr"`
	HTTP string `json:"http"`
	PID  int    `json:"pid"`
}

// announce prints the node's addresses, and writes them to the ready file.
func (r *run) announce(node RunningNode, ready string) error {
	at := readyJSON{node.Addr(), node.HTTPAddr(), os.Getpid()}
	if r.output == outputJSON {
		if err := r.object(at); err != nil {
			return err
		}
	} else {
		_, _ = fmt.Fprintf(r.Stdout, "serving clients on %s\n", at.Addr)
		if at.HTTP != "" {
			_, _ = fmt.Fprintf(r.Stdout, "serving HTTP on http://%s/\n", at.HTTP)
		}
		if at.Addr != config.DefaultListen {
			_, _ = fmt.Fprintf(r.Stdout, "reach it with: export PERCOLATOR_ADDR=%s\n", at.Addr)
		}
	}
	if ready == "" {
		return nil
	}
	text, err := json.Marshal(at)
	if err != nil {
		return err
	}
	// Whoever waits for the file must not read half of it.
	partial := ready + ".partial"
	if err := os.WriteFile(partial, append(text, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(partial, ready)
}
