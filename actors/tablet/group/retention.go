package group

// This file has how much of the log is kept: it owns what has been dropped, how large the
// rest is, and which snapshots under way need it. Ready asks it for a truncation with each
// append.

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
	laggardEntries  = 16 << 10
	laggardBytes    = 32 << 20
	snapshotEntries = 64 << 10
	snapshotBytes   = 96 << 20
)

// retention is how much of the log is kept: what has been dropped, how large the rest is,
// and which snapshots need the entries behind them.
type retention struct {
	truncated uint64 // entries up to here are being dropped
	sizes     logSizes
	snapshots map[uint64]uint64 // under way: their index, by replica; nil until there is one
}

// holdLog keeps the log behind a snapshot for the replica until SnapshotEnded.
func (r *retention) holdLog(replica, index uint64) {
	if r.snapshots == nil {
		r.snapshots = map[uint64]uint64{}
	}
	r.snapshots[replica] = index
}

// truncateTo is the entry up to which the log is to be truncated with the next append:
// one whose effects are durable by a checkpoint. 0: there is nothing to do.
func (g *Group) truncateTo() (uint64, error) {
	if g.visible < g.truncated+keptEntries+truncateEvery && g.sizes.total < truncateBytes {
		return 0, nil
	}
	checkpoint, err := g.cfg.Storage.Checkpoint()
	if err != nil || checkpoint <= g.truncated { // much may be written until the next one
		return 0, err
	}
	kept := g.visible - g.sizes.lastWithin(g.visible, keptEntries, keptBytes)
	to := min(kept, g.unneededUpTo(), checkpoint)
	if to <= g.truncated {
		return 0, nil
	}
	g.truncated = to
	g.sizes.truncate(to)
	return to, nil
}

// unneededUpTo is the last entry that no other replica and no snapshot under way needs any
// more, as far as they may keep the log at all: whether a replica is dead or slow, it
// costs so much once, then a snapshot. Who does not lead knows of nobody, and keeps as
// little as it may: were it to lead, it would send more snapshots, nothing worse.
func (g *Group) unneededUpTo() uint64 {
	needed := g.visible
	if g.raft.BasicStatus().RaftState == raft.StateLeader {
		from := g.heldFrom(laggardEntries, laggardBytes)
		g.raft.WithProgress(func(_ uint64, _ raft.ProgressType, pr tracker.Progress) {
			// Who needs what is gone gets a snapshot anyway, and then what comes after that.
			if pr.State != tracker.StateSnapshot && pr.Match >= from {
				needed = min(needed, pr.Match)
			}
		})
	}
	if len(g.snapshots) > 0 {
		from := g.heldFrom(snapshotEntries, snapshotBytes)
		for _, index := range g.snapshots {
			if index >= from {
				needed = min(needed, index)
			}
		}
	}
	return needed
}

// heldFrom is the first index behind which there are at most so many entries, and bytes,
// in the log.
func (g *Group) heldFrom(entries uint64, bytes int) uint64 {
	if g.visible-g.truncated <= entries && g.sizes.total <= bytes {
		return g.truncated
	}
	return max(g.truncated, g.visible-g.sizes.lastWithin(g.visible, entries, bytes))
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
