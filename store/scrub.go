package store

import (
	"sync"
	"time"

	"github.com/dgraph-io/badger/v4"
)

// This file verifies tables that nobody reads. The scrubber has a goroutine of its own; Verify
// and VerifyRows run on their callers'.

const (
	// scrubInterval is the time after which a table is verified again.
	scrubInterval = 24 * time.Hour
	// scrubRate is how many bytes of tables are verified per second: 1.3 TiB within
	// scrubInterval, at the cost of about a hundredth of a core.
	scrubRate = 16 << 20
	// scrubPause is the least pause between two tables, scrubLook the pause when none is due.
	scrubPause = 100 * time.Millisecond
	scrubLook  = time.Minute
	// suspectAgain is the least time between two verifications of all tables that are caused
	// by reads of impossible data.
	suspectAgain = 10 * time.Minute
	// verifyAgain is the time after which VerifyRows verifies a table again.
	verifyAgain = time.Minute
)

// verified records when the database's tables were last verified.
type verified struct {
	mu sync.Mutex
	at map[uint64]time.Time // or first seen, if made since Open; nil before the first look
}

// turn returns the table to be verified next: the one that was verified longest ago, if that
// is scrubInterval ago. Tables that existed at Open come first.
func (v *verified) turn(tables []badger.TableInfo, now time.Time) (turn badger.TableInfo, ok bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	due, live := now.Add(-scrubInterval), map[uint64]time.Time{}
	for _, t := range tables {
		at, known := v.at[t.ID]
		if !known && v.at != nil {
			at = now
		}
		live[t.ID] = at
		if !at.After(due) {
			turn, ok, due = t, true, at
		}
	}
	v.at = live
	return turn, ok
}

// done records that the table was verified.
func (v *verified) done(id uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if _, known := v.at[id]; known { // else turn has not seen it yet, or it is gone
		v.at[id] = time.Now()
	}
}

// within reports whether the table was verified or made within the last d.
func (v *verified) within(id uint64, d time.Duration) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	at, known := v.at[id]
	return known && time.Since(at) < d
}

// scrub slowly verifies one table after the other until the store closes or is damaged.
// Otherwise damage to rows that nobody reads would go unnoticed until the other replicas are
// damaged too.
func (s *Store) scrub() {
	var suspected time.Time
	pause := time.NewTimer(scrubPause)
	defer pause.Stop()
	for s.Damaged() == nil {
		select {
		case <-s.stop:
			return
		case <-s.suspicion:
			if now := time.Now(); now.Sub(suspected) >= suspectAgain {
				suspected = now
				_ = s.Verify() // markDamaged logs it
			}
		case now := <-pause.C:
			pause.Reset(s.scrubOne(now))
		}
	}
}

// scrubOne verifies the table that is due and returns the pause before the next.
func (s *Store) scrubOne(now time.Time) time.Duration {
	t, ok := s.state.verified.turn(s.state.db.Tables(), now)
	if !ok {
		return scrubLook
	}
	_ = s.markDamaged(s.state.verifyLive(t.ID)) // which logs it
	return scrubPause + time.Duration(t.OnDiskSize)*time.Second/scrubRate
}

// suspect makes the scrubber verify all tables soon, because a read has met impossible data.
func (d *database) suspect() {
	select {
	case d.suspicion <- struct{}{}:
	default: // already requested
	}
}

// Verify compares the checksums of all tables now. It returns a *DamagedError if one is
// damaged, after which the store cannot be used any more.
func (s *Store) Verify() error { return s.verify(nil) }

// VerifyRows is like Verify for the tables from which the rows may have been read, except
// those that were verified within the last minute. A node that sends rows to another calls
// it before they are used there.
func (s *Store) VerifyRows(rows Rows) error {
	return s.verify(func(t badger.TableInfo) bool {
		return rows.mayBeIn(t) && !s.state.verified.within(t.ID, verifyAgain)
	})
}

func (s *Store) verify(pick func(badger.TableInfo) bool) error {
	if s.opts.InMemory {
		return nil
	}
	if err := s.Damaged(); err != nil {
		return err
	}
	if err := s.checkReplaced(); err != nil {
		return err
	}
	return s.markDamaged(s.state.verifyTables(pick))
}
