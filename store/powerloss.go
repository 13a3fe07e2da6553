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

// This file simulates crashes of a store in memory, for tests of what runs on one
// (internal/simtest). No node runs it. Options.Crashes keeps what it needs: versions of the
// state since the last checkpoint.

// Reopen returns the store that would be found if the process ended now. Without dice it
// was killed: all that was written is there, and what Open does is done. With dice the power
// has failed: the log is as it was last synced, and of what was committed to the state since
// the last checkpoint some has survived, as the dice have it (survivors).
//
// s goes on as if nothing had happened, so that what is left of a process ends in peace, and
// is closed by its owner. Any goroutine may call it.
func (s *Store) Reopen(dice *rand.Rand) (*Store, error) {
	if !s.opts.InMemory || !s.opts.Crashes {
		return nil, errors.New("store: only a store in memory with Options.Crashes can be opened as after a crash")
	}
	n := newStore(s.opts)
	left, err := s.leave(n, dice)
	if err != nil {
		return nil, fmt.Errorf("store: copy what a crash leaves: %w", err)
	}
	if err := n.openState(left); err != nil {
		return nil, err
	}
	return n, nil
}

// leave opens n's log with what is left of s's, and returns what is left of the state. No
// checkpoint is made meanwhile. The state goes first: what has an effect there, the log has.
func (s *Store) leave(n *Store, dice *rand.Rand) (*remains, error) {
	s.checkpoints.taking.Lock()
	defer s.checkpoints.taking.Unlock()
	left, err := s.remains(dice)
	if err != nil {
		return nil, err
	}
	n.log, err = s.log.Reopen(dice != nil)
	return left, err
}

// markDurable says that all that is visible now is durable: of a key that is changed later,
// this version stays readable. checkpoints.taking is held.
func (s *Store) markDurable() {
	if s.opts.Crashes {
		before := s.checkpoints.durable
		s.checkpoints.durable = s.state.seq.pin()
		s.state.seq.unpin(before)
	}
}

// beginCrashes fills the database with what a crash has left, if there was one, and keeps
// from then on what the next one may leave.
func (s *Store) beginCrashes(left *remains) error {
	d := s.state
	if left == nil {
		s.checkpoints.durable = d.seq.pin()
		return nil
	}
	if err := d.fill(left); err != nil {
		return fmt.Errorf("store: fill the state: %w", err)
	}
	d.writer.chunks = hasChunks(d.db, left.visible)
	d.seq.visible = left.durable
	s.checkpoints.durable = d.seq.pin()
	d.seq.assigned, d.seq.visible = left.visible, left.visible
	return nil
}

// snaps is the number of open Snaps.
func (s *Store) snaps() int {
	n := s.state.seq.pinned()
	if s.opts.Crashes {
		n-- // checkpoints.durable
	}
	return n
}

// remains is what a crash leaves of a state.
type remains struct {
	versions []version
	durable  uint64 // another crash takes nothing up to here
	visible  uint64
}

// version is one of a key.
type version struct {
	seq        uint64
	key, value []byte
	meta       byte
	deleted    bool
}

// remains copies the state as the dice have it; nil: as it is.
func (s *Store) remains(dice *rand.Rand) (*remains, error) {
	snap := s.Snap()
	defer snap.Close()
	left := &remains{durable: s.checkpoints.durable, visible: snap.seq}
	survives := survivors(dice, left.durable, left.visible)
	it, err := snap.iterator(badger.IteratorOptions{AllVersions: true})
	if err != nil {
		return nil, err
	}
	defer it.Close()
	var chosen []byte // the last key of which a version has survived: the newest comes first
	for it.Rewind(); it.Valid(); it.Next() {
		item := it.Item()
		if dice != nil && (bytes.Equal(item.Key(), chosen) || !survives(item.Version())) {
			continue
		}
		v := version{
			seq: item.Version(), key: item.KeyCopy(nil),
			meta: item.UserMeta(), deleted: item.IsDeletedOrExpired(),
		}
		if v.value, err = item.ValueCopy(nil); err != nil {
			return nil, err
		}
		chosen = v.key
		left.versions = append(left.versions, v)
	}
	if dice != nil {
		left.durable = left.visible
	}
	return left, nil
}

// survivors returns which versions of the state survive: all up to durable, and of those
// behind it the ones up to some number, or some Txns here and there, or of each key any.
// Badger promises the last no more than the others; replay makes the same of each.
func survivors(dice *rand.Rand, durable, visible uint64) func(version uint64) bool {
	if dice == nil || visible <= durable {
		return func(uint64) bool { return true }
	}
	share := dice.Float64()
	switch dice.IntN(4) {
	case 0: // as many as there were at some time
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

// fill puts what is left of a state into an empty database.
func (d *database) fill(left *remains) error {
	slices.SortStableFunc(left.versions, func(a, b version) int {
		return cmp.Compare(a.seq, b.seq)
	})
	b := d.db.NewManagedWriteBatch()
	defer b.Cancel()
	for _, v := range left.versions {
		var err error
		if v.deleted {
			err = b.DeleteAt(v.key, v.seq)
		} else {
			err = b.SetEntryAt(&badger.Entry{Key: v.key, Value: v.value, UserMeta: v.meta}, v.seq)
		}
		if err != nil {
			return err
		}
	}
	return b.Flush()
}
