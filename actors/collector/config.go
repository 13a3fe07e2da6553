package collector

import (
	"context"
	"errors"
	"log/slog"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// Client is what the collector needs of tablets and the oracle; *txn.Client has it.
type Client interface {
	// Send has one idempotent operation done at the tablet that holds the position, and
	// says which tablet that was.
	Send(ctx context.Context, at wire.Position, req *pb.TabletRequest) (*pb.TabletResponse, *pb.TabletDescriptor, error)
	// Timestamp is a fresh timestamp of the oracle.
	Timestamp(ctx context.Context) (mvcc.Timestamp, error)
	// ResolveLock resolves a lock or intent whose transaction is decided or dead; false
	// if that is alive.
	ResolveLock(ctx context.Context, l mvcc.LockInfo) (resolved bool, err error)
	// ForceLock is ResolveLock that takes the transaction for dead: if it is undecided,
	// it is rolled back.
	ForceLock(ctx context.Context, l mvcc.LockInfo) (resolved bool, err error)
}

// Record is the collector's memory, in meta; *cluster.Meta has it.
type Record interface {
	// Collection reads the record and the leases on history; neither is nil.
	Collection(ctx context.Context) (*wire.Collection, *wire.Leases, error)
	// SaveCollection replaces the record if it still is from, and if the leases still are
	// seen, unless that is nil.
	SaveCollection(ctx context.Context, from, to *wire.Collection, seen *wire.Leases) (bool, error)
}

// Drops looks after dropped tables: it dates drops, and forgets tables of which nothing is left.
type Drops interface {
	// Tend is called with the status of every tablet before each cycle; waiting: there is
	// a table whose data is to be deleted once the safepoint has passed its drop.
	Tend(ctx context.Context, tablets []*pb.StatusResponse) (waiting bool, err error)
}

// DefaultInterval is the default of Config.Interval, unless the history is short.
const DefaultInterval = 10 * time.Second

// Overview is what tablets say of themselves.
type Overview interface {
	// Leaders is what the tablets' leaders have said lately, of those that could be
	// asked. The collector does not change the messages.
	Leaders(ctx context.Context) ([]*pb.StatusResponse, error)
}

// Config is what a collector is started with. Client, Record and History are required.
type Config struct {
	Name   string // of the actor; default "collector"
	Client Client
	Record Record
	Drops  Drops // nil: there are none
	// Overview spares a question to each tablet while there is nothing to collect; nil:
	// each is asked.
	Overview Overview

	History    time.Duration // how long old versions stay readable
	Interval   time.Duration // between cycles; default a tenth of History, at most 10 s
	ForceAfter time.Duration // how long a cycle waits for a live transaction from below its bound; default History, at most 1 min
	MaxHold    time.Duration // the greatest age at which a lease still holds history; default ten times History
	Timeout    time.Duration // of one request; default 10 s
	Logger     *slog.Logger
}

var errConfig = errors.New("collector: Client, Record and a positive History are required")

func (c Config) withDefaults() (Config, error) {
	if c.Client == nil || c.Record == nil || c.History <= 0 {
		return c, errConfig
	}
	if c.Name == "" {
		c.Name = "collector"
	}
	orDuration(&c.Interval, min(DefaultInterval, c.History/10))
	orDuration(&c.ForceAfter, min(time.Minute, c.History))
	orDuration(&c.MaxHold, 10*c.History)
	orDuration(&c.Timeout, 10*time.Second)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c, nil
}

func orDuration(v *time.Duration, def time.Duration) {
	if *v <= 0 {
		*v = def
	}
}
