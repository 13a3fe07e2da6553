package actorkit

import (
	"runtime"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/percolator-go/percolator/internal/metrics"
)

// Defaults of BatchConfig; DefaultQueueBytes is the usual limit of Port.BoundBytes.
const (
	DefaultMaxMessages = 1024
	DefaultMaxBytes    = 4 << 20
	DefaultQueueLimit  = 16 << 10
	DefaultQueueBytes  = 256 << 20
)

// BatchConfig configures how an actor coalesces its mailbox. Zero fields take their
// defaults.
type BatchConfig struct {
	MaxMessages int           // limit of the messages in a batch
	MaxBytes    int           // a batch is closed once its messages hold this many bytes
	Linger      time.Duration // how long a batch waits for more messages; default 0
	QueueLimit  int           // limit of unanswered calls; more fail with ErrOverloaded at once
}

// WithDefaults fills in zero fields.
func (c BatchConfig) WithDefaults() BatchConfig {
	c.MaxMessages = Positive(c.MaxMessages, DefaultMaxMessages)
	c.MaxBytes = Positive(c.MaxBytes, DefaultMaxBytes)
	c.QueueLimit = Positive(c.QueueLimit, DefaultQueueLimit)
	return c
}

// Positive returns v, or the default if v is not positive.
func Positive[T int | time.Duration](v, byDefault T) T {
	if v <= 0 {
		return byDefault
	}
	return v
}

// Flush is the marker that an actor sends to itself when the first message of a batch
// arrives. The messages that were ahead of it in the mailbox form the batch, less those that were
// taken before because the batch was full.
type Flush struct{ batcher any }

// Batcher coalesces an actor's mailbox by a marker. It is used only inside the actor's
// Receive, which calls Add for each message and, on *Flush, Due and then Take.
type Batcher[T any] struct {
	cfg    BatchConfig
	items  []T
	bytes  int
	marked bool // the marker is in the mailbox, or will be after Linger
	marker *Flush
	spare  []T            // a slice returned by GiveBack
	sizes  *metrics.Sizes // of the batches; nil: not observed
	waits  *metrics.Durations
	sent   metrics.Moment // when marked was set, if waits are observed

	gathering  bool // Gather has yielded for the present batch
	soloRounds int  // consecutive gathered batches with a single item, up to maxSoloRounds
	skip       int  // how many of the next calls of Gather do nothing
}

// NewBatcher returns an empty batcher.
func NewBatcher[T any](cfg BatchConfig) *Batcher[T] {
	b := &Batcher[T]{cfg: cfg.WithDefaults()}
	b.marker = &Flush{batcher: b}
	return b
}

// Measured makes b observe the sizes of batches and the time, including Linger, from the first
// message of a batch until its marker is handled. It returns b.
func (b *Batcher[T]) Measured(sizes *metrics.Sizes, waits *metrics.Durations) *Batcher[T] {
	b.sizes, b.waits = sizes, waits
	return b
}

// Add appends the item, which holds about size bytes, and sends the marker, after Linger, unless
// it is under way already. It reports whether the batch is full; the actor must then Take it at
// once.
func (b *Batcher[T]) Add(c actor.Context, item T, size int) (full bool) {
	b.items = append(b.items, item)
	b.bytes += size
	b.mark(c)
	return len(b.items) >= b.cfg.MaxMessages || b.bytes >= b.cfg.MaxBytes
}

// Gather yields to the goroutines that are ready to run, so that their messages arrive ahead of the
// marker and join the batch. Call it before the Add of a batch's first item if larger batches are
// worth it. Without Gather the Go scheduler runs the actor right after its first sender, and many
// concurrent senders would be served one by one. Gather returns at once if no other goroutine is
// ready. While batches have a single item it yields less and less often, because a yield to
// goroutines that only compute is wasted.
func (b *Batcher[T]) Gather() {
	if len(b.items) > 0 || b.marked || b.gathering {
		return
	}
	if b.skip > 0 {
		b.skip--
		return
	}
	b.gathering = true
	runtime.Gosched()
}

// maxSoloRounds limits how rarely Gather yields: at least once in 64 batches, to notice
// when there are concurrent senders again.
const maxSoloRounds = 6

// adaptGather adjusts the frequency of gathering to the size of the last gathered batch.
func (b *Batcher[T]) adaptGather() {
	if !b.gathering {
		return
	}
	b.gathering = false
	if len(b.items) > 1 {
		b.soloRounds = 0
		return
	}
	b.soloRounds = min(b.soloRounds+1, maxSoloRounds)
	b.skip = 1<<b.soloRounds - 1
}

// mark sends the marker, after Linger, unless it is under way.
func (b *Batcher[T]) mark(c actor.Context) {
	if b.marked {
		return
	}
	b.marked = true
	if b.waits != nil {
		b.sent = metrics.Now()
	}
	self, root, marker := c.Self(), c.ActorSystem().Root, b.marker
	if b.cfg.Linger <= 0 {
		root.Send(self, marker)
		return
	}
	time.AfterFunc(b.cfg.Linger, func() { root.Send(self, marker) })
}

// Due reports whether the marker is this batcher's own. If it is, the next Add sends
// another.
func (b *Batcher[T]) Due(f *Flush) bool {
	if f.batcher != any(b) {
		return false
	}
	b.marked = false
	if b.waits != nil {
		b.waits.Observe(b.sent.Elapsed())
	}
	return true
}

// Take returns the batch and begins a new one. The slice belongs to the caller.
func (b *Batcher[T]) Take() []T {
	b.adaptGather()
	items := b.items
	if b.sizes != nil && len(items) > 0 {
		b.sizes.Observe(len(items))
	}
	b.items, b.bytes, b.spare = b.spare, 0, nil
	return items
}

// maxSpare is the largest capacity of a slice that is kept for reuse, so that a burst does
// not hold memory forever.
const maxSpare = 4096

// GiveBack returns a slice that came from Take, so that a later batch needs no allocation.
// The caller must not use the slice afterwards.
func (b *Batcher[T]) GiveBack(items []T) {
	clear(items)
	if cap(items) <= maxSpare {
		b.spare = items[:0]
	}
}

// Len returns the number of items in the open batch.
func (b *Batcher[T]) Len() int { return len(b.items) }
