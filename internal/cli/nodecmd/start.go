package nodecmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"
	"unicode"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/percolator-go/percolator/internal/cli/shell"
	"github.com/percolator-go/percolator/internal/coded"
	"github.com/percolator-go/percolator/internal/policy"
	"github.com/percolator-go/percolator/node/config"
)

// The commands that run a node in this process, start and dev, and their flags. A signal drains the
// node, a second one stops it.

// StartCommand runs a node of a cluster.
func StartCommand(d *shell.Deps) *cobra.Command {
	n := &nodeFlags{}
	cmd := &cobra.Command{
		Use:   "start --dir DIR (--certs DIR | --insecure)",
		Short: "Run a node",
		Long: `Run a node over the data in --dir, which is created when missing.

SIGTERM or SIGINT drains the node: it accepts no new work, finishes the running observers and
commits, and exits 0. A second signal stops it at once; acknowledged writes are not lost
either way.

With an empty directory it starts a new cluster. With --join it joins the cluster of the nodes
at those addresses, and waits for them without limit. N nodes with empty directories,
--bootstrap-expect N and the same --join form one new cluster. A node that has been started
before rejoins its cluster automatically.

Nodes authenticate each other by certificates (--certs; "cert" creates them), or use plain text
on loopback addresses (--insecure).`,
		Example: "start --dir data --insecure\n" +
			"start --dir data2 --insecure --listen 127.0.0.1:7900 --join 127.0.0.1:7800\n" +
			"start --dir data --certs certs --listen 10.0.0.1:7800 --join " +
			"10.0.0.1,10.0.0.2,10.0.0.3 --bootstrap-expect 3 --labels zone=a",
	}
	flags := cmd.Flags()
	n.register(flags)
	flags.StringVar(&n.cfg.Dir, "dir", "", "directory of the node's data and identity")
	flags.StringVar(&n.cfg.LogDir, "log-dir", "",
		"directory of the Raft log, for example on a separate device; empty: inside --dir")
	flags.StringSliceVar(&n.cfg.Join, "join", nil,
		"host[:port] of nodes to join, as in their --listen")
	flags.IntVar(&n.cfg.Expect, "bootstrap-expect", n.cfg.Expect,
		"number of nodes with empty directories that form a new cluster")
	flags.StringVar(&n.cfg.Peer, "peer", n.cfg.Peer,
		"host:port for traffic between nodes; auto: --listen's next port")
	flags.StringVar(&n.cfg.Gossip, "gossip", n.cfg.Gossip,
		"host:port for gossip, TCP and UDP; auto: --listen's second next port")
	flags.IntVar(&n.cfg.Replicas, "replicas", n.cfg.Replicas,
		"target number of replicas of a tablet: 1, 3 or 5"+founds)
	flags.StringVar(&n.cfg.Certs, "certs", "", "folder of the node's certificates and gossip keys")
	flags.BoolVar(&n.cfg.Insecure, "insecure", false,
		"serve plain text, on loopback addresses only")
	flags.BoolVar(&n.cfg.InsecureForce, "insecure-force", false,
		"lift --insecure's restriction to loopback addresses")
	flags.BoolVar(&n.cfg.HTTPTLS, "http-tls", false,
		"with --certs: serve HTTP over TLS, with the node's certificate; --http may then name an address that "+
			"other machines reach")
	flags.BoolVar(&n.cfg.HTTPLogin, "http-login", false,
		"require a login over HTTP, except for health"+founds)
	flags.BoolVar(&n.cfg.InsecureHTTP, "insecure-http", false,
		"with --certs: serve HTTP as unauthenticated plain text on addresses that other machines reach")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if n.cfg.InsecureForce {
			n.cfg.Insecure = true
		}
		// Without addresses the node would found a new cluster.
		if cmd.Flags().Changed("join") && len(n.cfg.Join) == 0 {
			return shell.Usagef(cmd, "--join contains no address: name nodes to join, or omit it to "+
				"found a new cluster")
		}
		for _, s := range policy.Settings() {
			if cmd.Flags().Changed(s.Name) {
				n.cfg.Given = append(n.cfg.Given, s.Name)
			}
		}
		return serve(cmd.Context(), d.App, d.Out, n)
	}
	cmd = d.WithOutput(cmd)
	shell.AddFlags(cmd, d.App.Flags)
	return cmd
}

