package tablet

import (
	"log/slog"
	"time"

	"github.com/percolator-go/percolator/actors/tablet/snapshot"
	"github.com/percolator-go/percolator/internal/actorkit"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/tracing"
)

// This file has the configuration of a tablet. It is set before the tablet is spawned and
// does not change.

// Config is what a tablet is started with.
type Config struct {
	Batch  actorkit.BatchConfig
	Limits mvcc.Limits
	// Pipeline is how many proposals may be in flight before further mutations wait and
	// share the next entry; default 1.
	Pipeline int
	// MaxWait limits how long an operation without a deadline may wait inside the tablet;
	// default 10 s.
	MaxWait time.Duration
	// Indexed is how many entries of the notify group, and of the intent group, are kept
	// in memory for each observed column; default DefaultIndexed. A column with more is
	// only counted, and walked on disk, until it has been worked off.
	Indexed int
	// NodeID is the node that the replica is on.
	NodeID uint64
	// Stale: the replica's log lacks entries that it has acknowledged; see group.Group.Stale.
	Stale bool
	// Ticker is the node's. Without it only a group of one replica works.
	Ticker *Ticker
	// Dispatcher runs the tablet's turns; nil: the library's own.
	Dispatcher *actorkit.Dispatcher
	// IdleHints is where leaders publish what they know to be empty; nil: nowhere.
	IdleHints *IdleHints
	// SoleVoter is where the meta tablet publishes that it leads as its group's only voter;
	// nil: nowhere.
	SoleVoter *SoleVoter
	// Snapshots sends the tablet's state to replicas that lag too far; nil: nobody gets a
	// snapshot.
	Snapshots *snapshot.Sender
	// Checksums computes what replicas are compared by; nil: nothing is computed here.
	Checksums *Checksums
	// Metrics is where the node's tablets measure; nil: nobody looks.
	Metrics *Metrics
	// Traces is where the node's tablets find and leave what is traced; nil: nothing is.
	Traces *tracing.Book
	// Origins reports whether all nodes know records with origins (version.Origins); nil:
	// they do.
	Origins func() bool
	Logger  *slog.Logger
}

// DefaultPipeline is the default of Config.Pipeline.
const DefaultPipeline = 1

// DefaultIndexed is the default of Config.Indexed: some 10 MB of memory for a full column.
const DefaultIndexed = 32 << 10

func (cfg Config) withDefaults() Config {
	if cfg.Metrics == nil {
		cfg.Metrics = &Metrics{}
	}
	if cfg.MaxWait <= 0 {
		cfg.MaxWait = 10 * time.Second
	}
	if cfg.Pipeline <= 0 {
		cfg.Pipeline = DefaultPipeline
	}
	if cfg.Indexed <= 0 {
		cfg.Indexed = DefaultIndexed
	}
	if cfg.Origins == nil {
		cfg.Origins = func() bool { return true }
	}
	return cfg
}
