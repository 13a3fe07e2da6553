package actorkit

import (
	"time"

	"github.com/asynkron/protoactor-go/actor"
)

// Defaults of BatchConfig.
const (
	DefaultMaxMessages = 1024
	DefaultMaxBytes    = 4 << 20
	DefaultQueueLimit  = 16 << 10
	DefaultQueueBytes  = 256 << 20
)

// BatchConfig tunes how one kind of actor coalesces its mailbox. Zero fields take the defaults.
type BatchConfig struct {
	MaxMessages int           // most messages in one batch
	MaxBytes    int           // a batch is closed once its messages hold this many bytes
	Linger      time.Duration // how long a batch waits for company; 0: not at all
	QueueLimit  int           // most unanswered messages; beyond it senders get ErrOverloaded at once
}

// WithDefaults fills in zero fields.
func (c BatchConfig) WithDefaults() BatchConfig {
	if c.MaxMessages <= 0 {
		c.MaxMessages = DefaultMaxMessages
	}
	if c.MaxBytes <= 0 {
		c.MaxBytes = DefaultMaxBytes
	}
	if c.QueueLimit <= 0 {
		c.QueueLimit = DefaultQueueLimit
	}
	return c
}

// Flush is the marker that an actor sends to itself when the first message of a batch arrives: what was in the mailbox
// ahead of it forms the batch.
type Flush struct{ batcher any }

// Batcher coalesces an actor's mailbox by the flush marker. It belongs to its actor and is used only inside Receive.
// The actor's Receive calls Add for each message and, on *Flush, Due and then Take.
type Batcher[T any] struct {
	cfg    BatchConfig
	items  []T
	bytes  int
	marked bool
	marker *Flush
	spare  []T // a batch that was given back
}

// NewBatcher returns an empty batcher.
func NewBatcher[T any](cfg BatchConfig) *Batcher[T] {
	b := &Batcher[T]{cfg: cfg.WithDefaults()}
	b.marker = &Flush{batcher: b}
	return b
}

// Add appends the item, which holds about size bytes, and makes sure that a marker is under way. It reports whether
// the batch is full; the actor then takes it at once.
func (b *Batcher[T]) Add(c actor.Context, item T, size int) (full bool) {
	b.items = append(b.items, item)
	b.bytes += size
	b.mark(c)
	return len(b.items) >= b.cfg.MaxMessages || b.bytes >= b.cfg.MaxBytes
}

func (b *Batcher[T]) mark(c actor.Context) {
	if b.marked {
		return
	}
	b.marked = true
	self, root, marker := c.Self(), c.ActorSystem().Root, b.marker
	if b.cfg.Linger <= 0 {
		root.Send(self, marker)
		return
	}
	time.AfterFunc(b.cfg.Linger, func() { root.Send(self, marker) })
}

// Due reports whether the marker is this batcher's own; it then no longer counts as under way.
func (b *Batcher[T]) Due(f *Flush) bool {
	if f.batcher != any(b) {
		return false
	}
	b.marked = false
	return true
}

// Take returns the batch and begins a new one. The slice belongs to the caller.
func (b *Batcher[T]) Take() []T {
	items := b.items
	b.items, b.bytes, b.spare = b.spare, 0, nil
	return items
}

// maxSpare is the most items that a slice may have room for to be kept: a burst must not hold memory for ever.
const maxSpare = 4096

// GiveBack returns a slice that Take has given, for a later batch: small batches then need no allocation. The caller may
// not use it any more.
func (b *Batcher[T]) GiveBack(items []T) {
	clear(items)
	if cap(items) <= maxSpare {
		b.spare = items[:0]
	}
}

// Len is the number of items waiting.
func (b *Batcher[T]) Len() int { return len(b.items) }
