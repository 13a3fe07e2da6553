package peer

import (
	"slices"
	"sync"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/heap"
	"github.com/percolator-go/percolator/internal/wire"
)

// room is the memory for answers to other nodes' reads, of all nodes together and of
// each. It is taken before a read is done, as much as its answer may take, and given back
// when the answer is on its way. Reads that there is no room for wait, node by node in
// turn, for readPatience; then they are answered with CODE_OVERLOADED. Small answers have
// a part of their own: who asks for little does not wait for those that ask for much.
//
// A node frees what it holds by receiving, or by ending: nothing here waits for what is
// held by a read that waits.
type room struct {
	mu    sync.Mutex
	parts [parts]roomPart
	gauge *heap.Gauge
	busy  bool // somebody begins reads that have waited
}

type roomPart struct {
	free int64     // of all
	each int64     // the most that one node holds
	line []*outbox // nodes whose reads wait; the first is next
}

// reads is what one node holds of a part, and its reads that wait for some, the oldest
// first. Under the mutex of the room.
type reads struct {
	held    int64
	waiting []*handled
}

// The parts of a room.
const (
	small = iota
	large
	parts

	largestSmall = 64 << 10
	// unbounded is taken at first for a read that does not say how large its answer may
	// become: those of nodes themselves. If there is no room for an answer that takes
	// more, the read is done again when there is.
	unbounded = 16 << 10
	// readPatience is for how long a read waits for room: less than an attempt of its
	// asker's takes.
	readPatience = time.Second
	// readRetry is when a read that was refused may be tried again, in milliseconds.
	readRetry = 50
)

// newRoom returns room for so many bytes; a quarter of it is for small answers, and a
// node may have half of each part.
func newRoom(bytes int64) *room {
	r := &room{gauge: heap.NewGauge(bytes)}
	for p, size := range [parts]int64{small: bytes / 4, large: bytes - bytes/4} {
		r.parts[p] = roomPart{free: size, each: size / 2}
	}
	return r
}

func partOf(bytes int64) int {
	if bytes <= largestSmall {
		return small
	}
	return large
}

// answerRoom is what the answer to a request may take; 0: it is small, or not that of a read.
func answerRoom(req *pb.TabletRequest) int64 {
	if wire.OperationOf(req).By == wire.ByReader {
		if n := req.GetMaxAnswerBytes(); n > 0 {
			return int64(n)
		}
		return unbounded
	}
	return 0
}

// begin takes so many bytes for a read; false: it waits, and is begun when there is room.
func (r *room) begin(h *handled, bytes int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	h.part = partOf(bytes)
	p := &r.parts[h.part]
	h.wants = min(bytes, p.each)
	own := &h.box.reads[h.part]
	if len(own.waiting) == 0 && r.fits(h) {
		r.hold(h)
		return true
	}
	h.patience = time.AfterFunc(readPatience, func() { r.expire(h) })
	if own.waiting = append(own.waiting, h); len(own.waiting) == 1 {
		p.line = append(p.line, h.box)
	}
	return false
}

// fits reports whether the read's turn has come when it is its node's first.
func (r *room) fits(h *handled) bool {
	p := &r.parts[h.part]
	return h.wants <= p.free && h.box.reads[h.part].held+h.wants <= p.each
}

func (r *room) hold(h *handled) {
	h.held = h.wants
	r.parts[h.part].free -= h.held
	h.box.reads[h.part].held += h.held
	r.gauge.Add(h.held)
}

// expire refuses a read that has waited for long.
func (r *room) expire(h *handled) {
	r.mu.Lock()
	own := &h.box.reads[h.part]
	i := slices.Index(own.waiting, h)
	if i >= 0 {
		own.waiting = slices.Delete(own.waiting, i, i+1)
	}
	r.mu.Unlock()
	if i >= 0 {
		h.box.peers.counts.readsRefused.Add(1)
		e := refusal(h.id, pb.Error_CODE_OVERLOADED, "node %d has no room for the answer now", h.box.peers.self.NodeID)
		e.Error.RetryAfterMs = readRetry
		h.reply(e)
		r.serve()
	}
}

// settle makes what is held for a read what its answer takes. false: there is no room for
// that, and the read, which may take more than it asked room for, waits to be done again.
func (r *room) settle(h *handled, bytes int64, again bool) (hold, bool) {
	r.mu.Lock()
	if bytes > h.held && again && !h.done.Load() {
		r.drop(h.part, h.box, h.held)
		h.held = 0
		r.mu.Unlock()
		if !r.begin(h, bytes) {
			r.serve()
			return hold{}, false
		}
		r.mu.Lock()
	}
	rest := max(h.held-bytes, 0)
	r.drop(h.part, h.box, rest)
	var out hold
	out[h.part] = h.held - rest
	h.held = 0
	r.mu.Unlock()
	if rest > 0 {
		r.serve()
	}
	return out, true
}

// give gives back what answers to a node have held.
func (r *room) give(box *outbox, h hold) {
	if h == (hold{}) {
		return
	}
	r.mu.Lock()
	for part, n := range h {
		r.drop(part, box, n)
	}
	r.mu.Unlock()
	r.serve()
}

// drop is give with mu held.
func (r *room) drop(part int, box *outbox, n int64) {
	r.parts[part].free += n
	box.reads[part].held -= n
	r.gauge.Add(-n)
}

// hold is what answers hold of each part, in bytes.
type hold [parts]int64

func (h hold) plus(other hold) hold { return hold{h[small] + other[small], h[large] + other[large]} }

// serve begins the reads that there is room for, one goroutine at a time: what their
// answers give back is seen to here.
func (r *room) serve() {
	r.mu.Lock()
	if r.busy {
		r.mu.Unlock()
		return
	}
	r.busy = true
	for h := r.next(); h != nil; h = r.next() {
		r.mu.Unlock()
		h.begin()
		r.mu.Lock()
	}
	r.busy = false
	r.mu.Unlock()
}

// next takes out the next read that there is room for, holding that; nil if there is
// none. Called with mu held.
func (r *room) next() *handled {
	for part := range r.parts {
		p := &r.parts[part]
		for i := 0; i < len(p.line); {
			box := p.line[i]
			own := &box.reads[part]
			if len(own.waiting) == 0 {
				p.line = slices.Delete(p.line, i, i+1)
				continue
			}
			h := own.waiting[0]
			if !r.fits(h) && !h.done.Load() {
				if h.wants > p.free && own.held+h.wants <= p.each {
					break // its turn comes first: else those that want less would always be before it
				}
				i++
				continue
			}
			own.waiting[0] = nil
			own.waiting = own.waiting[1:]
			p.line = append(slices.Delete(p.line, i, i+1), box) // the other nodes come first now
			h.patience.Stop()
			if h.done.Load() {
				continue // its time was over
			}
			r.hold(h)
			return h
		}
	}
	return nil
}
