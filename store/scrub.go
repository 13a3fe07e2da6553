package store

import (
	"sync"
	"time"

	"github.com/dgraph-io/badger/v4"
)

// Verification of tables independent of reads. The scrubber has its own goroutine; Verify and
// VerifyRows run on their callers'.

const (
	// scrubInterval is the interval at which each table is verified.
	scrubInterval = 24 * time.Hour
	// scrubRate is the number of bytes of tables verified per second: 1.3 TiB within scrubInterval,
	// at the cost of about 1 % of a core.
	scrubRate = 16 << 20
	// scrubPause is the minimum pause between two tables, scrubLook the pause when none is due.
	scrubPause = 100 * time.Millisecond
	scrubLook  = time.Minute
	// suspectAgain is the minimum time between two verifications of all tables that were triggered
	// by reads of impossible data.
	suspectAgain = 10 * time.Minute
	// verifyAgain is the time after which VerifyRows verifies a table again.
	verifyAgain = time.Minute
)

// verified records when the database's tables were last verified.
type verified struct {
	mu sync.Mutex
	// at contains, by table id, when the table was last verified, or first seen if it was created
	// since Open. It is nil before the first check.
	at map[uint64]time.Time
}

// turn returns the next table to verify: the one verified longest ago, if that is at least
// scrubInterval ago. Tables that existed at Open come first.
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
	if _, known := v.at[id]; known { // otherwise the table is new or gone
		v.at[id] = time.Now()
	}
}

// within reports whether the table was verified or created within the last d.
func (v *verified) within(id uint64, d time.Duration) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	at, known := v.at[id]
	return known && time.Since(at) < d
}

// scrub slowly verifies one table after the other until the store closes or is damaged. Otherwise
// damage to rows that are never read would go unnoticed until the other replicas are damaged too.
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
	_ = s.markDamaged(s.state.verifyLive(t.ID)) // logs the damage
	return scrubPause + time.Duration(t.OnDiskSize)*time.Second/scrubRate
}

// suspect makes the scrubber verify all tables, unless it did so within suspectAgain, because a
// read found impossible data.
func (d *database) suspect() {
	select {
	case d.suspicion <- struct{}{}:
	default: // already requested
	}
}

// Verify compares the checksums of all tables now. It returns a *DamagedError if one is
// damaged; the store has then failed permanently.
func (s *Store) Verify() error { return s.verify(nil) }

// VerifyRows is like Verify for the tables from which the rows may have been read, except those
// verified or created within the last minute. A node that sends rows to another calls it before
// the receiver uses them.
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
