package txn

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/tracing"
)

// Timestamp is mvcc.Timestamp, for package percolator.
type Timestamp = mvcc.Timestamp

// Key is the address of a cell with the table's name.
type Key struct{ Table, Row, Column string }

// Value is the result of reading a cell.
type Value struct {
	Bytes    []byte
	CommitTS mvcc.Timestamp // zero for the transaction's own buffered write
	Found    bool
}

// ScanSpec is a range of rows to scan: From ≤ row, and row < Before if HasBefore. No
// Columns means all.
type ScanSpec struct {
	Table     string
	From      string
	Before    string
	HasBefore bool
	Columns   []string
	Reverse   bool
	Limit     int  // rows; 0: no limit
	KeysOnly  bool // cells without values
}

// Options configures one transaction.
type Options struct {
	Name string // groups transactions in metrics and for prefetching
	// Bytes is the approximate maximum size of the write buffer, in bytes; default the
	// client's TransactionBytes.
	Bytes int
	// Runs is the maximum number of runs of Client.Run, besides one that found its table dropped;
	// 0 means no limit.
	Runs int
	// Effects records which columns are read and written, for Txn.Effects.
	Effects bool
}

// Config configures a Client. Zero fields mean the defaults.
type Config struct {
	Limits mvcc.Limits
	// LockTTL is the time, by the oracle, after which a commit's locks expire; default 10 s.
	// Heartbeats at a third of it extend the lock of a longer commit's primary. It also bounds how
	// long the locks of a dead client block others.
	LockTTL time.Duration
	// OperationTimeout bounds the retries of one operation, after which it fails with
	// ErrUnavailable; default 20 s.
	OperationTimeout time.Duration
	// SettleTimeout limits the time for which a commit with a lost reply, or abandoned after it was
	// sent, tries to determine its outcome; default 5 s. It is independent of the caller's context.
	SettleTimeout time.Duration
	// LeaseTTL is the lifetime of a lease on history after its client has died; default 30 s.
	LeaseTTL time.Duration
	// ReadCacheBytes is the maximum size of each transaction's read cache; default 16 MiB.
	ReadCacheBytes int
	// TwoPhaseOnly disables one-phase commits, for benchmarks.
	TwoPhaseOnly bool
	// AsyncCommits reports whether all nodes of the cluster support asynchronous commits. By default
	// the client asks meta.
	AsyncCommits func() bool
	// TransactionBytes is the default maximum size of a transaction's write buffer; default
	// 128 MiB.
	TransactionBytes int
	// Tracer starts the spans of transactions; nil disables tracing.
	Tracer *tracing.Tracer
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	def := mvcc.DefaultLimits()
	orDefault(&c.Limits.Row, def.Row)
	orDefault(&c.Limits.Column, def.Column)
	orDefault(&c.Limits.Value, def.Value)
	orDefault(&c.Limits.Batch, def.Batch)
	orDefault(&c.Limits.Inline, def.Inline)
	orDefault(&c.LockTTL, 10*time.Second)
	orDefault(&c.OperationTimeout, 20*time.Second)
	orDefault(&c.SettleTimeout, 5*time.Second)
	orDefault(&c.LeaseTTL, 30*time.Second)
	orDefault(&c.ReadCacheBytes, 16<<20)
	orDefault(&c.TransactionBytes, 128<<20)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

// checkAddress returns a *LimitError if the row or the column exceeds its limit.
func (c *Config) checkAddress(row, column string) error {
	if len(row) > c.Limits.Row {
		return &LimitError{Limit: "row", Size: len(row), Max: c.Limits.Row}
	}
	if len(column) > c.Limits.Column {
		return &LimitError{Limit: "column", Size: len(column), Max: c.Limits.Column}
	}
	return nil
}

// CheckCell returns an error that wraps ErrTooLarge if the cell's row or column exceeds its limit.
func (c *Client) CheckCell(cell mvcc.Cell) error { return c.cfg.checkAddress(cell.Row, cell.Column) }

func orDefault[T int | time.Duration](v *T, def T) {
	if *v <= 0 {
		*v = def
	}
}
