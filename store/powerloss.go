package store

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/dgraph-io/badger/v4"
)

// Simulated crashes of a store in memory, for tests of code that runs on a store
// (internal/simtest). No node uses it. It needs Options.Crashes, which keeps the versions since
// the last checkpoint.

// Reopen returns the store as it would be found if the process ended now. If dice is nil the
// process is killed: everything written has survived. Otherwise the power fails: the log is as of
// its last sync, and of the state committed since the last checkpoint a random part has survived
// (survivors).
//
// s remains usable, so that the rest of its process can shut down normally, and must be
// closed. Reopen is safe for concurrent use.
func (s *Store) Reopen(dice *rand.Rand) (*Store, error) {
	if !s.opts.InMemory || !s.opts.Crashes {
		return nil, errors.New("store: Reopen needs Options.InMemory and Options.Crashes")
	}
	n := newStore(s.opts)
	n.stamp.version = s.Version()
	// No checkpoint may run during the copy. The state is copied first, so that the log contains
	// the entries of all effects in the copy.
	s.checkpoints.taking.Lock()
	left, err := s.remains(dice)
	if err == nil {
		n.log, err = s.log.Reopen(dice != nil)
	}
	s.checkpoints.taking.Unlock()
	if err != nil {
		return nil, fmt.Errorf("store: copy the files as a crash would leave them: %w", err)
	}
	if err := n.openState(left); err != nil {
		return nil, err
	}
	return n, nil
}

// markDurable records that everything visible now is durable, and pins these versions.
// checkpoints.taking is held.
func (s *Store) markDurable() {
	if s.opts.Crashes {
		before := s.checkpoints.durable
		s.checkpoints.durable = s.state.seq.pin()
		s.state.seq.unpin(before)
	}
}

// beginCrashes fills the database with the remains of a crash, if there was one, and from then
// on keeps the versions that the next crash may leave.
func (s *Store) beginCrashes(left *remains) error {
	d := s.state
	if left == nil {
		left = &remains{durable: d.seq.visible, visible: d.seq.visible}
	}
	if err := left.write(d.db); err != nil {
		return fmt.Errorf("store: write the remains of a crash: %w", err)
	}
	d.writer.chunks = hasChunks(d.db, left.visible)
	d.seq.visible = left.durable
	s.checkpoints.durable = d.seq.pin()
	d.seq.assigned, d.seq.visible = left.visible, left.visible
	return nil
}

// snaps returns the number of open Snaps.
func (s *Store) snaps() int {
	n := s.state.seq.pinned()
	if s.opts.Crashes {
		n-- // checkpoints.durable
	}
	return n
}

// remains is the state that a crash leaves.
type remains struct {
	versions []keyVersion
	durable  uint64 // another crash loses nothing up to this sequence number
	visible  uint64
}

// keyVersion is one version of a key.
type keyVersion struct {
	seq     uint64
	entry   *badger.Entry
	deleted bool
}

// remains copies the part of the state that survives: all of it if dice is nil, except locks that
// are only in memory.
func (s *Store) remains(dice *rand.Rand) (*remains, error) {
	snap := s.Snap() // SnapWithLocks would write the kept locks first
	defer snap.Close()
	snap.lockless = nil
	left := &remains{durable: s.checkpoints.durable, visible: snap.seq}
	survives := survivors(dice, left.durable, left.visible)
	it, err := snap.iterator(badger.IteratorOptions{AllVersions: true})
	if err != nil {
		return nil, err
	}
	defer it.Close()
	var chosen []byte // the last key of which a version has survived; the newest comes first
	for it.Rewind(); it.Valid(); it.Next() {
		item := it.Item()
		if dice != nil && (bytes.Equal(item.Key(), chosen) || !survives(item.Version())) {
			continue
		}
		chosen = item.KeyCopy(nil)
		value, err := item.ValueCopy(nil)
		if err != nil {
			return nil, err
		}
		left.versions = append(left.versions, keyVersion{
			item.Version(), &badger.Entry{Key: chosen, Value: value, UserMeta: item.UserMeta()},
			item.IsDeletedOrExpired(),
		})
	}
	if dice != nil {
		left.durable = left.visible
	}
	return left, nil
}

// survivors returns a function that reports which versions survive: all if dice is nil, otherwise
// those up to durable, and of the later ones none, those up to a random number, those of random
// Txns, or random single ones. Badger may leave any of these, and replay has to lead to the same
// state.
func survivors(dice *rand.Rand, durable, visible uint64) func(version uint64) bool {
	if dice == nil || visible <= durable {
		return func(uint64) bool { return true }
	}
	share := dice.Float64()
	switch dice.IntN(4) {
	case 0: // all up to a random sequence number
		end := durable + dice.Uint64N(visible-durable+1)
		return func(version uint64) bool { return version <= end }
	case 1: // whole Txns
		kept := map[uint64]bool{}
		return func(version uint64) bool {
			keep, decided := kept[version]
			if !decided {
				keep = dice.Float64() < share
				kept[version] = keep
			}
			return keep || version <= durable
		}
	case 2: // single keys
		return func(version uint64) bool { return version <= durable || dice.Float64() < share }
	}
	return func(version uint64) bool { return version <= durable }
}

// write writes the versions into an empty database, in the order of their commits.
func (r *remains) write(db *badger.DB) error {
	slices.SortStableFunc(r.versions, func(a, b keyVersion) int { return cmp.Compare(a.seq, b.seq) })
	b := db.NewManagedWriteBatch()
	defer b.Cancel()
	for _, v := range r.versions {
		write := b.SetEntryAt
		if v.deleted {
			write = func(e *badger.Entry, seq uint64) error { return b.DeleteAt(e.Key, seq) }
		}
		if err := write(v.entry, v.seq); err != nil {
			return err
		}
	}
	return b.Flush()
}
