package store

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/percolator-go/percolator/store/raftlog"
)

// Commits go to Badger without a sync. Periodically a checkpoint makes everything committed
// durable, and records in the log the index up to which each tablet's state is durable. After a
// crash a tablet applies the entries after its checkpoint again. Later data that Badger has
// retained is harmless, because effects are blind puts and deletes (docs/adr/0028). There are two
// exceptions, both of which are kept in the log:
//
//   - figures: a tablet's state and Applied record as of its checkpoint, which decide how
//     entries are applied;
//   - records: keys of Badger that must not be lost, such as tombstones, and are also notes
//     in the log.
//
// Open restores both (restore), so that readers see what the log contains. Checkpoints are made by
// watch, by Close, and by commits with a barrier (Batch.Barrier; tombstones, markers, and the begin
// or end of a replica have one), one at a time.

// watch makes a checkpoint when checkpointBytes were appended since the last one, which
// bounds the entries applied again at startup, or when checkpointInterval has passed and anything
// has changed.
const (
	checkpointBytes    = 64 << 20
	checkpointInterval = 30 * time.Second
)

// figures are the parts of a tablet's state that decide how its entries are applied, as of
// the last entry whose commit has returned.
type figures struct {
	state   []byte
	applied Applied
}

func (f *figures) encode() []byte {
	return append(f.applied.append(make([]byte, 0, appliedLen+len(f.state))), f.state...)
}

func decodeFigures(b []byte) (f figures, err error) {
	if len(b) < appliedLen {
		return f, fmt.Errorf("%w: figures of %d bytes", ErrBadValue, len(b))
	}
	f.applied, err = decodeApplied(b[:appliedLen])
	f.state = b[appliedLen:]
	return f, err
}

// apply changes the figures of one tablet in a map.
func (c *tabletChange) apply(to map[uint64]figures) {
	f := to[c.tablet]
	switch c.kind {
	case newState:
		f.state = c.state
	case newApplied:
		f.applied = c.applied
	case tabletGone:
		delete(to, c.tablet)
		return
	}
	to[c.tablet] = f
}

// checkpoints holds the figures of all tablets for the next checkpoint, and the state of the last
// one.
type checkpoints struct {
	// taking is held during a checkpoint. It is acquired before mu and before the locks of the
	// sequence and the log.
	taking sync.Mutex
	failed error    // a checkpoint's permanent error; guarded by taking
	root   *os.File // the store's directory, for syncfs; nil in memory
	// durable is the pinned sequence number up to which everything is durable, with
	// Options.Crashes.
	durable uint64

	mu      sync.Mutex
	tablets map[uint64]figures
	changed bool      // tablets has changed since it was last copied
	written uint64    // bytes written to the log from Open to the last checkpoint or attempt
	at      time.Time // time of the last checkpoint or attempt
}

// made records that a checkpoint was made or attempted when written bytes had been written to the
// log.
func (c *checkpoints) made(written uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.written, c.at = written, time.Now()
}

// since returns the bytes appended since the last checkpoint, or a later failed attempt at one, and
// the time since then.
func (c *checkpoints) since(written uint64) (bytes uint64, age time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return written - min(c.written, written), time.Since(c.at)
}

// note applies the changes of committed batches to the figures.
func (c *checkpoints) note(batches []*Batch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, b := range batches {
		for i := range b.tablets {
			b.tablets[i].apply(c.tablets)
			c.changed = true
		}
	}
}

// copy returns a copy of the current figures for a checkpoint; stale reports whether they have
// changed since.
func (c *checkpoints) copy() map[uint64]figures {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changed = false
	return maps.Clone(c.tablets)
}

// stale reports whether the figures have changed since they were last copied for a checkpoint.
func (c *checkpoints) stale() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}

// Checkpoint makes everything committed before the call durable, and records that in the log.
// After an error other than ErrDiskFull every Commit fails.
func (s *Store) Checkpoint() error {
	s.checkpoints.taking.Lock()
	err := s.record(nil)
	s.checkpoints.taking.Unlock()
	if err != nil && !errors.Is(err, ErrDiskFull) {
		return s.state.writer.fail(err)
	}
	return err
}