// DevCommand runs a node on a temporary directory, which is removed when the node stops.
func DevCommand(d *shell.Deps) *cobra.Command {
	n := &nodeFlags{}
	cmd := &cobra.Command{
		Use:     "dev",
		Short:   "Run a temporary node whose directory is removed when it stops",
		Example: "dev\ndev --listen 127.0.0.1:0 --http=",
	}
	n.register(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		dir, err := os.MkdirTemp("", "percolator-dev-")
		if err != nil {
			return err
		}
		n.cfg.Dir, n.cfg.Insecure, n.cfg.Replicas = dir, true, 1
		n.cfg.Peer, n.cfg.Gossip = "", "" // a single node
		err = serve(cmd.Context(), d.App, d.Out, n)
		return errors.Join(err, os.RemoveAll(dir))
	}
	cmd = d.WithOutput(cmd)
	shell.AddFlags(cmd, d.App.Flags)
	return cmd
}

// serve runs a node until a signal, the end of ctx, a failure for which the node must stop, or an
// error of a function of app.OnStart.
func serve(ctx context.Context, app *shell.App, out *shell.Printer, n *nodeFlags) error {
	logger, err := n.logger(out.Stderr)
	if err != nil {
		return err
	}
	n.cfg.Logger, n.cfg.Labels, n.cfg.Observers = logger, n.labels, app.Observers
	if err := n.cfg.Validate(); err != nil {
		return err
	}
	if n.auditLog != "" {
		audit, err := openAudit(n.auditLog)
		if err != nil {
			return coded.Errorf("", "--audit-log: %w", err)
		}
		defer func() { _ = audit.close() }() // actions were synced, or the log says why not
		logger = slog.New(auditTee{logger.Handler(), audit})
		n.cfg.Logger = logger
	}
	if n.cfg.Insecure {
		_, _ = fmt.Fprint(out.Stderr, banner(&n.cfg))
	}
	opening, cancel := context.WithCancel(ctx)
	defer cancel()
	forced := watch(app.Signals, cancel)
	node, err := app.Start(opening, n.cfg)
	if err != nil && opening.Err() != nil && ctx.Err() == nil && errors.Is(err, context.Canceled) {
		out.Note("stopped before it served")
		return nil // a signal, such as to a node that waits to join
	}
	if err != nil {
		return err
	}
	beside := accompany(context.WithoutCancel(ctx), node, app.OnStart)
	if err := announce(out, node, &n.cfg, n.ready); err != nil {
		return errors.Join(err, beside.stop(n.cfg.DrainTimeout), node.Close(ctx))
	}
	notifyManager(logger, daemon.SdNotifyReady+"\nSTATUS=serving clients on "+node.Addr())
	var failed error
	select {
	case <-opening.Done():
	case failed = <-failure(node):
	case <-beside.failing.Done(): // stop returns the error
	}
	notifyManager(logger, daemon.SdNotifyStopping+"\nSTATUS=draining")
	err = stop(context.WithoutCancel(ctx), out, node, beside, &n.cfg, forced)
	if n.ready != "" {
		err = errors.Join(err, os.Remove(n.ready))
	}
	return errors.Join(failed, err)
}

// notifyManager reports the state of the node to the service manager, if there is one: systemd passes
// a socket in NOTIFY_SOCKET. See sd_notify(3).
func notifyManager(logger *slog.Logger, state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		logger.Warn("cannot notify the service manager", "state", state, "err", err)
	}
}

