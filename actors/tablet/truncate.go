package tablet

import (
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/tracker"
)

// keptEntries is how many applied entries stay in the log, and keptBytes how many bytes
// of them; they are dropped in lots of truncateEvery, or truncateBytes.
const (
	keptEntries   = 256
	keptBytes     = 4 << 20
	truncateEvery = 512
	truncateBytes = 16 << 20
)

// What replicas that lag may keep from being dropped, and what snapshots under way may:
// so many entries, or bytes, up to the newest. Beyond it nobody is waited for: who lags
// more gets a snapshot.
const (
	laggardEntries = 16 << 10
	laggardBytes   = 32 << 20
	sendingEntries = 64 << 10
	sendingBytes   = 96 << 20
)

// truncateTo is the entry up to which the log is to be truncated with the next append:
// one whose effects are durable by a checkpoint. 0: there is nothing to do.
func (t *Tablet) truncateTo() (uint64, error) {
	if t.visible < t.truncated+keptEntries+truncateEvery && t.logSizes.total < truncateBytes {
		return 0, nil
	}
	checkpoint, err := t.log.Checkpoint()
	if err != nil || checkpoint <= t.truncated { // much may be written until the next one
		return 0, err
	}
	kept := t.visible - t.logSizes.lastWithin(t.visible, keptEntries, keptBytes)
	to := min(kept, t.neededFrom(), checkpoint)
	if to <= t.truncated {
		return 0, nil
	}
	t.truncated = to
	t.logSizes.truncate(to)
	return to, nil
}

// neededFrom is the last entry that no other replica and no snapshot under way needs any
// more, as far as they may keep the log at all: whether a replica is dead or slow, it
// costs so much once, then a snapshot. Who does not lead knows of nobody, and keeps as
// little as it may: were it to lead, it would send more snapshots, nothing worse.
func (t *Tablet) neededFrom() uint64 {
	needed := t.visible
	if t.node.BasicStatus().RaftState == raft.StateLeader {
		from := t.heldFrom(laggardEntries, laggardBytes)
		t.node.WithProgress(func(_ uint64, _ raft.ProgressType, pr tracker.Progress) {
			// Who needs what is gone gets a snapshot anyway, and then what comes after that.
			if pr.State != tracker.StateSnapshot && pr.Match >= from {
				needed = min(needed, pr.Match)
			}
		})
	}
	if len(t.sending) > 0 {
		from := t.heldFrom(sendingEntries, sendingBytes)
		for _, s := range t.sending {
			if s.index >= from {
				needed = min(needed, s.index)
			}
		}
	}
	return needed
}

// heldFrom is the first index behind which there are at most so many entries, and bytes,
// in the log.
func (t *Tablet) heldFrom(entries uint64, bytes int) uint64 {
	if t.visible-t.truncated <= entries && t.logSizes.total <= bytes {
		return t.truncated
	}
	return max(t.truncated, t.visible-t.logSizes.lastWithin(t.visible, entries, bytes))
}

// logSizes are the sizes of the log's entries that were appended since the replica was
// opened, by index.
type logSizes struct {
	first uint64 // index of sizes[0]
	sizes []int
	total int
}

// append notes one entry; one that is there already is overwritten, with all behind it.
func (l *logSizes) append(index uint64, size int) {
	if len(l.sizes) == 0 || index < l.first {
		l.first, l.sizes, l.total = index, l.sizes[:0], 0
	}
	for uint64(len(l.sizes)) > index-l.first {
		l.total -= l.sizes[len(l.sizes)-1]
		l.sizes = l.sizes[:len(l.sizes)-1]
	}
	l.sizes = append(l.sizes, size)
	l.total += size
}

// truncate forgets the entries up to an index.
func (l *logSizes) truncate(index uint64) {
	for len(l.sizes) > 0 && l.first <= index {
		l.total -= l.sizes[0]
		l.sizes, l.first = l.sizes[1:], l.first+1
	}
}

// lastWithin is how many of the entries up to an index, counted from the last, are within
// so many entries and bytes together. Those whose size is not known take nothing.
func (l *logSizes) lastWithin(index, entries uint64, bytes int) (n uint64) {
	for i := index; n < entries && i >= l.first && i-l.first < uint64(len(l.sizes)); i-- {
		if bytes -= l.sizes[i-l.first]; bytes < 0 {
			return n
		}
		n++
	}
	return min(entries, index)
}
