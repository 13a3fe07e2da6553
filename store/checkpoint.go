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

// Commits go to Badger without a sync. From time to time a checkpoint makes all that was
// committed durable and records in the log up to which entry each tablet's state is. After a
// crash a tablet applies the entries behind its checkpoint once more. What Badger has kept
// beyond it does no harm, because effects are blind puts and deletes (docs/adr/0028) — but
// for what entries are applied by, and what must not be lost at all. Both are in the log:
//
//   - figures: a tablet's state and Applied record as of its checkpoint;
//   - records: keys of Badger that are notes in the log as well, such as tombstones.
//
// Open puts both back (restore), so that whoever reads them finds what the log says.

// When the worker makes a checkpoint: so much was appended since the last, which bounds what
// a start has to apply again; or so much time has passed, and something was.
const (
	checkpointBytes    = 64 << 20
	checkpointInterval = 30 * time.Second
	// rewriteSegments is how many segments the log may have before those that hold next to
	// nothing are written anew.
	rewriteSegments = 16
)

// figures are what a tablet's entries are applied by, as of the last one whose commit has
// returned.
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

// checkpoints is what is known of all tablets for the next checkpoint.
type checkpoints struct {
	// held while one is made; taken before mu, the sequence's and the log's locks
	taking  sync.Mutex
	failed  error    // of one that failed for good; guarded by taking
	root    *os.File // of Badger's file system; nil: nothing needs a sync
	durable uint64   // with Options.Crashes: pinned, the sequence number up to which all is durable

	mu      sync.Mutex
	tablets map[uint64]figures
	changed bool      // since they were last copied
	written uint64    // bytes of the log at the last one, or at the last try
	at      time.Time // of that
}

// made takes note of a checkpoint, or of one that could not be made, with so much in the log.
func (c *checkpoints) made(written uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.written, c.at = written, time.Now()
}

// since is what was appended since the last one, and how long that is ago.
func (c *checkpoints) since(written uint64) (bytes uint64, age time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return written - min(c.written, written), time.Since(c.at)
}

// note takes in what batches say that are committed.
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

// copy returns the figures as they are now.
func (c *checkpoints) copy() map[uint64]figures {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changed = false
	return maps.Clone(c.tablets)
}

// stale reports whether there is something to record.
func (c *checkpoints) stale() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}

// Checkpoint makes everything durable that was committed before it is called, and records
// that in the log. After an error other than ErrDiskFull nothing is written any more.
func (s *Store) Checkpoint() error {
	s.checkpoints.taking.Lock()
	err := s.record(nil)
	s.checkpoints.taking.Unlock()
	if err != nil && !errors.Is(err, ErrDiskFull) {
		return s.state.writer.fail(err)
	}
	return err
}

// commitWithLog commits batches that change the log as well. Until the log knows of them, no
// other checkpoint may say that their figures are in force.
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

// record makes a checkpoint, and in the same frame of the log the changes that the batches
// ask for, which are committed. taking is held.
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
	if !barrier { // records stand for themselves
		return s.Append(frame)
	}
	if err := s.syncState(); err != nil {
		return err
	}
	for _, tablet := range slices.Sorted(maps.Keys(at)) {
		if f := all[tablet]; f.applied.Index > at[tablet] {
			frame.Checkpoint(tablet, f.applied.Index, f.encode())
		}
	}
	if err := s.Append(frame); err != nil {
		return err
	}
	s.checkpoints.made(s.log.Stats().Written)
	return nil
}

// add adds the change to a frame. at are the replicas' checkpoints before it, and then behind it.
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

// openRoot keeps a file of Badger's file system open: syncfs reports what went wrong with any
// write since the file that it is called for was opened, unless somebody else was told first.
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

// syncState makes all durable that was committed: whatever files Badger has it in. After an
// error it is unknown what is on the disk, and another sync would not tell.
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

// lookAtLog makes a checkpoint if one is due, and lets go of segments that hold next to
// nothing. The worker calls it.
func (s *Store) lookAtLog() {
	st := s.log.Stats()
	bytes, age := s.checkpoints.since(st.Written)
	if bytes < checkpointBytes && (age < checkpointInterval || bytes == 0 &&
		!s.checkpoints.stale()) {
		return
	}
	err := s.Checkpoint()
	for err == nil {
		if st = s.log.Stats(); st.Segments <= rewriteSegments || st.LiveBytes > st.Bytes/2 {
			break
		}
		_, err = s.log.Rewrite()
	}
	if err != nil {
		s.opts.Logger.Error("store: no checkpoint", "error", err)
	}
	s.checkpoints.made(s.log.Stats().Written)
}

// restore puts figures and records into Badger as the log has them, and takes away those of
// which it knows nothing. Open calls it before anything is read, also on a full disk: what is
// there already is not written again.
func (s *Store) restore() error {
	want := map[string][]byte{}
	for _, r := range s.log.Replicas() {
		f, err := decodeFigures([]byte(r.Figures))
		if err != nil {
			return fmt.Errorf("tablet %d: %w", r.Replica, err)
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

// restoreBytes is what goes in one batch of restore, about.
const restoreBytes = 1 << 20

// compare takes out of want what is there, and adds, without a value, what should not be
// there under the prefixes. What cannot be read, such as a long value of which not all
// has survived, differs.
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