// failure returns a channel that delivers the error for which a node must stop, such as a second
// process with its identity.
func failure(node shell.RunningNode) <-chan error {
	if f, ok := node.(interface{ Failed() <-chan error }); ok {
		return f.Failed()
	}
	return nil
}

// sameSignal is the time within which further signals count as the same one: timeout(1) and others
// signal the process and then its process group.
const sameSignal = 50 * time.Millisecond

// watch cancels on the first signal and closes the channel it returns on the second. Its goroutine
// ends when signals is closed, or with the process.
func watch(signals <-chan os.Signal, cancel context.CancelFunc) <-chan struct{} {
	forced := make(chan struct{})
	if signals == nil {
		return forced
	}
	go func() {
		if _, ok := <-signals; !ok {
			return
		}
		first := time.Now()
		cancel()
		for range signals {
			if time.Since(first) >= sameSignal {
				close(forced)
				return
			}
		}
	}()
	return forced
}

// errForced reports that a second signal stopped the node.
var errForced = errors.New("a second signal stopped the node before it was drained and closed")

// stop ends the functions of app.OnStart, then drains and closes the node; a second signal aborts
// that.
func stop(ctx context.Context, out *shell.Printer, node shell.RunningNode, beside *companions,
	cfg *config.Config, forced <-chan struct{}) error {
	out.Note("draining; a second signal stops at once")
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(chan error, 1)
	go func() { // ends with Close or, after a second signal, with the process
		drain, end := context.WithTimeout(ctx, cfg.DrainTimeout)
		defer end()
		failed := beside.stop(cfg.DrainTimeout / 2) // the other half is for the drain
		if errors.Is(failed, errLingers) {
			cfg.Logger.Warn("draining while functions of app.OnStart still run", "err", failed,
				"waited", cfg.DrainTimeout/2)
			failed = nil
		}
		err := node.Drain(drain)
		if err != nil && errors.Is(err, context.DeadlineExceeded) {
			cfg.Logger.Warn("drain did not finish in time; closing", "timeout", cfg.DrainTimeout)
			err = nil
		}
		done <- errors.Join(failed, err, node.Close(ctx))
	}()
	select {
	case err := <-done:
		return err
	case <-forced:
		cancel(errForced)
		return errForced
	}
}

// readyJSON contains the addresses of a serving node, for -o json and the ready file.
type readyJSON struct {
	Addr string `json:"addr"`
	HTTP string `json:"http"`
	PID  int    `json:"pid"`
	// Gateway is absent if there is none.
	Gateway string `json:"gateway,omitempty"`
}

