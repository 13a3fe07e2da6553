package raftlog

// The rules of a log and its state in memory. Append checks its items against copies of the heads,
// writes them, and then applies them; replay applies the items that it reads. So a written batch
// can always be applied.

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"go.etcd.io/raft/v3/raftpb"
)

// hardState is raftpb.HardState without pointers.
type hardState struct{ term, vote, commit uint64 }

// head is the log's state of a replica except its entries.
type head struct {
	hard       hardState
	truncated  Position // the entries after it are live
	checkpoint uint64   // the state is durable up to this index; never before truncated
	last       uint64   // index of the last entry, or truncated.Index
	figures    string   // what the caller passed with the last Checkpoint or Begin
}

// The methods of head implement the rules of a log. Their errors mean a fault of the caller if the
// item is in a batch, and damage if it is in a segment.

func (h *head) begin(at Position, figures []byte) error {
	if at.Index < h.checkpoint {
		return fmt.Errorf("the log would begin at %d, before its checkpoint at %d", at.Index, h.checkpoint)
	}
	if h.hard.term < at.Term { // a vote of an older term no longer counts
		h.hard.term, h.hard.vote = at.Term, 0
	}
	h.hard.commit = max(h.hard.commit, at.Index)
	h.truncated, h.checkpoint, h.last, h.figures = at, at.Index, at.Index, string(figures)
	return nil
}

func (h *head) append(index uint64) error {
	if index <= h.truncated.Index || index <= h.hard.commit || index > h.last+1 {
		return fmt.Errorf("entry %d does not fit a log of (%d, %d] with %d committed",
			index, h.truncated.Index, h.last, h.hard.commit)
	}
	h.last = index
	return nil
}

func (h *head) setHard(to hardState) error {
	if to.term < h.hard.term || to.term == h.hard.term && h.hard.vote != 0 &&
		to.vote != h.hard.vote {
		return fmt.Errorf("the vote for %d in term %d follows one for %d in term %d",
			to.vote, to.term, h.hard.vote, h.hard.term)
	}
	if to.commit > h.last {
		return fmt.Errorf("commit index %d is beyond the last entry, %d", to.commit, h.last)
	}
	to.commit = max(to.commit, h.hard.commit) // a checkpoint may have raised it
	h.hard = to
	return nil
}

func (h *head) truncate(to Position) error {
	most := h.checkpoint // a replay needs the entries after it
	if to.Index < h.truncated.Index || to.Index > most {
		return fmt.Errorf("truncation at %d of a log of (%d, %d] with a checkpoint at %d",
			to.Index, h.truncated.Index, h.last, h.checkpoint)
	}
	h.truncated = to
	return nil
}

func (h *head) setCheckpoint(index uint64, figures []byte) error {
	if index < h.checkpoint || index > h.last {
		return fmt.Errorf("checkpoint at %d is not between the last checkpoint, %d, and the last entry, %d",
			index, h.checkpoint, h.last)
	}
	h.checkpoint, h.figures = index, string(figures)
	h.hard.commit = max(h.hard.commit, index)
	return nil
}

var (
	errUnknown = errors.New("no such replica")
	errMoved   = errors.New("the log does not contain the entry to move")
)

// change applies an item to a head, which is nil if there is no such replica, and returns the new
// head. It does not read entries.
func (h *head) change(it *item) (*head, error) {
	if h == nil {
		if it.kind != itemBegin {
			return nil, errUnknown
		}
		h = new(head)
	}
	switch it.kind {
	case itemBegin:
		return h, h.begin(it.at, it.note)
	case itemEntry:
		return h, h.append(it.at.Index)
	case itemMoved:
		if it.at.Index <= h.truncated.Index || it.at.Index > h.last {
			return h, errMoved
		}
	case itemHard:
		return h, h.setHard(it.head.hard)
	case itemTruncate:
		return h, h.truncate(it.at)
	case itemCheckpoint:
		return h, h.setCheckpoint(it.at.Index, it.note)
	case itemDestroy:
		return nil, nil
	}
	return h, nil
}

// slot is the location of an entry.
type slot struct {
	segment *segment // nil during replay until the entry is read
	term    uint64
	entry   *raftpb.Entry // nil: not in memory
	offset  uint32        // offset of the item in the segment
	length  uint32        // length of the item
}

// replica is a head with its entries. slots[i] is the slot of index truncated.Index+1+i.
type replica struct {
	head
	slots []slot
}

// state is the contents of the log. Log.mu guards it.
type state struct {
	replicas map[uint64]*replica
	notes    map[string][]byte
	recent   recent
}

func newState(cacheBytes int64) *state {
	return &state{
		replicas: map[uint64]*replica{},
		notes:    map[string][]byte{},
		recent:   recent{limit: cacheBytes},
	}
}

