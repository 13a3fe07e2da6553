package raftlog

// Durable position of a log: that of the last synced frame whose contents another node may have
// been sent, as a number that never decreases, not even across restarts. Copies of a log taken at
// different times have different positions if such a frame was written between them. Open writes no
// such frame. The number is stored under writing.

// Reached returns the position of the last synced frame with entries, a HardState, a note, or the
// begin or end of a replica, or after Open, if that is in a freed segment, of the oldest segment's
// first frame. Everything acknowledged from this log is in the returned frame or before it.
func (l *Log) Reached() uint64 { return l.reached.Load() }

// framePosition returns the position of a frame: the segment's sequence in the upper 32 bits, the
// frame's number in the lower ones. Frame 0 is the segment's first frame, with the heads and notes of
// all replicas.
func framePosition(sequence uint64, frame uint32) uint64 { return sequence<<32 | uint64(frame) }

// maySend reports whether the contents of the item may have been sent to another node.
func (it *item) maySend() bool {
	switch it.kind {
	case itemEntry, itemHard, itemNote, itemBegin, itemDestroy:
		return true
	}
	return false
}

// maySend reports whether the contents of any item of the batch may have been sent to another node.
func (b *Batch) maySend() bool {
	for i := range b.items {
		if b.items[i].maySend() {
			return true
		}
	}
	return false
}
