package collector

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/actorkit"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// The collector's interfaces to other packages, and its configuration, which is constant after
// Spawn. The interfaces are called on the actor's goroutine, except ResolveLock and ForceLock,
// which several goroutines call concurrently.

// Client carries requests to tablets and the oracle. *txn.Client implements it.
type Client interface {
	// Send performs an idempotent operation at the tablet that holds the position (a table
	// and a row), and returns the descriptor under which it was done.
	Send(
		ctx context.Context, at wire.Position, req *pb.TabletRequest,
	) (*pb.TabletResponse, *pb.TabletDescriptor, error)
	// Timestamp returns a fresh timestamp from the oracle.
	Timestamp(ctx context.Context) (mvcc.Timestamp, error)
	// ResolveLock resolves a lock or intent whose transaction is decided or dead. It
	// returns false if the transaction is alive.
	ResolveLock(ctx context.Context, l mvcc.LockInfo) (resolved bool, err error)
	// ForceLock is like ResolveLock, but treats the transaction as dead: if it is
	// undecided, it is rolled back. ForceLock returns false while a one-phase commit of the
	// transaction is in flight, or if its outcome can no longer be determined.
	ForceLock(ctx context.Context, l mvcc.LockInfo) (resolved bool, err error)
}

// Record is the collector's durable state, in meta. *meta.History implements it.
type Record interface {
	// Collection returns the record and the leases on history. Neither is nil.
	Collection(ctx context.Context) (*wire.Collection, *wire.Leases, error)
	// SaveCollection replaces the record and returns true if the record still equals from
	// and the leases still equal seen. A nil seen matches any leases.
	SaveCollection(ctx context.Context, from, to *wire.Collection, seen *wire.Leases) (bool, error)
}

// Drops advances dropped tables: it records the times of drops, and removes the records of tables
// without remaining data.
type Drops interface {
	// Tend is called with the status of every tablet whenever a cycle could begin. It reports
	// whether a table's data waits for the safepoint to pass the table's drop.
	Tend(ctx context.Context, tablets []*pb.StatusResponse) (waiting bool, err error)
}

const (
	// DefaultInterval is the default of Config.Interval for a History of 100 s or more.
	DefaultInterval = 10 * time.Second

	requestTimeout = 10 * time.Second
)

// Overview provides recent statuses of tablets.
type Overview interface {
	// Leaders returns the latest known status of each tablet's leader. Tablets that could
	// not be asked are missing. The collector does not modify the messages.
	Leaders(ctx context.Context) ([]*pb.StatusResponse, error)
}

// Config configures a collector. Client, Record and History are required; other zero fields
// take their defaults.
type Config struct {
	Client Client
	Record Record
	Drops  Drops // nil if tables are never dropped
	// Overview saves a request to each tablet while there is nothing to collect. If it is nil every
	// tablet is queried.
	Overview Overview

	History  time.Duration // how long old versions stay readable
	Interval time.Duration // pause between turns; the default is History/10, but at most 10 s
	// ForceAfter is the time, counted from the start of a cycle's step confirm, after which the
	// cycle also aborts live transactions that began below its target. The default is History, but
	// at most 1 min.
	ForceAfter time.Duration
	// MaxHold is the greatest age of a lease's timestamp at which the lease still holds
	// history; default ten times History.
	MaxHold time.Duration
	Logger  *slog.Logger
}

var errConfig = errors.New("collector: Client, Record and a positive History are required")

func (c Config) withDefaults() (Config, error) {
	if c.Client == nil || c.Record == nil || c.History <= 0 {
		return c, errConfig
	}
	c.Interval = actorkit.Positive(c.Interval, min(DefaultInterval, c.History/10))
	c.ForceAfter = actorkit.Positive(c.ForceAfter, min(time.Minute, c.History))
	c.MaxHold = actorkit.Positive(c.MaxHold, 10*c.History)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c, nil
}
