package cli

import (
	"fmt"
	"log/slog"
	"strings"
	"unicode"

	"github.com/spf13/pflag"

	"github.com/percolator-go/percolator/internal/actorkit"
	"github.com/percolator-go/percolator/internal/config"
)

const labelsFlag = "labels"

// founds ends the help of flags that are settings of the cluster's policy.
const founds = "; of a new cluster: see cluster set"

// nodeFlags are the settings of start and dev.
type nodeFlags struct {
	cfg       config.Config
	labels    map[string]string
	logLevel  string
	logFormat string
	ready     string
}

// register puts every field of the configuration that has a flag into flags.
func (n *nodeFlags) register(flags *pflag.FlagSet) {
	n.cfg = config.DefaultConfig()
	c := &n.cfg
	flags.StringVar(&c.Listen, "listen", c.Listen, "host:port for clients; port 0 picks free ports for all listeners")
	flags.StringVar(&c.Advertise, "advertise", c.Advertise, "host:port that others are told; its host goes for the other listeners too (default: what was bound)")
	flags.StringVar(&c.HTTP, "http", c.HTTP, "host:port for HTTP; auto: --listen's third next port; empty: none")
	flags.StringSliceVar(&c.HTTPHosts, "http-host", nil,
		"name under which HTTP answers, besides addresses and the node's own names; may be repeated")
	flags.BoolVar(&c.Pprof, "pprof", false, "serve profiles of the process under /debug/pprof/ of HTTP")
	flags.StringToStringVar(&n.labels, labelsFlag, nil, "labels of the node, such as zone=a")
	flags.DurationVar(&c.History, "history", c.History, "how long old versions stay readable"+founds)
	n.registerUpkeep(flags)
	flags.DurationVar(&c.LockTTL, "lock-ttl", c.LockTTL, "how long locks of a dead transaction bar others")
	flags.DurationVar(&c.DrainTimeout, "drain-timeout", c.DrainTimeout, "how long a stopping node waits for work under way")
	flags.IntVar(&c.Scanners, "scanners", c.Scanners, "goroutines that look for changed cells; 0: none")
	flags.IntVar(&c.ObserverWorkers, "observer-workers", c.ObserverWorkers, "observers that run at once; 0: none")
	flags.IntVar(&c.Limits.Value, "max-value", c.Limits.Value, "largest value in bytes, at most 6 MiB")
	n.registerTuning(flags)
	flags.StringVar(&n.logLevel, "log-level", "info", "debug, info, warn or error")
	flags.StringVar(&n.logFormat, "log-format", "text", "text or json")
	flags.StringVar(&n.ready, "ready-file", "", "write the addresses there as JSON once the node serves; removed when it stops")
}

// registerUpkeep adds what the node does to its data by itself. A default of 0 is not
// repeated here: it belongs to the actor, and some depend on other settings.
func (n *nodeFlags) registerUpkeep(flags *pflag.FlagSet) {
	h, s, p := &n.cfg.Collection, &n.cfg.Splits, &n.cfg.Placement
	flags.DurationVar(&h.Interval, "collection-interval", h.Interval, "pause between collections of old versions; 0: a tenth of --history, at most 10s")
	flags.DurationVar(&h.MaxHold, "collection-max-hold", h.MaxHold, "age up to which an open snapshot keeps old versions; 0: ten times --history"+founds)
	flags.BoolVar(&h.Off, "no-collection", h.Off, "keep all old versions: the data only grows"+founds)
	flags.Var((*byteSize)(&s.MaxBytes), "split-size", "size above which a tablet is split; 0: 96MiB"+founds)
	flags.Uint64Var(&s.MaxLoad, "split-load", s.MaxLoad, "split tablets with more operations a second; 0: 250000"+founds)
	flags.IntVar(&s.MaxTablets, "split-max-tablets", s.MaxTablets, "the most tablets, however they are made; 0: 1024"+founds)
	flags.DurationVar(&p.GoneAfter, "gone-after", p.GoneAfter, "how long a node may be away before its replicas are made anew; 0: 5m"+founds)
	flags.DurationVar(&p.ForgetAfter, "forget-after", p.ForgetAfter, "how long a node without replicas may be away before it is forgotten; not given: 24h"+founds)
	flags.Var((*byteSize)(&n.cfg.Snapshots.Rate), "snapshot-rate", "bytes a second of all tablets' states that are sent to replicas; 0: 64MiB")
	flags.IntVar(&n.cfg.Snapshots.AtOnce, "snapshots-at-once", n.cfg.Snapshots.AtOnce, "how many such states are sent at once; 0: 2")
	flags.BoolVar(&s.Off, "no-splits", s.Off, "split tablets on request only"+founds)
}