// announce prints the node's addresses, and writes them to the ready file.
func announce(out *shell.Printer, node shell.RunningNode, cfg *config.Config, ready string) error {
	scheme := func(secure bool) string {
		if secure {
			return "https"
		}
		return "http"
	}
	at := readyJSON{Addr: node.Addr(), HTTP: node.HTTPAddr(), PID: os.Getpid()}
	if g, ok := node.(interface{ GatewayAddr() string }); ok {
		at.Gateway = g.GatewayAddr()
	}
	if out.JSON() {
		if err := out.Object(at); err != nil {
			return err
		}
	} else {
		_, _ = fmt.Fprintf(out.Stdout, "serving clients on %s\n", at.Addr)
		if at.HTTP != "" {
			_, _ = fmt.Fprintf(out.Stdout, "serving HTTP on %s://%s/\n", scheme(cfg.HTTPTLS), at.HTTP)
		}
		if at.Gateway != "" {
			_, _ = fmt.Fprintf(out.Stdout, "serving the gateway on %s://%s\n", scheme(cfg.Certs != ""), at.Gateway)
		}
		if at.Addr != config.DefaultListen {
			_, _ = fmt.Fprintf(out.Stdout, "reach it with: export PERCOLATOR_ADDR=%s\n", at.Addr)
		}
	}
	if ready == "" {
		return nil
	}
	text, err := json.Marshal(at)
	if err != nil {
		return err
	}
	// Rename it into place, so that readers never see a partial file.
	partial := ready + ".partial"
	if err := os.WriteFile(partial, append(text, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(partial, ready)
}

// LabelsFlag is the flag whose keys in a configuration file are data, not names of flags.
const LabelsFlag = "labels"

// founds ends the help of flags that are settings of the cluster's policy.
const founds = "; of a new cluster: see cluster set"

// nodeFlags are the settings of start and dev.
type nodeFlags struct {
	cfg       config.Config
	labels    map[string]string
	logLevel  string
	logFormat string
	auditLog  string
	ready     string
}

// register adds the flags that start and dev share.
func (n *nodeFlags) register(flags *pflag.FlagSet) {
	flags.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		return pflag.NormalizedName(policy.CurrentName(name))
	})
	n.cfg = config.DefaultConfig()
	c := &n.cfg
	flags.StringVar(&c.Listen, "listen", c.Listen,
		"host:port for clients; port 0 picks free ports for all listeners")
	flags.StringVar(&c.Advertise, "advertise", c.Advertise,
		"advertised host:port; its host also applies to the other listeners (default: the "+
			"bound address)")
	flags.StringVar(&c.HTTP, "http", c.HTTP,
		"host:port for HTTP; auto: --listen's third next port; empty: none")
	flags.StringSliceVar(&c.HTTPHosts, "http-host", nil,
		"host name accepted over HTTP, in addition to addresses and the node's own names; "+
			"repeatable")
	flags.StringVar(&c.Gateway, "gateway", c.Gateway,
		"host:port of the gateway for programs in any language; auto: --listen's fourth next port; "+
			"empty: none")
	flags.StringSliceVar(&c.GatewayOrigins, "gateway-origin", nil,
		"origin of web pages that may call the gateway, such as https://app.example; repeatable; "+
			"*: all")
	flags.BoolVar(&c.Pprof, "pprof", false,
		"serve profiles of the process under /debug/pprof/ of HTTP")
	flags.StringVar(&c.Trace.Endpoint, "trace-endpoint", "",
		"URL of an OTLP collector for traces, such as http://127.0.0.1:4317; empty: none")
	flags.Float64Var(&c.Trace.Sample, "trace-sample", c.Trace.Sample,
		"fraction of the traces started on this node that are kept, from 0 to 1")
	flags.StringToStringVar(&n.labels, LabelsFlag, nil, "labels of the node, such as zone=a")
	flags.DurationVar(&c.History, "history", c.History, "how long old versions stay readable"+
		founds)
	n.registerUpkeep(flags)
	flags.DurationVar(&c.LockTTL, "lock-ttl", c.LockTTL,
		"how long locks of a dead transaction block others")
	flags.DurationVar(&c.DrainTimeout, "drain-timeout", c.DrainTimeout,
		"how long a stopping node waits for work in progress")
	flags.IntVar(&c.Scanners, "scanners", c.Scanners,
		"number of goroutines that scan for changed cells; 0: none")
	flags.IntVar(&c.ObserverWorkers, "observer-workers", c.ObserverWorkers,
		"maximum concurrent observer runs; 0: none")
	flags.IntVar(&c.ObserverLoopRuns, "observer-loop-runs", c.ObserverLoopRuns,
		"slow a row down after so many runs within 10s by its own effects; -1: never")
	flags.IntVar(&c.Limits.Value, "max-value", c.Limits.Value,
		"largest value in bytes, at most 6 MiB")
	n.registerTuning(flags)
	flags.StringVar(&n.logLevel, "log-level", "info", "debug, info, warn or error")
	flags.StringVar(&n.logFormat, "log-format", "text", "text or json")
	flags.StringVar(&n.auditLog, "audit-log", "",
		"file to which operators' actions are appended, one JSON object a line, in addition to "+
			"the log; may be rotated while the node runs")
	flags.StringVar(&n.ready, "ready-file", "",
		"file to which the node writes its addresses as JSON once it serves; removed when it stops")
}