// commitWithLog commits batches of which at least one changes the log or has a barrier. It
// excludes checkpoints, none of which may contain the new figures before the log has the changes.
func (s *Store) commitWithLog(batches []*Batch, write func([]*Batch) error) error {
	s.checkpoints.taking.Lock()
	defer s.checkpoints.taking.Unlock()
	if err := write(batches); err != nil {
		return err
	}
	if err := s.record(batches); err != nil {
		return err
	}
	s.checkpoints.note(batches)
	return nil
}

// record makes a checkpoint, unless there are batches and none has a barrier. The same frame of
// the log contains the changes of the committed batches. taking is held.
func (s *Store) record(batches []*Batch) error {
	c := &s.checkpoints
	if c.failed != nil {
		return c.failed
	}
	err := s.recordOnce(batches)
	if err != nil && !errors.Is(err, ErrDiskFull) {
		c.failed = err
	}
	return err
}

func (s *Store) recordOnce(batches []*Batch) error {
	all, frame, at := s.checkpoints.copy(), &raftlog.Batch{}, map[uint64]uint64{}
	for _, r := range s.log.Replicas() {
		at[r.Replica] = r.Checkpoint
	}
	barrier := len(batches) == 0
	for _, b := range batches {
		barrier = barrier || b.barrier
		for i := range b.tablets {
			b.tablets[i].apply(all)
		}
		for i := range b.log {
			b.log[i].add(frame, at, all)
		}
	}
	if !barrier { // plain records need no checkpoint
		return s.Append(frame)
	}
	// Flush after the figures were copied: then the locks of all commits in the figures are in the
	// Writer or in Badger.
	began := time.Now()
	if err := s.state.writer.flush(); err != nil {
		return err
	}
	flushed := time.Now()
	if err := s.syncState(); err != nil {
		return err
	}
	synced := time.Now()
	for _, tablet := range slices.Sorted(maps.Keys(at)) {
		if f := all[tablet]; f.applied.Index > at[tablet] {
			frame.Checkpoint(tablet, f.applied.Index, f.encode())
		}
	}
	if err := s.Append(frame); err != nil {
		return err
	}
	s.checkpoints.made(s.log.Stats().Written)
	s.opts.Logger.Debug("store: checkpoint made", "batches", len(batches), "locks", flushed.Sub(began),
		"sync", synced.Sub(flushed), "log", time.Since(synced))
	return nil
}

// add adds the change to a frame, and updates at, the index of each replica's checkpoint.
func (c *logChange) add(frame *raftlog.Batch, at map[uint64]uint64, all map[uint64]figures) {
	switch c.kind {
	case logBegin:
		f := all[c.tablet]
		frame.Begin(c.tablet, c.at, f.encode())
		at[c.tablet] = c.at.Index
	case logDestroy:
		if _, ok := at[c.tablet]; ok {
			frame.Destroy(c.tablet)
			delete(at, c.tablet)
		}
	case logNote:
		frame.Note(c.key, c.note)
	}
}

// openRoot opens dir, which is in Badger's file system, and keeps it open: syncfs on it reports the
// errors of all writes since it was opened.
func (c *checkpoints) openRoot(dir string) (err error) {
	if c.root, err = os.Open(dir); err != nil {
		return fmt.Errorf("store: open directory: %w", err)
	}
	return nil
}

func (c *checkpoints) closeRoot() error {
	if c.root == nil {
		return nil
	}
	return c.root.Close()
}