// registerTuning adds what hardly anybody needs.
func (n *nodeFlags) registerTuning(flags *pflag.FlagSet) {
	c := &n.cfg
	f, s := &c.Notifications, &c.Store
	flags.BoolVar(&f.NoHints, "no-hints", f.NoHints, "find changed cells by scanning alone")
	flags.BoolVar(&f.NoLockd, "no-lockd", f.NoLockd, "run observers without advisory locks")
	flags.DurationVar(&f.ScanPause, "scan-pause", f.ScanPause, "rest of a scanner that found nothing")
	flags.IntVar(&f.ScanPage, "scan-page", f.ScanPage, "entries that one message of a scan fetches")
	flags.Var((*byteSize)(&c.Memory), "memory", "bytes that the process may take; 0: what its cgroup allows, else the machine's memory")
	flags.Int64Var(&s.MemTableSize, "memtable-size", s.MemTableSize, "memtable in bytes; 0: the store's default")
	flags.Uint64Var(&s.MinFreeBytes, "min-free-bytes", s.MinFreeBytes, "free disk space below which writes stop; 0: the store's default")
	for _, b := range []struct {
		name string
		cfg  *actorkit.BatchConfig
	}{
		{"tablet", &c.Batch.Tablet}, {"oracle", &c.Batch.Oracle}, {"log", &c.Batch.Log},
		{"lockd", &c.Batch.Lockd}, {"client", &c.Batch.Client},
	} {
		prefix := "batch-" + b.name + "-"
		flags.IntVar(&b.cfg.MaxMessages, prefix+"max-messages", 0, "most messages in a batch of the "+b.name+"; 0: default")
		flags.IntVar(&b.cfg.MaxBytes, prefix+"max-bytes", 0, "most bytes in a batch; 0: default")
		flags.DurationVar(&b.cfg.Linger, prefix+"linger", 0, "how long a batch waits for company")
		flags.IntVar(&b.cfg.QueueLimit, prefix+"queue-limit", 0, "most unanswered messages; 0: default")
	}
}

// logger builds the node's logger on standard error.
func (r *run) logger(n *nodeFlags) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(n.logLevel)); err != nil {
		return nil, usagef(nil, "--log-level %s: known are debug, info, warn and error", n.logLevel)
	}
	options := &slog.HandlerOptions{Level: level}
	switch n.logFormat {
	case "text":
		return slog.New(slog.NewTextHandler(r.Stderr, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(r.Stderr, options)), nil
	}
	return nil, usagef(nil, "--log-format %s: known are text and json", n.logFormat)
}

// flagNames are the flags of fields whose names do not follow from the field's.
var flagNames = map[string]string{
	"Limits.Value":            "max-value",
	"Notifications.ScanPause": "scan-pause",
	"Notifications.ScanPage":  "scan-page",
	"Store.MemTableSize":      "memtable-size",
	"Labels (count)":          labelsFlag,
	"Join (count)":            "join",
	"HTTPHosts":               "http-host",
	"HTTPHosts (count)":       "http-host",
	"Splits.MaxBytes":         "split-size",
	"Splits.MaxLoad":          "split-load",
	"Splits.MaxTablets":       "split-max-tablets",
	"Splits.Interval":         "",
	"Snapshots.Rate":          "snapshot-rate",
	"Snapshots.AtOnce":        "snapshots-at-once",
	"Placement.GoneAfter":     "gone-after",
	"Placement.ForgetAfter":   "forget-after",
	"Placement.Interval":      "",
	"Placement.Busy":          "",
	"Placement.Rest":          "",
	"Collection.ForceAfter":   "",
	"Store.SyncDelay":         "",
	"Limits.Row":              "",
	"Limits.Column":           "",
	"Limits.Batch":            "",
	"Limits.Inline":           "",
}

// settingName is the flag for a field of config.Config, or the field itself where there is none.
func settingName(field string) string {
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

// banner says in large letters what an unprotected node means.
func banner(cfg *config.Config) string {
	if !cfg.InsecureForce {
		return "insecure: plain text without authentication, for this machine only\n"
	}
	line := strings.Repeat("!", 78)
	return fmt.Sprintf("%s\n!! INSECURE: whoever reaches %s reads and changes everything.\n"+
		"!! No encryption, no authentication. For trusted networks and tests only.\n%s\n", line, cfg.Listen, line)
}
