package soak

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/handle"
)

// moment is the contents of all tables at a timestamp.
type moment struct {
	at       percolator.Timestamp
	digest   [sha256.Size]byte
	since    time.Time
	snapshot *percolator.Snapshot // held open; nil: only remembered
	until    time.Time            // when it is closed
}

const (
	maxPast = 200 // moments that are remembered
	maxHeld = 2   // snapshots that are held at once
	// collectEvery is the longest time between two raises of the node's bound of history.
	collectEvery = 10 * time.Second
	// clockSlack allows for the time between two reads of a clock.
	clockSlack = 500 * time.Millisecond
)

func (s *soak) remember(m moment) {
	if s.past = append(s.past, m); len(s.past) > maxPast {
		s.past = s.past[1:]
	}
}

// hold opens a snapshot and keeps it open until well after its history would have been collected.
func (s *soak) hold(ctx context.Context) error {
	if len(s.held) >= maxHeld || s.restDue() {
		return nil
	}
	snapshot, err := s.DB.Snapshot(ctx)
	if err != nil {
		return err
	}
	c, err := read(ctx, snapshot)
	if err != nil {
		return errors.Join(err, snapshot.Close())
	}
	now := time.Now()
	s.held = append(s.held, moment{
		at: c.at, digest: c.digest, since: now, snapshot: snapshot,
		until: now.Add(s.o.History*3/2 + 2*collectEvery),
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
			return violation("a snapshot held open for %v: %v",
				time.Since(h.since).Round(time.Second), err)
		}
		if c.digest != h.digest {
			return violation("the snapshot at %d has changed after %v", h.at,
				time.Since(h.since).Round(time.Second))
		}
		s.did[heldReads]++
		s.step("read the snapshot at %d again after %v", h.at,
			time.Since(h.since).Round(time.Second))
	}
	s.held = kept
	if err := s.within(ctx); err != nil {
		return err
	}
	return s.below(ctx)
}

// ago returns the age of a timestamp by the oracle's clock, which defines history and which a
// restart may have moved ahead of ours.
func (s *soak) ago(ctx context.Context, at percolator.Timestamp) (time.Duration, error) {
	now, err := handle.Client(s.DB).Timestamp(ctx)
	return time.Duration(now.Millis()-at.Time().UnixMilli()) * time.Millisecond, err
}

// within reads one of the moments that are still inside the history.
func (s *soak) within(ctx context.Context) error {
	var inside []moment
	for _, m := range s.past {
		age, err := s.ago(ctx, m.at)
		if err != nil {
			return err
		}
		if age < s.o.History*3/4-clockSlack {
			inside = append(inside, m)
		}
	}
	if len(inside) == 0 {
		return nil
	}
	m := inside[s.Rand.IntN(len(inside))]
	c, err := s.readAt(ctx, m.at)
	age, failed := s.ago(ctx, m.at)
	switch {
	case failed != nil:
		return failed
	case errors.Is(err, percolator.ErrSnapshotTooOld) && age >= s.o.History-clockSlack:
		return nil // a slow machine: it was inside when it was chosen
	case err != nil:
		return violation("read the past at %d, %v ago: %v", m.at, age, err)
	case c.digest != m.digest:
		return violation("the past at %d, %v ago, has changed", m.at, age)
	}
	s.did[pastReads]++
	return nil
}

// below reads one of the moments that are below every tablet's bound, which must be refused.
func (s *soak) below(ctx context.Context) error {
	status, err := s.status(ctx)
	if err != nil {
		return err
	}
	least := leastBound(status)
	var old []moment
	for len(s.past) > 0 && s.past[0].at < least {
		old, s.past = append(old, s.past[0]), s.past[1:]
	}
	if len(old) == 0 {
		return nil
	}
	m := old[s.Rand.IntN(len(old))]
	if _, err := s.readAt(ctx, m.at); !errors.Is(err, percolator.ErrSnapshotTooOld) {
		return violation("read at %d, below the bound %d: %v instead of ErrSnapshotTooOld", m.at,
			least, err)
	}
	s.did[tooOld]++
	return nil
}

func (s *soak) readAt(ctx context.Context, at percolator.Timestamp) (*contents, error) {
	snapshot, err := s.DB.SnapshotAt(ctx, at)
	if err != nil {
		return nil, err
	}
	c, err := read(ctx, snapshot)
	return c, errors.Join(err, snapshot.Close())
}

// straggle is the time after the end of its history within which an outdated entry must be
// collected: some rounds of the collector, and the surveys that find entries that exceeded the
// leader's record and are too few for an immediate search.
const straggle = 2 * time.Minute

// rest closes the held snapshots and writes nothing until the outdated entries of some documents,
// among them deleted ones, are collected: deleted rows leave no key.
func (s *soak) rest(ctx context.Context) error {
	if err := s.end(); err != nil {
		return err
	}
	rows := append(s.model.pick(s.Rand, 50), s.gone...)
	s.gone = s.gone[:0]
	before, err := s.outdated(ctx, rows)
	if err != nil {
		return err
	}
	began, left := time.Now(), before
	err = until(ctx, s.o.History+straggle, func() (bool, error) {
		left, err = s.outdated(ctx, rows)
		return len(left) == 0, err
	})
	text := fmt.Sprintf("%d outdated entries of %d rows, %d after %v", len(before), len(rows),
		len(left), time.Since(began).Round(time.Second))
	s.step("rest: %s", text)
	if errors.Is(err, errNotInTime) {
		return violation("%s:\n%s", text, few(left))
	}
	if err == nil {
		s.did[rests]++
	}
	return err
}

// outdated lists what is outdated of documents and their mirrors.
func (s *soak) outdated(ctx context.Context, rows []string) (all []string, err error) {
	for _, doc := range rows {
		_, exists := s.model.may[doc]
		for _, at := range []struct{ table, row string }{{docs, doc}, {mirror, mirrorRow(doc)}} {
			found, err := outdated(ctx, s.DB, at.table, at.row, exists)
			if err != nil {
				return nil, err
			}
			all = append(all, found...)
		}
	}
	return all, nil
}
