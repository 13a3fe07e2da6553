package txn

import (
	"context"
	"iter"
	"slices"
	"sync"

	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/tracing"
)

// Reader is the common interface of Txn and Snapshot. All methods may be used concurrently.
type Reader interface {
	Get(ctx context.Context, k Key) (value []byte, ok bool, err error)
	// GetMulti returns one value per key, in the order of keys.
	GetMulti(ctx context.Context, keys []Key) ([]Value, error)
	Scan(ctx context.Context, s ScanSpec) iter.Seq2[mvcc.ReadCell, error]
}

// reader reads the snapshot at one timestamp: cells through a cache, scans without it.
type reader struct {
	c    *Client
	name string // key of the prefetcher's patterns
	// at is set once: at construction, or under mu by the first call that needs it (start.go).
	at mvcc.Timestamp
	// span is the parent of the operations' spans; nil unless sampled. It is set before the
	// reader is used.
	span *tracing.Span

	mu      sync.Mutex // guards the fields below
	opening opening
	cache   readCache
	guesses prefetchLog
	room    readBatch // used by the first read of one cell; never reused
}

// batch returns an empty batch for one needed cell. The first call returns the reader's own,
// so that a transaction that reads one cell allocates nothing for it. It is not reused, since
// the transport may hold its message after the caller has been canceled. The caller holds mu.
func (r *reader) batch() *readBatch {
	b := &r.room
	if b.need > 0 {
		b = &readBatch{}
	}
	b.need = 1
	return b
}

// GetRecords returns each cell's record at the snapshot with its timestamps, including
// acknowledgment columns and deletions. It ignores buffered writes. The values are shared with
// the cache and must not be changed.
func (r *reader) GetRecords(ctx context.Context, cells ...mvcc.Cell) ([]mvcc.ReadResult, error) {
	return r.getRecords(ctx, cells, false)
}

// getRecords returns each cell's record, as GetRecords does. If origins is set, it also returns the
// origins of notifications on cells not read before.
func (r *reader) getRecords(ctx context.Context, cells []mvcc.Cell,
	origins bool) ([]mvcc.ReadResult, error) {
	// mu is not held during requests: two concurrent reads of one cell may both send one. They
	// get the same answer, because they read the same snapshot.
	out := make([]mvcc.ReadResult, len(cells))
	var missing []int
	r.mu.Lock()
	for i, c := range cells {
		r.guesses.learnFrom(c)
		if hit := r.cache.find(c); hit != nil {
			r.used(c)
			out[i] = *hit
		} else {
			missing = append(missing, i)
		}
	}
	var guessed []mvcc.Cell
	if len(missing) > 0 {
		guessed = r.guesses.take(r, cells)
	}
	r.mu.Unlock()
	if len(missing) == 0 {
		return out, nil
	}
	b := newReadBatch(cells, missing)
	b.origins = origins
	r.prefetch(b, guessed)
	if err := r.readBatch(ctx, b); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cache.grow(len(b.cells))
	for i, at := range b.places {
		out[at] = b.results[i]
		r.cache.put(b, i, r.c.cfg.ReadCacheBytes)
	}
	r.putPrefetched(b)
	return out, nil
}

// prefetch adds cells to the batch in advance: no caller waits for them.
func (r *reader) prefetch(b *readBatch, cells []mvcc.Cell) {
	if len(cells) == 0 {
		return
	}
	b.cells = append(b.cells, cells...)
	b.results = append(b.results, make([]mvcc.ReadResult, len(cells))...)
	r.c.stats.PrefetchAsked.Add(uint64(len(cells)))
}

// putPrefetched adds the prefetched cells of the batch to the cache. A locked one is not cached: a
// later read of it must wait for the lock. The caller holds mu.
func (r *reader) putPrefetched(b *readBatch) {
	for i := b.need; i < len(b.cells); i++ {
		if b.results[i].Status == mvcc.StatusLocked {
			r.c.stats.PrefetchLocked.Add(1)
			continue
		}
		r.cache.put(b, i, r.c.cfg.ReadCacheBytes)
	}
}

