package store

import (
	"sync"
	"time"

	"github.com/dgraph-io/badger/v4"
)

const (
	// scrubInterval is after what time a table is verified again.
	scrubInterval = 24 * time.Hour
	// scrubRate is how many bytes of tables are verified in a second: of one core about a
	// hundredth, and 1.3 TiB in scrubInterval.
	scrubRate = 16 << 20
	// scrubPause is the least time between two tables, and scrubLook the most between two looks.
	scrubPause = 100 * time.Millisecond
	scrubLook  = time.Minute
	// suspectAgain is the least time between two verifications of everything because a read has met
	// what cannot be.
	suspectAgain = 10 * time.Minute
	// verifyAgain is after what time a table is verified again because rows of it were sent.
	verifyAgain = time.Minute
)

// verified is when a database's tables were verified last.
type verified struct {
	mu sync.Mutex
	// of a table made since Open, when it was first seen here; nil: no table was seen yet
	at map[uint64]time.Time
}

// turn returns the table whose turn it is: it was verified longest ago, or before due. Those that
// were there at Open come first.
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

// within reports whether the table was verified, or made, no longer ago than d.
func (v *verified) within(id uint64, d time.Duration) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	at, known := v.at[id]
	return known && time.Since(at) < d
}

// scrub verifies tables one after the other, slowly, until the store closes or is damaged: what
// nobody reads would be noticed only when the other replicas are damaged too.
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
				_ = s.Verify() // condemn has said it
			}
		case now := <-pause.C:
			pause.Reset(s.scrubOne(now))
		}
	}
}

// scrubOne verifies the table whose turn it is, and returns after what time the next one may be.
func (s *Store) scrubOne(now time.Time) time.Duration {
	t, ok := s.state.verified.turn(s.state.db.Tables(), now)
	if !ok {
		return scrubLook
	}
	_ = s.condemn(s.state.verifyLive(t.ID)) // which says it
	return scrubPause + time.Duration(t.OnDiskSize)*time.Second/scrubRate
}

// suspect has everything verified soon: a read has met what cannot be.
func (d *database) suspect() {
	select {
	case d.suspicion <- struct{}{}:
	default: // it is under way
	}
}

// Verify compares the checksums of all tables now. It returns a *DamagedError if one is damaged,
// after which the store can be used no more.
func (s *Store) Verify() error { return s.verify(nil) }

// VerifyRows is Verify for what the rows may have been read from, but for tables that were verified
// within the last minute. Who has sent rows elsewhere calls it before they are used there.
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
	return s.condemn(s.state.verifyTables(pick))
}