// check applies the items to copies of the heads, and fills in the terms of truncations. It
// does not change the state.
func (s *state) check(items []item) error {
	heads := map[uint64]*head{}
	for i := range items {
		it := &items[i]
		if it.kind == itemNote {
			continue
		}
		h, ok := heads[it.replica]
		if r := s.replicas[it.replica]; !ok && r != nil {
			copied := r.head
			h = &copied
		}
		if it.kind == itemTruncate {
			if err := s.fillTerm(it); err != nil {
				return err
			}
		}
		h, err := h.change(it)
		if err != nil {
			return fmt.Errorf("check a change of replica %d: %w", it.replica, err)
		}
		heads[it.replica] = h
	}
	return nil
}

// fillTerm sets the term of a truncation from the last removed entry, which was in the log before
// the batch.
func (s *state) fillTerm(it *item) error {
	r := s.replicas[it.replica]
	if r == nil {
		return fmt.Errorf("look up the term of replica %d: %w", it.replica, errUnknown)
	}
	if it.at.Index == r.truncated.Index {
		it.at = r.truncated
		return nil
	}
	sl := r.slot(it.at.Index)
	if sl == nil {
		return fmt.Errorf("replica %d: cannot truncate at entry %d, which its log does not contain", it.replica, it.at.Index)
	}
	it.at.Term = sl.term
	return nil
}

// apply applies an item of a frame whose payload begins at an offset of a segment. It caches entry
// unless it is nil.
func (s *state) apply(it *item, seg *segment, payload int64, entry *raftpb.Entry) error {
	if it.kind == itemNote {
		if delete(s.notes, it.key); len(it.note) > 0 {
			s.notes[it.key] = slices.Clone(it.note)
		}
		return nil
	}
	r := s.replicas[it.replica]
	var h *head
	var before Position
	if r != nil {
		h, before = &r.head, r.truncated
	}
	h, err := h.change(it)
	if err != nil {
		return fmt.Errorf("apply a change of replica %d: %w", it.replica, err)
	}
	switch {
	case h == nil: // destroyed
		r.release(0)
		delete(s.replicas, it.replica)
		return nil
	case r == nil:
		r = &replica{head: *h}
		s.replicas[it.replica] = r
	}
	switch it.kind {
	case itemBegin:
		r.release(0)
	case itemEntry:
		r.release(int(it.at.Index - r.truncated.Index - 1))
	case itemTruncate:
		r.drop(int(r.truncated.Index - before.Index))
	}
	if it.entry != nil {
		if err := r.put(it, seg, payload, entry); err != nil {
			return fmt.Errorf("store an entry of replica %d: %w", it.replica, err)
		}
		s.cache(it.replica, it.at.Index, entry)
	}
	return nil
}

// put sets the entry's slot.
func (r *replica) put(it *item, seg *segment, payload int64, entry *raftpb.Entry) error {
	sl := slot{
		segment: seg, term: it.at.Term, entry: entry,
		offset: uint32(payload) + it.offset, length: it.length,
	}
	seg.live++
	seg.liveBytes += int64(it.length)
	if it.kind == itemEntry {
		r.slots = append(r.slots, sl)
		return nil
	}
	old := &r.slots[it.at.Index-r.truncated.Index-1]
	if old.segment != nil && old.term != sl.term {
		return errMoved
	}
	if old.free(); sl.entry == nil {
		sl.entry = old.entry
	}
	*old = sl
	return nil
}

// release frees the slots from n on.
func (r *replica) release(n int) {
	for i := n; i < len(r.slots); i++ {
		r.slots[i].free()
	}
	clear(r.slots[n:])
	r.slots = r.slots[:n]
}

// drop frees the first n slots.
func (r *replica) drop(n int) {
	for i := range n {
		r.slots[i].free()
	}
	if rest := r.slots[n:]; cap(rest) > 2*len(rest)+64 {
		r.slots = slices.Clone(rest) // frees the large array
	} else {
		clear(r.slots[:n])
		r.slots = rest
	}
}

func (sl *slot) free() {
	if sl.segment != nil {
		sl.segment.live--
		sl.segment.liveBytes -= int64(sl.length)
	}
}

// slot returns the slot of the entry, or nil if there is none.
func (r *replica) slot(index uint64) *slot {
	if index <= r.truncated.Index || index > r.last {
		return nil
	}
	return &r.slots[index-r.truncated.Index-1]
}

// items returns the items of a segment's first frame: all heads and notes.
func (s *state) items() []item {
	items := make([]item, 0, len(s.replicas)+len(s.notes))
	for _, id := range slices.Sorted(maps.Keys(s.replicas)) {
		items = append(items, item{kind: itemState, replica: id, head: s.replicas[id].head})
	}
	for _, key := range slices.Sorted(maps.Keys(s.notes)) {
		items = append(items, item{kind: itemNote, key: key, note: s.notes[key]})
	}
	return items
}
