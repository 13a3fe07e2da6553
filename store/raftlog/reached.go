package raftlog

// This file keeps how far a log has come: the position of the last frame that another node may
// have been told of, as a number that only grows, across restarts as well. Two copies of a log
// have different positions unless no such frame was written between them. Open writes none. The
// number is stored under writing.

// Reached returns the position of the last synced frame with entries, a HardState, a note, or
// the begin or end of a replica. Whatever has been acknowledged from this log is durable in that
// frame or before it.
func (l *Log) Reached() uint64 { return l.reached.Load() }

// place numbers the frames of all segments in their order. Frame 0 of a segment is the state,
// which everything in earlier segments is before.
func place(sequence uint64, frame uint32) uint64 { return sequence<<32 | uint64(frame) }

// promises reports whether an item may be what another node was told of.
func (it *item) promises() bool {
	switch it.kind {
	case itemEntry, itemHard, itemNote, itemBegin, itemDestroy:
		return true
	}
	return false
}

// promises reports whether the batch has such an item.
func (b *Batch) promises() bool {
	for i := range b.items {
		if b.items[i].promises() {
			return true
		}
	}
	return false
}
