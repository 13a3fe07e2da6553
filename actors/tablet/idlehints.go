package tablet

import (
	"sync"
	"sync/atomic"

	"github.com/percolator-go/percolator/actors/tablet/memory"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/notify"
	"github.com/percolator-go/percolator/internal/wire"
)

// IdleHints records which tablets of a node have only parked notifications, or nothing left of
// unfinished transactions, so that scanners and sweepers skip them: a message wakes an
// actor, and a read involves a quorum. Tablets publish at the end of their turns; scanners
// read on their own goroutines.
//
// Results are hints. They are as of the end of the tablet's last turn, and a leader that has
// not yet learned of its successor leaves its notice in place. The zero value is empty. An
// IdleHints is safe for concurrent use.
type IdleHints struct {
	changes atomic.Uint64 // version of what Clean returns, raised after each change
	settled atomic.Uint64 // version of what IsSettled returns, raised after each change

	mu      sync.RWMutex
	notices map[uint64]*notice // by tablet
}

// notice holds the hints published by one replica. Its zero value reports nothing as empty:
// everything not published as empty is assumed to exist.
type notice struct {
	is       atomic.Uint32
	observed atomic.Pointer[[]notify.Target] // the slice is immutable
}

// The bits of a notice.
const (
	// isClean: the replica leads, and none of its tablet's observed columns has a
	// notification that is not parked.
	isClean uint32 = 1 << iota
	// isSettled: the replica leads, and its tablet has neither a lock, reservations
	// aside, nor a weak intent.
	isSettled
)

// publishedHint is the input from which the tablet's notice was computed. Comparing it shows
// cheaply, in each turn, that nothing has changed.
type publishedHint struct {
	notice    *notice // nil: IdleHints is nil, or the replica has stopped
	changes   uint64  // version of the memory's counts
	leading   bool
	locked    bool
	catalogue *memory.Catalogue
}

// Version returns a number that changes with the result of CleanTablets, and with Touch. It is
// never 0.
func (b *IdleHints) Version() uint64 { return b.changes.Load() + 1 }

// SettledVersion returns a number that changes with the results of IsSettled. It is never
// 0.
func (b *IdleHints) SettledVersion() uint64 { return b.settled.Load() + 1 }

// Touch advances the version without a change.
func (b *IdleHints) Touch() { b.changes.Add(1) }

// CleanTablets returns up to limit tablets that are led here and have only parked notifications, if
// any, and the version of the result. The version is read first: a concurrent change has a later
// one, whether or not the result includes it.
func (b *IdleHints) CleanTablets(limit int) (version uint64, tablets []uint64) {
	version = b.Version()
	b.mu.RLock()
	defer b.mu.RUnlock()
	for id, n := range b.notices {
		if n.is.Load()&isClean != 0 && len(tablets) < limit {
			tablets = append(tablets, id)
		}
	}
	return version, tablets
}

// IsClean reports whether the tablet is led here and has only parked notifications, if any.
func (b *IdleHints) IsClean(tablet uint64) bool { return b.says(tablet, isClean) }

// IsSettled reports whether the tablet is led here and holds nothing of an unfinished
// transaction.
func (b *IdleHints) IsSettled(tablet uint64) bool { return b.says(tablet, isSettled) }

// Observed returns the tablet's observed columns, whatever node their observers run on, by
// the catalogue of the tablet's replica here. The caller must not modify the slice.
func (b *IdleHints) Observed(tablet uint64) []notify.Target {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if n := b.notices[tablet]; n != nil {
		if observed := n.observed.Load(); observed != nil {
			return *observed
		}
	}
	return nil
}

// says reports whether the bit is set in the tablet's notice.
func (b *IdleHints) says(tablet uint64, what uint32) bool {
	b.mu.RLock()
	defer b.mu.RUnlock()
	n := b.notices[tablet]
	return n != nil && n.is.Load()&what != 0
}

// attach gives a starting replica a new notice, which replaces that of an earlier one. A nil
// IdleHints returns nil.
func (b *IdleHints) attach(tablet uint64) *notice {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.notices == nil {
		b.notices = map[uint64]*notice{}
	}
	n := &notice{}
	b.notices[tablet] = n
	b.Touch()
	b.settled.Add(1)
	return n
}

// detach removes the notice of a stopped replica, unless another replica of the tablet has
// started since.
func (b *IdleHints) detach(tablet uint64, n *notice) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.notices[tablet] == n {
		delete(b.notices, tablet)
		b.Touch()
		b.settled.Add(1)
	}
}

// put replaces the bits of a notice. The versions advance after the change, so that a reader
// that sees an old version with a new notice only looks once more than needed.
func (b *IdleHints) put(n *notice, is uint32) {
	changed := n.is.Swap(is) ^ is
	if changed&isClean != 0 {
		b.Touch()
	}
	if changed&isSettled != 0 {
		b.settled.Add(1)
	}
}

// update refreshes the tablet's notice. It is called at the end of each turn.
func (p *publishedHint) update(b *IdleHints, m *memory.Memory, leading bool, d *pb.TabletDescriptor) {
	locked, changes := m.Locked(), m.Changes()
	if p.notice == nil || p.changes == changes && p.leading == leading && p.locked == locked &&
		p.catalogue == m.Catalogue {
		return
	}
	if p.catalogue != m.Catalogue {
		observed := observedTargets(m.Catalogue, d)
		p.notice.observed.Store(&observed)
	}
	p.changes, p.leading, p.locked, p.catalogue = changes, leading, locked, m.Catalogue
	var is uint32
	// A follower keeps no locks and no notifications in memory, so it cannot report anything
	// empty.
	if leading {
		notified, intended := m.Waiting()
		if !notified {
			is |= isClean
		}
		if !intended && !locked {
			is |= isSettled
		}
	}
	b.put(p.notice, is)
}

// observedTargets returns the columns in the tablet's range that have an observer that is not
// retired.
func observedTargets(catalogue *memory.Catalogue, d *pb.TabletDescriptor) []notify.Target {
	var out []notify.Target
	for c, how := range catalogue.Columns() {
		if _, here := wire.Clip(d, mvcc.Span{Table: c.Table}); here {
			out = append(out, notify.Target{
				Table: c.Table, Column: c.Column, Weak: how.How == mvcc.ObservedWeak,
			})
		}
	}
	return out
}
