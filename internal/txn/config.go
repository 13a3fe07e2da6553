package txn

import (
	"log/slog"
	"time"

	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/tracing"
)

// Timestamp is mvcc.Timestamp, for package percolator.
type Timestamp = mvcc.Timestamp

// Key is the address of a cell as users give it: the table by its name.
type Key struct{ Table, Row, Column string }

// Value is what a read found in a cell.
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
	Limit     int // rows; 0: no limit
}

// Options of one transaction.
type Options struct {
	Name string // groups what is learned for prefetching
	// Bytes bounds what the transaction buffers, about; 0: the client's TransactionBytes.
	Bytes int
}

// Config tunes a Client. Zero fields take the defaults.
type Config struct {
	Limits mvcc.Limits
	// LockTTL is how far ahead of oracle time the locks of a commit expire; default 10 s.
	// A commit that takes longer moves the expiry by heartbeats every third of it. After
	// a client's death others wait at most this long.
	LockTTL time.Duration
	// OperationTimeout bounds the retries of one operation that nobody serves; default 20
	// s. Then: ErrUnavailable.
	OperationTimeout time.Duration
	// SettleTimeout bounds how long a commit with a lost reply, or that is given up after it
	// was sent, tries to find out what happened; default 5 s. It counts apart from the
	// caller's context (invariant 8).
	SettleTimeout time.Duration
	// LeaseTTL is how long a lease on history outlives a client that died; default 30 s.
	LeaseTTL time.Duration
	// ReadCacheBytes bounds each transaction's read cache; default 16 MiB.
	ReadCacheBytes int
	// TwoPhaseOnly never commits in one phase; for benchmarks.
	TwoPhaseOnly bool
	// TransactionBytes bounds what one transaction buffers; default 128 MiB.
	TransactionBytes int
	// Tracer starts the spans of transactions; nil: there are none.
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
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// checkAddress applies the limits of rows and columns.
func (c *Config) checkAddress(row, column string) error {
	if len(row) > c.Limits.Row {
		return &LimitError{Limit: "row", Size: len(row), Max: c.Limits.Row}
	}
	if len(column) > c.Limits.Column {
		return &LimitError{Limit: "column", Size: len(column), Max: c.Limits.Column}
	}
	return nil
}

// CheckCell reports, as an error that wraps ErrTooLarge, a cell that the client's limits forbid.
func (c *Client) CheckCell(cell mvcc.Cell) error { return c.cfg.checkAddress(cell.Row, cell.Column) }

func orDefault[T int | time.Duration](v *T, def T) {
	if *v <= 0 {
		*v = def
	}
}