// syncState makes everything committed durable, in whichever files of Badger it is. After an
// error the contents of the disk are unknown, and another sync would not report it.
func (s *Store) syncState() error {
	if s.opts.beforeSync != nil {
		if err := s.opts.beforeSync(); err != nil {
			return fmt.Errorf("sync the state: %w", err)
		}
	}
	if s.opts.NoSync {
		return nil
	}
	if s.checkpoints.root == nil {
		s.markDurable()
		return nil
	}
	if err := unix.Syncfs(int(s.checkpoints.root.Fd())); err != nil {
		return fmt.Errorf("sync the state: %w", err)
	}
	return nil
}

// maintainLog makes a checkpoint if one is due, and moves the live entries of the log's oldest
// segments while that is worth it. watch calls it.
func (s *Store) maintainLog() {
	bytes, age := s.checkpoints.since(s.log.Stats().Written)
	if bytes >= checkpointBytes || age >= checkpointInterval && (bytes > 0 || s.checkpoints.stale()) {
		err := s.Checkpoint()
		if err != nil {
			s.opts.Logger.Error("store: checkpoint failed", "error", err)
		}
		s.checkpoints.made(s.log.Stats().Written)
	}
	for s.log.WorthRewriting() {
		_, err := s.log.Rewrite()
		switch {
		case err == nil:
			continue
		case errors.Is(err, raftlog.ErrDiskFull) || errors.Is(err, raftlog.ErrFailed) || errors.Is(err, raftlog.ErrClosed):
			return // not logged: an Append that needs a new segment returns the error to its caller
		case err.Error() != s.unmoved:
			s.unmoved = err.Error()
			s.opts.Logger.Error("store: the log's oldest segment can't be freed, so the log grows: an entry of it "+
				"can't be moved", "error", err)
		}
		return
	}
}

// restore makes Badger's figures and records equal to the log's, and deletes those that the log
// does not have. Open calls it, even on a full disk, so it writes only what differs.
func (s *Store) restore() error {
	want := map[string][]byte{}
	for _, r := range s.log.Replicas() {
		f, err := decodeFigures([]byte(r.Figures))
		if err != nil {
			return fmt.Errorf("decode the figures of tablet %d: %w", r.Replica, err)
		}
		s.checkpoints.tablets[r.Replica] = f
		if len(f.state) > 0 {
			want[string(appendOwnKey(nil, tabletPrefix, r.Replica))] = append([]byte{plainTag}, f.state...)
		}
		if len(f.state) > 0 || f.applied != (Applied{}) {
			want[string(appendOwnKey(nil, appliedPrefix, r.Replica))] = f.applied.append(nil)
		}
	}
	prefixes := []byte{tombstonePrefix, installingPrefix, recordPrefix, tabletPrefix, appliedPrefix}
	maps.Copy(want, s.log.Notes())
	if err := s.compare(want, prefixes); err != nil {
		return err
	}
	b := &Batch{}
	for _, key := range slices.Sorted(maps.Keys(want)) {
		if value := want[key]; value == nil {
			b.Delete([]byte(key))
		} else {
			b.Put([]byte(key), value)
		}
		if b.Size() > restoreBytes {
			if err := s.state.writer.write([]*Batch{b}); err != nil {
				return err
			}
			b = &Batch{}
		}
	}
	return s.state.writer.write([]*Batch{b})
}

// restoreBytes is the approximate size of restore's batches.
const restoreBytes = 1 << 20

// compare removes from want the entries that Badger has already, and adds a nil value for each key
// under the prefixes that should not exist. An unreadable entry, such as a partial long value,
// counts as different.
func (s *Store) compare(want map[string][]byte, prefixes []byte) (fault error) {
	snap := s.Snap()
	defer snap.Close()
	for _, prefix := range prefixes {
		snap.walk(walkOptions{prefix: []byte{prefix}, keysOnly: true},
			func(key, _ []byte, err error) bool {
				if fault = err; err != nil {
					return false
				}
				value, known := want[string(key)]
				if !known {
					want[string(key)] = nil
					return true
				}
				if have, ok, err := snap.Get(key); err == nil && ok && bytes.Equal(have, value) {
					delete(want, string(key))
				}
				return true
			})
		if fault != nil {
			return fault
		}
	}
	return nil
}
