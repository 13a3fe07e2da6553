package group

// Retention of the log: the dropped entries, the size of the rest, and the snapshots that need it.
// An Append includes a truncation that is due.

import (
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/tracker"
)

// keptEntries and keptBytes limit the applied entries that stay in the log although nothing needs
// them. A truncation is due once the log has truncateEvery entries more, or truncateBytes in all.
const (
	keptEntries   = 256
	keptBytes     = 4 << 20
	truncateEvery = 64
	truncateBytes = 5 << 20
)

// Limits of the log kept for lagging replicas and for snapshots being sent, in entries and bytes
// before the newest. A follower further behind receives a snapshot.
const (
	laggardEntries  = 16 << 10
	laggardBytes    = 32 << 20
	snapshotEntries = 64 << 10
	snapshotBytes   = 96 << 20
)

// retention tracks the kept part of the log: the dropped entries, the size of the rest, and the
// snapshots that need later entries.
type retention struct {
	truncated uint64 // entries up to here are being dropped
	sizes     logSizes
	snapshots map[uint64]uint64 // index of the one under way, by replica; nil until there is one
}

// holdLog keeps the log after a snapshot for the replica until SnapshotEnded.
func (r *retention) holdLog(replica, index uint64) {
	if r.snapshots == nil {
		r.snapshots = map[uint64]uint64{}
	}
	r.snapshots[replica] = index
}

// truncateTo returns the entry up to which to truncate the log with this append, or 0 for none.
// Effects are readable up to visible; checkpoint returns the index up to which they are durable.
// progress calls its argument with the last entry acknowledged by each replica to which this leader
// sends entries.
func (r *retention) truncateTo(visible uint64, checkpoint func() (uint64, error),
	progress func(func(match uint64))) (uint64, error) {
	if visible < r.truncated+keptEntries+truncateEvery && r.sizes.total < truncateBytes {
		return 0, nil
	}
	durable, err := checkpoint()
	if err != nil || durable <= r.truncated { // nothing to drop before the next checkpoint
		return 0, err
	}
	kept := visible - r.sizes.lastWithin(visible, keptEntries, keptBytes)
	to := min(kept, r.unneededUpTo(visible, progress), durable)
	if to <= r.truncated {
		return 0, nil
	}
	r.truncated = to
	r.sizes.truncate(to)
	return to, nil
}

// unneededUpTo returns the last entry that no other replica and no running snapshot needs, within
// the limits of the kept log: a dead or slow replica costs that much, and then a snapshot. A
// follower that needs removed entries gets a snapshot anyway, and then the entries after it.
func (r *retention) unneededUpTo(visible uint64, progress func(func(match uint64))) uint64 {
	needed, from := visible, r.heldFrom(visible, laggardEntries, laggardBytes)
	progress(func(match uint64) {
		if match >= from {
			needed = min(needed, match)
		}
	})
	if len(r.snapshots) > 0 {
		from := r.heldFrom(visible, snapshotEntries, snapshotBytes)
		for _, index := range r.snapshots {
			if index >= from {
				needed = min(needed, index)
			}
		}
	}
	return needed
}

// heldFrom returns the first index after which the log contains at most the given entries and bytes.
func (r *retention) heldFrom(visible, entries uint64, bytes int) uint64 {
	if visible-r.truncated <= entries && r.sizes.total <= bytes {
		return r.truncated
	}
	return max(r.truncated, visible-r.sizes.lastWithin(visible, entries, bytes))
}

// served calls visit with the last entry acknowledged by each replica to which this leader sends
// entries. A follower knows no other replica's progress, and keeps the minimum: if it becomes
// leader, it only sends more snapshots.
func (g *Group) served(visit func(match uint64)) {
	if g.raft.BasicStatus().RaftState != raft.StateLeader {
		return
	}
	g.raft.WithProgress(func(_ uint64, _ raft.ProgressType, pr tracker.Progress) {
		if pr.State != tracker.StateSnapshot {
			visit(pr.Match)
		}
	})
}

// logSizes holds the sizes, by index, of the log's entries appended since the replica was opened.
type logSizes struct {
	first uint64 // index of sizes[0]
	sizes []int
	total int
}

// append records one entry. It replaces an existing one and all later entries.
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

// truncate drops the entries up to an index.
func (l *logSizes) truncate(index uint64) {
	for len(l.sizes) > 0 && l.first <= index {
		l.total -= l.sizes[0]
		l.sizes, l.first = l.sizes[1:], l.first+1
	}
}

// lastWithin returns the number of entries up to an index, counted from the last, that are within
// the limits of entries and bytes. Entries of unknown size count as empty.
func (l *logSizes) lastWithin(index, entries uint64, bytes int) (n uint64) {
	for i := index; n < entries && i >= l.first && i-l.first < uint64(len(l.sizes)); i-- {
		if bytes -= l.sizes[i-l.first]; bytes < 0 {
			return n
		}
		n++
	}
	return min(entries, index)
}