// registerUpkeep adds the flags of background work on the data. 0 means the actor's own default, which
// may depend on other settings.
func (n *nodeFlags) registerUpkeep(flags *pflag.FlagSet) {
	h, s, p := &n.cfg.Collection, &n.cfg.Splits, &n.cfg.Placement
	flags.DurationVar(&h.Interval, "collection-interval", h.Interval,
		"pause between collections of old versions; 0: a tenth of --history, at most 10s")
	flags.DurationVar(&h.MaxHold, "collection-max-hold", h.MaxHold,
		"age up to which an open snapshot keeps old versions; 0: ten times --history"+founds)
	flags.BoolVar(&h.Off, "no-collection", h.Off, "keep all old versions: the data only grows"+
		founds)
	flags.Var((*shell.ByteSize)(&s.MaxBytes), "split-size",
		"size above which a tablet is split; 0: 96MiB"+founds)
	flags.Uint64Var(&s.MaxLoad, "split-load", s.MaxLoad,
		"split tablets with more operations a second; 0: 250000"+founds)
	flags.IntVar(&s.MaxTablets, "split-max-tablets", s.MaxTablets,
		"maximum number of tablets; 0: 1024"+founds)
	flags.DurationVar(&p.GoneAfter, "replace-dead-after", p.GoneAfter,
		"how long a node may be down before its replicas are replaced; 0: 5m"+founds)
	flags.DurationVar(&p.ForgetAfter, "forget-after", p.ForgetAfter,
		"how long a node without replicas may be down before it is forgotten; 0: 24h"+founds)
	flags.Var((*shell.ByteSize)(&n.cfg.Snapshots.Rate), "snapshot-rate",
		"maximum bytes a second of snapshots sent to replicas, for all tablets together; 0: 64MiB")
	flags.IntVar(&n.cfg.Snapshots.AtOnce, "snapshots-at-once", n.cfg.Snapshots.AtOnce,
		"maximum number of snapshots sent concurrently; 0: 2")
	flags.BoolVar(&s.Off, "no-splits", s.Off, "split tablets on request only"+founds)
}

// registerTuning adds flags that are rarely needed.
func (n *nodeFlags) registerTuning(flags *pflag.FlagSet) {
	c := &n.cfg
	f, s := &c.Notifications, &c.Store
	flags.BoolVar(&f.NoHints, "no-hints", f.NoHints, "find changed cells only by scanning")
	flags.BoolVar(&f.NoLockd, "no-lockd", f.NoLockd, "run observers without advisory locks")
	flags.DurationVar(&f.ScanPause, "scan-pause", f.ScanPause,
		"pause of a scanner after the first scan that found nothing; each further one doubles it, up to 1s")
	flags.IntVar(&f.ScanPage, "scan-page", f.ScanPage, "entries that one message of a scan fetches")
	flags.Var((*shell.ByteSize)(&c.Memory), "memory",
		"memory limit of the process in bytes; 0: the limit of its cgroup, else the machine's memory")
	flags.Int64Var(&s.MemTableSize, "memtable-size", s.MemTableSize,
		"memtable in bytes; 0: the store's default")
	flags.Uint64Var(&s.MinFreeBytes, "min-free-bytes", s.MinFreeBytes,
		"free disk space below which writes stop; 0: the store's default")
	for _, b := range []struct {
		name string
		cfg  *config.BatchConfig
	}{
		{"tablet", &c.Batch.Tablet}, {"oracle", &c.Batch.Oracle}, {"log", &c.Batch.Log},
		{"lockd", &c.Batch.Lockd}, {"client", &c.Batch.Client},
	} {
		prefix := "batch-" + b.name + "-"
		flags.IntVar(&b.cfg.MaxMessages, prefix+"max-messages", 0,
			"most messages in a batch of the "+b.name+"; 0: default")
		flags.IntVar(&b.cfg.MaxBytes, prefix+"max-bytes", 0, "most bytes in a batch; 0: default")
		flags.DurationVar(&b.cfg.Linger, prefix+"linger", 0, "how long a batch waits for more messages")
		flags.IntVar(&b.cfg.QueueLimit, prefix+"queue-limit", 0,
			"most unanswered messages; 0: default")
	}
	flags.VisitAll(func(f *pflag.Flag) { // without effect, which node.Open logs
		f.Hidden = f.Hidden || strings.HasPrefix(f.Name, "batch-client-")
	})
}

