package lockd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/percolator-go/percolator/internal/actorkit"
	"github.com/percolator-go/percolator/internal/metrics"
	"github.com/percolator-go/percolator/internal/wire"
)

// Defaults of Config.
const (
	DefaultMaxEntries = 64 << 10
	DefaultLease      = 10 * time.Second
	DefaultMaxLease   = 5 * time.Minute
	// MaxKeys limits the keys of one request, MaxKeyBytes the length of a key.
	MaxKeys     = 4096
	MaxKeyBytes = 8 << 10
)

// ErrInvalid reports a request without an owner, with more than MaxKeys keys or with a key
// longer than MaxKeyBytes. Such a request has no effect.
var ErrInvalid = errors.New("lockd: invalid request")

// Config configures a lock service. Zero fields take their defaults.
type Config struct {
	MaxEntries int           // limit of recorded locks
	Lease      time.Duration // lease of a request that specifies none
	MaxLease   time.Duration // longer leases are shortened to it
	Batch      actorkit.BatchConfig
	Now        func() time.Time // clock of the leases; default time.Now
}

func (c Config) withDefaults() Config {
	c.MaxEntries = actorkit.Positive(c.MaxEntries, DefaultMaxEntries)
	c.Lease = actorkit.Positive(c.Lease, DefaultLease)
	c.MaxLease = actorkit.Positive(c.MaxLease, DefaultMaxLease)
	if c.Now == nil {
		c.Now = time.Now
	}
	c.Batch = c.Batch.WithDefaults()
	return c
}

// Stats contains the present number of locks and counters since the service started.
type Stats struct {
	Held     uint64            // locks now
	Granted  uint64            // keys granted, renewals included
	Refused  uint64            // keys refused because another owner held them
	Expired  uint64            // leases that ended before their key was unlocked
	Unstored uint64            // keys granted without a record because the table was full
	Batches  metrics.Histogram // messages per batch
	Waits    metrics.Histogram // how long messages wait in the mailbox
}

// Lockd is a running lock service. Its methods may be called concurrently.
type Lockd struct {
	port    *actorkit.Port[*wire.LockdRequest, *wire.LockdResponse]
	system  *actor.ActorSystem
	stats   *counters
	stopped chan struct{} // closed when the actor has ended
}

// Spawn starts a lock service. It fails if the actor's name is taken.
func Spawn(system *actor.ActorSystem, cfg Config) (*Lockd, error) {
	cfg = cfg.withDefaults()
	stats, stopped := &counters{}, make(chan struct{})
	props := actor.PropsFromProducer(func() actor.Actor {
		return &lockdActor{
			cfg: cfg, table: newTable(cfg.MaxEntries), stats: stats, stopped: stopped,
			batch: actorkit.NewBatcher[*call](cfg.Batch).Measured(&stats.batches, &stats.waits),
		}
	}, actorkit.Mailbox())
	pid, err := system.Root.SpawnNamed(props, "lockd")
	if err != nil {
		return nil, fmt.Errorf("lockd: spawn the actor: %w", err)
	}
	port := actorkit.NewPort[*wire.LockdRequest, *wire.LockdResponse](system, pid,
		cfg.Batch.QueueLimit)
	return &Lockd{port: port, system: system, stats: stats, stopped: stopped}, nil
}

// Port returns the port for requests as messages, which package node also uses for those
// of other nodes.
func (l *Lockd) Port() *actorkit.Port[*wire.LockdRequest, *wire.LockdResponse] { return l.port }

// TryLock locks each key for the owner, or extends its lease, unless another owner holds
// it. It returns one result per key, in order; a lock that a full table cannot record counts as
// granted. A lease ≤ 0 means the default. TryLock fails with ErrInvalid or an error of actorkit
// or ctx; except after ErrInvalid, some locks may then be held until their leases end.
func (l *Lockd) TryLock(ctx context.Context, owner uint64, lease time.Duration,
	keys ...string) ([]bool, error) {
	req := &wire.LockdRequest{Owner: owner, LeaseMs: leaseMillis(lease), Try: keyBytes(keys)}
	resp, err := l.port.Ask(ctx, req, false)
	if err != nil {
		return nil, err
	}
	return resp.Granted, nil
}

// Unlock unlocks those of the keys that the owner holds. It does not wait. If the message
// is lost, the locks last until their leases end.
func (l *Lockd) Unlock(owner uint64, keys ...string) {
	req := &wire.LockdRequest{Owner: owner, Unlock: keyBytes(keys)}
	// Bypass the queue limit: unlocking makes room, so a full service must accept it.
	_ = l.port.Tell(req, time.Time{}, true, func(actorkit.Result[*wire.LockdResponse]) {})
}

// forget is the message of Forget.
type forget struct{ first, last uint64 }

// Forget unlocks everything held by the owners first to last, which are known to have
// ended. It does not wait.
func (l *Lockd) Forget(first, last uint64) {
	l.system.Root.Send(l.port.PID(), &forget{first, last})
}

// Stats returns the counters.
func (l *Lockd) Stats() Stats {
	l.stats.Lock()
	defer l.stats.Unlock()
	s := l.stats.Stats
	s.Batches, s.Waits = l.stats.batches.Read(), l.stats.waits.Read()
	return s
}

// Stop answers the waiting requests and ends the service. All locks are lost, and further
// requests fail with actorkit.ErrStopped. Stop returns ctx's error if the actor has not
// ended by the end of ctx.
func (l *Lockd) Stop(ctx context.Context) error {
	l.system.Root.Poison(l.port.PID())
	select {
	case <-l.stopped:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// leaseMillis returns the lease in milliseconds, at least 1, or 0 for the default.
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

// counters are written by the actor, a batch at a time, and read from any goroutine.
type counters struct {
	sync.Mutex
	Stats
	batches metrics.Sizes     // has a lock of its own
	waits   metrics.Durations // has a lock of its own
}
