package actorkit

import (
	"runtime"
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

// Flush is the marker that an actor sends to itself when the first message of a batch
// arrives: what was in the mailbox ahead of it forms the batch.
type Flush struct{ batcher any }

// Batcher coalesces an actor's mailbox by the flush marker. It belongs to its actor and
// is used only inside Receive. The actor's Receive calls Add for each message and, on
// *Flush, Due and then Take.
type Batcher[T any] struct {
	cfg    BatchConfig
	items  []T
	bytes  int
	marked bool
	marker *Flush
	spare  []T // a batch that was given back

	gathering bool // the batch has been left open for those who are about to send
	alone     int  // how many such batches in a row nobody has joined, up to maxAlone
	skip      int  // how many of the next are not left open
}

// NewBatcher returns an empty batcher.
func NewBatcher[T any](cfg BatchConfig) *Batcher[T] {
	b := &Batcher[T]{cfg: cfg.WithDefaults()}
	b.marker = &Flush{batcher: b}
	return b
}

// Add appends the item, which holds about size bytes, and makes sure that a marker is
// under way. It reports whether the batch is full; the actor then takes it at once.
func (b *Batcher[T]) Add(c actor.Context, item T, size int) (full bool) {
	b.items = append(b.items, item)
	b.bytes += size
	b.mark(c)
	return len(b.items) >= b.cfg.MaxMessages || b.bytes >= b.cfg.MaxBytes
}

// Gather is to be called before the Add of the first item of a batch that is worth
// sharing: goroutines that can run at once run first, and what they send is in the
// mailbox ahead of the marker. Go runs whoever is woken by a message right after its
// sender, and so the first of a crowd would be served alone, the others after it, one by
// one. Nothing is waited for when nobody else can run. It is given up for a while where
// nobody joins: besides goroutines that only compute, a turn of theirs is all that is
// gained.
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

// maxAlone: at least one in 64 batches is left open, to find out whether there is company by now.
const maxAlone = 6

// closed learns from a batch that was left open whether the next should be.
func (b *Batcher[T]) closed() {
	if !b.gathering {
		return
	}
	b.gathering = false
	if len(b.items) > 1 {
		b.alone = 0
		return
	}
	b.alone = min(b.alone+1, maxAlone)
	b.skip = 1<<b.alone - 1
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
	b.closed()
	items := b.items
	b.items, b.bytes, b.spare = b.spare, 0, nil
	return items
}

// maxSpare is the most items that a slice may have room for to be kept: a burst must not
// hold memory for ever.
const maxSpare = 4096

// GiveBack returns a slice that Take has given, for a later batch: small batches then
// need no allocation. The caller may not use it any more.
func (b *Batcher[T]) GiveBack(items []T) {
	clear(items)
	if cap(items) <= maxSpare {
		b.spare = items[:0]
	}
}

// Len is the number of items waiting.
func (b *Batcher[T]) Len() int { return len(b.items) }
