package observer

import (
	"sync"

	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
)

// What the last run of a row has read and written, for `percolator why`. It is kept in memory. When
// there are too many rows, the one that was recorded first is dropped, even if it has run since.

// keptEffects limits the rows of all observers whose effects are kept: about 2 MB.
const keptEffects = 4096

// Effects are the effects of a row's last run that committed in this process.
type Effects struct {
	Start mvcc.Timestamp
	Batch int // changes that the run handled together
	txn.Effects
}

type rowKey struct{ observer, row string }

// effectsBook keeps the effects of rows. Its methods may be called concurrently.
type effectsBook struct {
	mu   sync.Mutex
	of   map[rowKey]Effects
	ring []rowKey // the keys; the oldest is at next once it is full
	next int
}

func newEffectsBook() *effectsBook { return &effectsBook{of: map[rowKey]Effects{}} }

func (b *effectsBook) add(observer, row string, e Effects) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	key := rowKey{observer, row}
	if _, known := b.of[key]; !known {
		if len(b.ring) < keptEffects {
			b.ring = append(b.ring, key)
		} else {
			delete(b.of, b.ring[b.next])
			b.ring[b.next], b.next = key, (b.next+1)%keptEffects
		}
	}
	b.of[key] = e
}

// Effects returns the effects of a row's last committed run; ok is false if they are not kept.
func (d *Dispatcher) Effects(observer, row string) (Effects, bool) {
	d.effects.mu.Lock()
	defer d.effects.mu.Unlock()
	e, ok := d.effects.of[rowKey{observer, row}]
	return e, ok
}
