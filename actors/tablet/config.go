package tablet

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/percolator-go/percolator/actors/tablet/group"
	"github.com/percolator-go/percolator/actors/tablet/memory"
	"github.com/percolator-go/percolator/actors/tablet/snapshot"
	"github.com/percolator-go/percolator/internal/actorkit"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/tracing"
)

// Configuration of a tablet, fixed when it is spawned.

// Config configures a tablet.
type Config struct {
	Batch  actorkit.BatchConfig
	Limits mvcc.Limits
	// Pipeline is the number of uncommitted proposals at which further mutations wait and share
	// the next entry; three times as many may be in flight until they are applied. Defaults to
	// DefaultPipeline.
	Pipeline int
	// MaxWait limits the time for which an operation waits for another commit, for its commit
	// timestamp or for the other voters, also if its deadline is later. Defaults to 10 s.
	MaxWait time.Duration
	// MaxDelay limits the delay of an entry that nobody awaits, which is proposed with the next one
	// (mayDelay). It is longer than a client takes from the answer to one transaction until it
	// sends the next. Defaults to 3 ms.
	MaxDelay time.Duration
	// Indexed is the most entries of the notify group, and of the intent group, that are kept in
	// memory for each observed column. A column with more is only counted, and scanned on disk,
	// until its entries have been processed. Defaults to DefaultIndexed.
	Indexed int
	// NodeID is the replica's node.
	NodeID uint64
	// Stale is set if the replica's log lacks entries that it has acknowledged; see
	// group.Group.Stale.
	Stale bool
	// Leases are the promises between this node and others; nil means that leaders have no leases.
	Leases group.Leases
	// Ticker is the node's clock. Without it only a group of one replica works.
	Ticker *Ticker
	// Dispatcher runs the tablet's turns. Defaults to protoactor's.
	Dispatcher *actorkit.Dispatcher
	// IdleHints is where a leader publishes that its tablet has no notifications other than parked
	// ones, or nothing of unfinished transactions; nil means nowhere.
	IdleHints *IdleHints
	// Leadership is where the meta tablet publishes that it leads as its group's only voter, or under
	// a lease; nil for other tablets.
	Leadership *PublishedLeadership
	// Snapshots sends the tablet's state to replicas that are too far behind; nil means no
	// snapshots.
	Snapshots *snapshot.Sender
	// Checksums computes the checksums that replicas are compared by; nil means none.
	Checksums *Checksums
	// Recorded limits the records of changes of all tablets of the node; nil means no limit beyond
	// each tablet's own.
	Recorded *RecordBudget
	// Metrics are the node's tablet metrics; nil disables measurement.
	Metrics *Metrics
	// Traces holds the traces of the node's tablets; nil means no tracing.
	Traces *tracing.Book
	// Origins reports whether all nodes support records with origins (version.Origins); nil
	// means that they do.
	Origins func() bool
	Logger  *slog.Logger
}

// RecordBudget limits the records of changes of all tablets of a node. The zero value limits them to
// 64 MiB.
type RecordBudget = memory.RecordBudget

// DefaultPipeline is the default of Config.Pipeline.
const DefaultPipeline = 1

// DefaultIndexed is the default of Config.Indexed: about 10 MB of memory for a full column.
const DefaultIndexed = 32 << 10

func (cfg Config) withDefaults() Config {
	cfg.Metrics = cmp.Or(cfg.Metrics, &Metrics{})
	cfg.MaxWait = actorkit.Positive(cfg.MaxWait, 10*time.Second)
	cfg.MaxDelay = actorkit.Positive(cfg.MaxDelay, 3*time.Millisecond)
	cfg.Pipeline = actorkit.Positive(cfg.Pipeline, DefaultPipeline)
	cfg.Indexed = actorkit.Positive(cfg.Indexed, DefaultIndexed)
	if cfg.Origins == nil {
		cfg.Origins = func() bool { return true }
	}
	return cfg
}