// logger builds the node's logger on standard error.
func (n *nodeFlags) logger(stderr io.Writer) (*slog.Logger, error) {
	level := &slog.LevelVar{}
	if err := level.UnmarshalText([]byte(n.logLevel)); err != nil {
		return nil, shell.Usagef(nil, "--log-level %s: use debug, info, warn or error", n.logLevel)
	}
	n.cfg.LogLevel = level
	options := &slog.HandlerOptions{Level: level}
	switch n.logFormat {
	case "text":
		return slog.New(slog.NewTextHandler(stderr, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(stderr, options)), nil
	}
	return nil, shell.Usagef(nil, "--log-format %s: use text or json", n.logFormat)
}

// flagNames contains the flags whose names do not follow from the field's. A field with an empty name
// has no flag.
var flagNames = map[string]string{
	"Limits.Value":            "max-value",
	"Notifications.ScanPause": "scan-pause",
	"Notifications.ScanPage":  "scan-page",
	"Store.MemTableSize":      "memtable-size",
	"Labels (count)":          LabelsFlag,
	"Join (count)":            "join",
	"HTTPHosts":               "http-host",
	"HTTPHosts (count)":       "http-host",
	"GatewayOrigins":          "gateway-origin",
	"GatewayOrigins (count)":  "gateway-origin",
	"Splits.MaxBytes":         "split-size",
	"Splits.MaxLoad":          "split-load",
	"Splits.MaxTablets":       "split-max-tablets",
	"Splits.Interval":         "",
	"Snapshots.Rate":          "snapshot-rate",
	"Snapshots.AtOnce":        "snapshots-at-once",
	"Placement.GoneAfter":     "replace-dead-after",
	"Expect":                  "bootstrap-expect",
	"Placement.ForgetAfter":   "forget-after",
	"Placement.Interval":      "",
	"Placement.Busy":          "",
	"Placement.Rest":          "",
	"Collection.ForceAfter":   "",
	"Limits.Row":              "",
	"Limits.Column":           "",
	"Limits.Batch":            "",
	"Limits.Inline":           "",
}

// SettingName returns the flag of a field of config.Config, or the field's name if it has none.
func SettingName(field string) string {
	name, special := flagNames[field]
	switch {
	case special && name == "":
		return field
	case !special:
		name = dashed(field)
	}
	return "--" + name
}

// dashed turns Batch.Tablet.MaxMessages into batch-tablet-max-messages, and HTTP into http.
func dashed(field string) string {
	var out strings.Builder
	runes := []rune(field)
	for i, c := range runes {
		switch {
		case c == '.':
			out.WriteByte('-')
			continue
		case unicode.IsUpper(c) && i > 0 && unicode.IsLower(runes[i-1]):
			out.WriteByte('-')
		}
		out.WriteRune(unicode.ToLower(c))
	}
	return out.String()
}

// banner warns that the node is unprotected.
func banner(cfg *config.Config) string {
	if !cfg.InsecureForce {
		return "insecure: plain text without authentication, for this machine only\n"
	}
	line := strings.Repeat("!", 78)
	return fmt.Sprintf("%s\n!! INSECURE: anyone who can reach %s can read and change everything.\n"+
		"!! No encryption, no authentication. For trusted networks and tests only.\n%s\n", line,
		cfg.Listen, line)
}