// readOne returns one cell's record, and prefetches: the same message requests the columns of the row
// that transactions of the same name have read after this column (design section 8).
func (r *reader) readOne(ctx context.Context, cell mvcc.Cell) (mvcc.ReadResult, error) {
	r.mu.Lock()
	if hit := r.cache.find(cell); hit != nil {
		r.used(cell)
		r.guesses.note(r, cell)
		out := *hit
		r.mu.Unlock()
		return out, nil
	}
	var guessed []mvcc.Cell
	for _, column := range r.guesses.note(r, cell) {
		guessed = append(guessed, mvcc.Cell{Table: cell.Table, Row: cell.Row, Column: column})
	}
	guessed = append(guessed, r.guesses.take(r, []mvcc.Cell{cell})...)
	b := r.batch()
	at, claimed := r.tryClaim()
	r.mu.Unlock()

	b.cells, b.results = append(b.cellRoom[:0], cell), b.resultRoom[:1]
	r.prefetch(b, guessed)
	var err error
	if claimed {
		err = r.readClaimed(ctx, at, b)
	} else {
		err = r.readBatch(ctx, b)
	}
	if err != nil {
		return mvcc.ReadResult{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cache.put(b, 0, r.c.cfg.ReadCacheBytes)
	r.putPrefetched(b)
	return b.results[0], nil
}

// used counts a cache hit. The caller holds mu.
func (r *reader) used(cell mvcc.Cell) {
	r.c.stats.CacheHits.Add(1)
	if r.cache.guessed[cell] {
		delete(r.cache.guessed, cell)
		r.c.stats.PrefetchUsed.Add(1)
	}
}

// cell returns the cell of a key, whose table it looks up.
func (c *Client) cell(ctx context.Context, k Key) (mvcc.Cell, error) {
	id, err := c.meta.TableID(ctx, k.Table)
	if err != nil {
		return mvcc.Cell{}, err
	}
	if err := c.cfg.checkAddress(k.Row, k.Column); err != nil {
		return mvcc.Cell{}, err
	}
	return mvcc.Cell{Table: id, Row: k.Row, Column: k.Column}, nil
}

// handOut returns a non-nil copy of a value for the user.
func handOut(value []byte) []byte { return append(make([]byte, 0, len(value)), value...) }

// readCache holds the results of a reader, including prefetched ones. It searches a few cells
// linearly and more by an index. It never evicts: a snapshot does not change. When it is full,
// further results are not cached.
type readCache struct {
	cells   []mvcc.Cell
	results []mvcc.ReadResult  // one per cell
	index   map[mvcc.Cell]int  // of cells; nil while they are few
	guessed map[mvcc.Cell]bool // prefetched and not read yet
	bytes   int                // rows, columns and values
}

const (
	// smallSet is the maximum number of cells searched linearly instead of by a map.
	smallSet = 12
	// maxCachedCells is the maximum number of cached cells, in addition to ReadCacheBytes.
	maxCachedCells = 1 << 16
)

// find returns the cached result of a cell, or nil. The pointer is valid until the next put.
func (c *readCache) find(cell mvcc.Cell) *mvcc.ReadResult {
	if c.index != nil {
		if i, ok := c.index[cell]; ok {
			return &c.results[i]
		}
		return nil
	}
	for i := range c.cells {
		if c.cells[i] == cell {
			return &c.results[i]
		}
	}
	return nil
}

// grow reserves space for the results of this many more cells.
func (c *readCache) grow(cells int) {
	if cells = min(cells, maxCachedCells-len(c.cells)); cells <= 1 {
		return
	}
	c.cells, c.results = slices.Grow(c.cells, cells), slices.Grow(c.results, cells)
	if c.index == nil && len(c.cells)+cells > smallSet {
		c.buildIndex(len(c.cells) + cells)
	}
}

// buildIndex makes the index, with space for this many cells.
func (c *readCache) buildIndex(cells int) {
	c.index = make(map[mvcc.Cell]int, cells)
	for i, cell := range c.cells {
		c.index[cell] = i
	}
}

// put adds the batch's i-th result if there is room. The first result is not copied out of its
// batch: most transactions have only one.
func (c *readCache) put(b *readBatch, i, maxBytes int) {
	cell, result := &b.cells[i], &b.results[i]
	size := len(cell.Row) + len(cell.Column) + len(result.Value)
	if c.find(*cell) != nil || c.bytes+size > maxBytes || len(c.cells) >= maxCachedCells {
		return
	}
	c.bytes += size
	if i >= b.need {
		if c.guessed == nil {
			c.guessed = make(map[mvcc.Cell]bool)
		}
		c.guessed[*cell] = true
	}
	if c.cells == nil {
		c.cells, c.results = b.cells[i:i+1:i+1], b.results[i:i+1:i+1]
		return
	}
	c.cells, c.results = append(c.cells, *cell), append(c.results, *result)
	if c.index != nil {
		c.index[*cell] = len(c.cells) - 1
	} else if len(c.cells) > smallSet {
		c.buildIndex(4 * smallSet)
	}
}
