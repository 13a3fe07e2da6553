package scanner

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/notify"
)

// holder acquires advisory locks for one owner and records its cells in flight, because lockd
// grants an owner its own lock again, and releasing that would expose the current run. If locker
// is nil, every lock is granted. It is safe for concurrent use.
type holder struct {
	locker Locker
	owner  uint64

	mu       sync.Mutex
	held     map[mvcc.Cell]struct{} // bounded by the cells in flight
	released map[mvcc.Cell]struct{} // released here, but lockd has not been told yet
}

// unlockDelay is the time for which released locks gather, so that those of a batch's cells go to
// lockd in one message.
const unlockDelay = time.Millisecond

// lockState is the result of take for one cell.
type lockState uint8

const (
	lockGranted lockState = iota
	lockRefused           // another owner holds it
	lockOwn               // the owner's cell is in flight already
)

func newHolder(locker Locker, owner uint64) *holder {
	return &holder{
		locker: locker, owner: owner, held: make(map[mvcc.Cell]struct{}),
		released: make(map[mvcc.Cell]struct{}),
	}
}

// take tries to lock each cell. cells has no duplicates. Granted locks must be released.
func (h *holder) take(ctx context.Context, cells []mvcc.Cell) []lockState {
	out := make([]lockState, len(cells))
	var keys []string
	var which []int
	h.mu.Lock()
	for i, c := range cells {
		if _, own := h.held[c]; own {
			out[i] = lockOwn
			continue
		}
		h.held[c] = struct{}{}
		delete(h.released, c) // the owner keeps it
		which = append(which, i)
		if h.locker != nil {
			keys = append(keys, notify.LockKey(c))
		}
	}
	h.mu.Unlock()
	if len(keys) == 0 {
		return out
	}
	granted, err := h.locker.TryLock(ctx, h.owner, lease, keys...)
	if err != nil || len(granted) != len(keys) {
		return out // a failure of lockd may duplicate work but must not prevent it
	}
	for k, i := range which {
		if !granted[k] {
			out[i] = lockRefused
			h.drop(cells[i])
		}
	}
	return out
}

// own reports whether the owner has the cell in flight.
func (h *holder) own(c mvcc.Cell) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, own := h.held[c]
	return own
}

// release releases a granted lock, within unlockDelay. It does not block.
func (h *holder) release(c mvcc.Cell) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.held, c)
	if h.locker == nil {
		return
	}
	if h.released[c] = struct{}{}; len(h.released) == 1 {
		time.AfterFunc(unlockDelay, h.unlock)
	}
}

// unlock sends the released locks to lockd, before a later take can lock one of them again.
func (h *holder) unlock() {
	h.mu.Lock()
	defer h.mu.Unlock()
	keys := make([]string, 0, len(h.released))
	for c := range h.released {
		keys = append(keys, notify.LockKey(c))
	}
	clear(h.released)
	for page := range slices.Chunk(keys, offerCells) {
		h.locker.Unlock(h.owner, page...)
	}
}

func (h *holder) drop(c mvcc.Cell) {
	h.mu.Lock()
	delete(h.held, c)
	h.mu.Unlock()
}
