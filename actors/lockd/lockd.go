package lockd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/percolator-go/percolator/internal/actorkit"
	"github.com/percolator-go/percolator/internal/wire"
)

// Defaults of Config.
const (
	DefaultMaxEntries = 64 << 10
	DefaultLease      = 10 * time.Second
	DefaultMaxLease   = 5 * time.Minute
	// MaxKeys bounds the keys of one request, MaxKeyBytes one key.
	MaxKeys     = 4096
	MaxKeyBytes = 8 << 10
)

// ErrInvalid: owner 0, or more or longer keys than the bounds allow. Nothing was done.
var ErrInvalid = errors.New("lockd: invalid request")

// Config of one lock service. Zero fields take the defaults.
type Config struct {
	Name       string        // the actor's name; "lockd"
	MaxEntries int           // most locks held at once
	Lease      time.Duration // of a request that names none
	MaxLease   time.Duration // longer ones are cut to it
	Batch      actorkit.BatchConfig
	Now        func() time.Time // clock; time.Now
	Logger     *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.Name == "" {
		c.Name = "lockd"
	}
	if c.MaxEntries <= 0 {
		c.MaxEntries = DefaultMaxEntries
	}
	if c.Lease <= 0 {
		c.Lease = DefaultLease
	}
	if c.MaxLease <= 0 {
		c.MaxLease = DefaultMaxLease
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.Batch = c.Batch.WithDefaults()
	return c
}

// Stats are counters since the service began, and Held now.
type Stats struct {
	Held     uint64 // locks now
	Granted  uint64 // renewals included
	Refused  uint64 // held by another owner
	Expired  uint64 // leases that ended before they were given back
	Unstored uint64 // granted without a record, the table was full
	Requests uint64 // messages
	Batches  uint64 // turns that handled them
}

// Lockd is a running lock service. Its methods may be used concurrently.
type Lockd struct {
	port    *actorkit.Port[*wire.LockdRequest, *wire.LockdResponse]
	system  *actor.ActorSystem
	stats   *counters
	stopped chan struct{} // closed when the actor has ended
}

// Spawn starts a lock service.
func Spawn(system *actor.ActorSystem, cfg Config) (*Lockd, error) {
	cfg = cfg.withDefaults()
	stats, stopped := &counters{}, make(chan struct{})
	props := actor.PropsFromProducer(func() actor.Actor { return newLockdActor(cfg, stats, stopped) }, actorkit.Mailbox())
	pid, err := system.Root.SpawnNamed(props, cfg.Name)
	if err != nil {
		return nil, fmt.Errorf("lockd: spawn: %w", err)
	}
	port := actorkit.NewPort[*wire.LockdRequest, *wire.LockdResponse](system, pid, cfg.Batch.QueueLimit)
	return &Lockd{port: port, system: system, stats: stats, stopped: stopped}, nil
}

// Port takes requests as messages, from other nodes too.
func (l *Lockd) Port() *actorkit.Port[*wire.LockdRequest, *wire.LockdResponse] { return l.port }

// TryLock takes each key for the owner, or moves its lease forward, unless another owner
// has it; one answer a key, in order. lease ≤ 0 means the default. Errors: ErrInvalid,
// actorkit's, ctx's; locks may then be held until the lease ends.
func (l *Lockd) TryLock(ctx context.Context, owner uint64, lease time.Duration, keys ...string) ([]bool, error) {
	req := &wire.LockdRequest{Owner: owner, LeaseMs: leaseMillis(lease), Try: keyBytes(keys)}
	resp, err := l.port.Ask(ctx, req, false)
	if err != nil {
		return nil, err
	}
	return resp.Granted, nil
}

// Unlock gives back what the owner holds of the keys. It does not wait, and if it is lost
// the lease ends by itself.
func (l *Lockd) Unlock(owner uint64, keys ...string) {
	req := &wire.LockdRequest{Owner: owner, Unlock: keyBytes(keys)}
	// Bypass: giving back makes room, so it is never what a full service refuses.
	_ = l.port.Tell(req, time.Time{}, true, func(actorkit.Result[*wire.LockdResponse]) {})
}

// forget is the message of Forget.
type forget struct{ first, last uint64 }

// Forget gives back all that the owners first to last hold: they are known dead. It does not wait.
func (l *Lockd) Forget(first, last uint64) { l.system.Root.Send(l.port.PID(), &forget{first, last}) }

// Stats returns the counters.
func (l *Lockd) Stats() Stats { return l.stats.read() }

// Stop ends the service; requests that wait are answered first. All locks are lost.
// Further requests end with actorkit.ErrStopped. Errors: ctx's, when the actor has not
// ended by then.
func (l *Lockd) Stop(ctx context.Context) error {
	l.system.Root.Poison(l.port.PID())
	select {
	case <-l.stopped:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func leaseMillis(lease time.Duration) uint32 {
	ms := lease.Milliseconds()
	switch {
	case lease <= 0:
		return 0
	case ms == 0:
		return 1
	case ms > 1<<31:
		return 1 << 31
	}
	return uint32(ms)
}

func keyBytes(keys []string) [][]byte {
	out := make([][]byte, len(keys))
	for i, k := range keys {
		out[i] = wire.Bytes(k)
	}
	return out
}

// counters are written by the actor, a batch at a time, and read by anyone.
type counters struct {
	held, granted, refused, expired, unstored, requests, batches atomic.Uint64
}

func (c *counters) read() Stats {
	return Stats{
		Held: c.held.Load(), Granted: c.granted.Load(), Refused: c.refused.Load(), Expired: c.expired.Load(),
		Unstored: c.unstored.Load(), Requests: c.requests.Load(), Batches: c.batches.Load(),
	}
}
