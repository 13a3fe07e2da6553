package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"time"

	percolator "github.com/percolator-go/percolator"
)

// moment is what everything looked like at a timestamp.
type moment struct {
	at       percolator.Timestamp
	digest   [sha256.Size]byte
	since    time.Time
	snapshot *percolator.Snapshot // held open; nil: only remembered
	until    time.Time            // how long it is held
}

const (
	maxPast = 200 // moments that are remembered
	maxHeld = 2   // snapshots that are held at once
	// collectEvery is about how often the node raises the bound of history.
	collectEvery = 10 * time.Second
	// clockSlack is for what passes between two looks at a clock.
	clockSlack = 500 * time.Millisecond
)

func (s *soak) remember(m moment) {
	if s.past = append(s.past, m); len(s.past) > maxPast {
		s.past = s.past[1:]
	}
}

// hold opens a snapshot and keeps it open until well after its history would have been collected.
func (s *soak) hold(ctx context.Context) error {
	if len(s.held) >= maxHeld {
		return nil
	}
	snapshot, err := s.db.Snapshot(ctx)
	if err != nil {
		return err
	}
	c, err := read(ctx, snapshot)
	if err != nil {
		return errors.Join(err, snapshot.Close())
	}
	now := time.Now()
	s.held = append(s.held, moment{
		at: c.at, digest: c.digest, since: now, snapshot: snapshot, until: now.Add(s.o.history*3/2 + 2*collectEvery),
	})
	s.step("hold a snapshot at %d", c.at)
	return nil
}

// timeTravel reads the snapshots that have been held for long enough, and the past.
func (s *soak) timeTravel(ctx context.Context) error {
	kept := s.held[:0]
	for _, h := range s.held {
		if time.Now().Before(h.until) {
			kept = append(kept, h)
			continue
		}
		c, err := read(ctx, h.snapshot)
		if err = errors.Join(err, h.snapshot.Close()); err != nil {
			return violation("a snapshot held open for %v: %v", time.Since(h.since).Round(time.Second), err)
		}
		if c.digest != h.digest {
			return violation("the snapshot at %d has changed after %v", h.at, time.Since(h.since).Round(time.Second))
		}
		s.totals.heldReads++
		s.step("read the snapshot at %d again after %v", h.at, time.Since(h.since).Round(time.Second))
	}
	s.held = kept
	if err := s.within(ctx); err != nil {
		return err
	}
	return s.below(ctx)
}

// within reads one of the moments that are still inside the history.
func (s *soak) within(ctx context.Context) error {
	var inside []moment
	for _, m := range s.past {
		if time.Since(m.at.Time()) < s.o.history*3/4-clockSlack {
			inside = append(inside, m)
		}
	}
	if len(inside) == 0 {
		return nil
	}
	m := inside[s.rng.IntN(len(inside))]
	c, err := s.readAt(ctx, m.at)
	if errors.Is(err, percolator.ErrSnapshotTooOld) && time.Since(m.at.Time()) >= s.o.history-clockSlack {
		return nil // a slow machine: it was inside when it was chosen
	}
	if err != nil {
		return violation("read the past at %d, %v ago: %v", m.at, time.Since(m.at.Time()).Round(time.Millisecond), err)
	}
	if c.digest != m.digest {
		return violation("the past at %d, %v ago, has changed", m.at, time.Since(m.at.Time()).Round(time.Millisecond))
	}
	s.totals.pastReads++
	return nil
}

// below reads one of the moments that are below every tablet's bound, which must be refused.
func (s *soak) below(ctx context.Context) error {
	status, err := s.status(ctx)
	if err != nil {
		return err
	}
	least, _ := bounds(status)
	var old []moment
	for len(s.past) > 0 && s.past[0].at < least {
		old, s.past = append(old, s.past[0]), s.past[1:]
	}
	if len(old) == 0 {
		return nil
	}
	m := old[s.rng.IntN(len(old))]
	if _, err := s.readAt(ctx, m.at); !errors.Is(err, percolator.ErrSnapshotTooOld) {
		return violation("read at %d, below the bound %d: %v instead of ErrSnapshotTooOld", m.at, least, err)
	}
	s.totals.tooOld++
	return nil
}

func (s *soak) readAt(ctx context.Context, at percolator.Timestamp) (*contents, error) {
	snapshot, err := s.db.SnapshotAt(ctx, at)
	if err != nil {
		return nil, err
	}
	c, err := read(ctx, snapshot)
	return c, errors.Join(err, snapshot.Close())
}

// rest writes nothing until everything older than the history is collected, which must happen: what is sampled has no
// old version then, and what was deleted no key at all. Snapshots that are held are given back first.
func (s *soak) rest(ctx context.Context) error {
	for _, h := range s.held {
		if err := h.snapshot.Close(); err != nil {
			return err
		}
	}
	s.held = nil
	rows := append(s.model.pick(s.rng, 50), s.gone...)
	before, err := s.oldVersions(ctx, rows)
	if err != nil {
		return err
	}
	if status, err := s.status(ctx); err != nil || before == 0 {
		return err
	} else if _, greatest := bounds(status); greatest == 0 {
		s.skipped = "no history is collected"
		return nil
	}
	began, left := time.Now(), 0
	err = until(ctx, s.o.history+12*collectEvery, func() (bool, error) {
		left, err = s.oldVersions(ctx, rows)
		return left == 0, err
	})
	if errors.Is(err, errNotInTime) {
		return violation("%d old versions and keys of %d rows before a rest of %v, %d after it", before, len(rows),
			time.Since(began).Round(time.Second), left)
	}
	s.gone = nil
	s.totals.rests++
	s.step("rest: %d old versions and keys of %d rows, gone after %v", before, len(rows), time.Since(began).Round(time.Second))
	return err
}

// oldVersions counts the older versions of documents, and every key of those that were deleted.
func (s *soak) oldVersions(ctx context.Context, rows []string) (int, error) {
	n := 0
	for _, row := range rows {
		_, exists := s.model.may[row]
		for _, at := range []struct{ table, row string }{{docs, row}, {mirror, mirrorRow(row)}} {
			old, all, err := versions(ctx, s.db, at.table, at.row)
			if err != nil {
				return 0, err
			}
			if n += old; !exists {
				n += all - old
			}
		}
	}
	return n, nil
}
