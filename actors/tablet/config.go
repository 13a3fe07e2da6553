package tablet

import (
	"log/slog"
	"time"

	"github.com/percolator-go/percolator/internal/actorkit"
	"github.com/percolator-go/percolator/internal/mvcc"
)

// Config is what a tablet is started with.
type Config struct {
	Batch  actorkit.BatchConfig
	Limits mvcc.Limits
	// Pipeline is how many proposals may be in flight before mutations wait for the next
	// batch; default 1.
	Pipeline int
	// how long an operation without a deadline may wait inside the tablet; default 10 s
	MaxWait time.Duration
	// Indexed is how many entries of the notify group, and of the intent group, are kept
	// in memory for each observed column; default DefaultIndexed. A column with more is
	// counted only, and walked on disk, until it is worked off.
	Indexed int
	// NodeID is the node that the replica is on.
	NodeID uint64
	// Ticker is the node's. Without it only a group of one replica works.
	Ticker *Ticker
	// MaxUncommitted bounds the bytes of entries that are proposed and not yet applied:
	// beyond it proposals are refused; default DefaultMaxUncommitted. MaxInflight bounds
	// those on their way to one replica; default DefaultMaxInflight.
	MaxUncommitted, MaxInflight uint64
	// Dispatcher runs the tablet's turns; nil: the library's own.
	Dispatcher *actorkit.Dispatcher
	// Board is where the node's tablets say what their leaders know to be empty; nil: nowhere.
	Board *Board
	// Alone is where the meta tablet says that it leads as its group's only voter; nil: nowhere.
	Alone *Alone
	// Snapshots sends replicas that lag too far the tablet's state; nil: nobody gets a snapshot.
	Snapshots *SnapshotSender
	// Checksums computes what replicas are compared by; nil: nothing is computed.
	Checksums *Checksums
	Logger    *slog.Logger
}

// DefaultPipeline is the default of Config.Pipeline.
const DefaultPipeline = 1

// Defaults of Config.MaxUncommitted and MaxInflight: some of the largest batches (8 MiB).
const (
	DefaultMaxUncommitted = 128 << 20
	DefaultMaxInflight    = 32 << 20
)

// DefaultIndexed is the default of Config.Indexed: some 10 MB of memory for a full column.
const DefaultIndexed = 32 << 10

func (cfg Config) withDefaults() Config {
	if cfg.MaxWait <= 0 {
		cfg.MaxWait = 10 * time.Second
	}
	if cfg.Pipeline <= 0 {
		cfg.Pipeline = DefaultPipeline
	}
	if cfg.Indexed <= 0 {
		cfg.Indexed = DefaultIndexed
	}
	if cfg.MaxUncommitted == 0 {
		cfg.MaxUncommitted = DefaultMaxUncommitted
	}
	if cfg.MaxInflight == 0 {
		cfg.MaxInflight = DefaultMaxInflight
	}
	return cfg
}
