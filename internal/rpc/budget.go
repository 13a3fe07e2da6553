package rpc

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/percolator-go/percolator/internal/heap"
)

// budget is the memory for answers that all clients of a server share, in two parts: a
// client that asks for little is not kept waiting by those that have filled the part for
// large answers. What an answer may take is taken before its operation is done, and given
// back when gRPC has written the answer out.
//
// Only a stream's reader waits for memory, and it holds none while it does: it can't come
// to a standstill that ends only with memory that it holds itself. Memory that somebody
// waits for comes back in time: from clients that read, and from those that read nothing
// for patience, because their streams are ended.
type budget struct {
	parts    [parts]*semaphore.Weighted
	own      [parts]int64 // a stream's share of each part
	patience time.Duration
	gauge    *heap.Gauge

	mu      sync.Mutex
	shares  map[*share]struct{}
	waiting int         // streams that wait for others' memory
	timer   *time.Timer // while there are any: when to look for who is in the way
}

// The parts of a budget.
const (
	small = iota // reservations up to largest small one
	large
	parts

	largestSmall = 64 << 10
	shareOf      = 5 // a stream may hold a fifth of each part
)

// hold is memory that is held of each part, in bytes.
type hold [parts]int64

func (h hold) total() int { return int(h[small] + h[large]) }

func (h hold) plus(other hold) hold { return hold{h[small] + other[small], h[large] + other[large]} }

// errNotReading is why a stream was ended that held memory others waited for.
var errNotReading = errors.New("percolator: the client does not read its answers, and others wait for the memory that they take")

func newBudget(bytes int64, patience time.Duration) *budget {
	b := &budget{patience: patience, gauge: heap.NewGauge(bytes), shares: map[*share]struct{}{}}
	sizes := [parts]int64{small: bytes / 4, large: bytes - bytes/4}
	for part, size := range sizes {
		b.parts[part], b.own[part] = semaphore.NewWeighted(size), size/shareOf
	}
	return b
}

// share is what one stream holds of the budget.
type share struct {
	budget *budget
	own    [parts]*semaphore.Weighted
	end    context.CancelFunc // of the stream's operations

	ended   chan struct{} // closed when the stream must end: errNotReading
	sending atomic.Int64  // since when a message waits to be written, in Unix nanoseconds; 0: none does

	mu   sync.Mutex
	held hold
	left bool
}

// join adds a stream, whose operations end can end; the stream leaves later.
func (b *budget) join(end context.CancelFunc) *share {
	s := &share{budget: b, end: end, ended: make(chan struct{})}
	for part, size := range b.own {
		s.own[part] = semaphore.NewWeighted(size)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.shares[s] = struct{}{}
	return s
}

// leave gives back all that the stream holds; it gets no more.
func (s *share) leave() {
	s.budget.mu.Lock()
	delete(s.budget.shares, s)
	s.budget.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left = true
	s.release(s.held)
}

// largest is the most that one answer may take.
func (s *share) largest() int { return int(s.budget.own[large]) }

// part is where so many bytes are taken from.
func part(bytes int) int {
	if bytes <= largestSmall {
		return small
	}
	return large
}

// wait takes so many bytes, at most the largest, as soon as there is room: in the
// stream's share, which is its own client's affair, and then in the budget. false: ctx
// has ended. The caller holds nothing.
func (s *share) wait(ctx context.Context, bytes int) (hold, bool) {
	p, n := part(bytes), int64(min(bytes, s.largest()))
	if s.own[p].Acquire(ctx, n) != nil {
		return hold{}, false
	}
	if !s.budget.parts[p].TryAcquire(n) && s.budget.wait(ctx, p, n) != nil {
		s.own[p].Release(n)
		return hold{}, false
	}
	return s.took(p, n)
}

// try takes so many bytes if there is room now.
func (s *share) try(bytes int) (hold, bool) { return s.tryPart(part(bytes), int64(bytes)) }

func (s *share) tryPart(p int, n int64) (hold, bool) {
	if !s.own[p].TryAcquire(n) {
		return hold{}, false
	}
	if !s.budget.parts[p].TryAcquire(n) {
		s.own[p].Release(n)
		return hold{}, false
	}
	return s.took(p, n)
}

// took notes what was taken; false: the stream has ended meanwhile, and nothing is held.
func (s *share) took(p int, n int64) (hold, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var h hold
	h[p] = n
	s.held = s.held.plus(h)
	s.budget.gauge.Add(n)
	if s.left {
		s.release(h)
		return hold{}, false
	}
	return h, true
}

// give gives back.
func (s *share) give(h hold) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.left {
		s.release(h)
	}
}

// release is give with mu held.
func (s *share) release(h hold) {
	defer s.budget.gauge.Add(-int64(h.total()))
	for p, n := range h {
		s.held[p] -= n
		s.own[p].Release(n)
		s.budget.parts[p].Release(n)
	}
}

// settle makes the hold one of so many bytes, now that they are known; false, and the
// hold as it was, if that is more and there is no room now.
func (s *share) settle(h hold, bytes int) (hold, bool) {
	p := small
	if h[large] > 0 {
		p = large
	}
	more := int64(bytes) - h[p]
	if more <= 0 {
		var rest hold
		rest[p] = -more
		s.give(rest)
		h[p] += more
		return h, true
	}
	added, ok := s.tryPart(p, more)
	return h.plus(added), ok
}

// wait waits for others' memory, and has those looked for that are in the way.
func (b *budget) wait(ctx context.Context, p int, n int64) error {
	b.mu.Lock()
	if b.waiting++; b.waiting == 1 {
		b.timer = time.AfterFunc(b.patience, b.clear)
	}
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.waiting--; b.waiting == 0 {
			b.timer.Stop()
		}
	}()
	return b.parts[p].Acquire(ctx, n)
}

// clear ends the streams whose client has taken nothing for patience, if others have
// waited for as long.
func (b *budget) clear() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waiting == 0 {
		return
	}
	for s := range b.shares {
		since := s.sending.Load()
		if since == 0 || time.Since(time.Unix(0, since)) < b.patience {
			continue
		}
		delete(b.shares, s) // once is enough
		close(s.ended)
		s.end()
	}
	b.timer.Reset(b.patience / 4)
}
