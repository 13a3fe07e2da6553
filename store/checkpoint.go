package store

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/percolator-go/percolator/internal/broken"
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

// checkpoints is what is known of all tablets for the next checkpoint.
type checkpoints struct {
	taking  sync.Mutex // held while one is made; no lock but the log's and the sequence's is taken in it
	durable uint64     // with Options.Crashes: pinned, the sequence number up to which all is durable

	mu      sync.Mutex // taken last
	tablets map[uint64]figures

	written uint64    // bytes of the log at the last one; the worker's, as the next
	at      time.Time // of the last one
}

// note takes in what batches say whose commit has returned.
func (c *checkpoints) note(batches []*Batch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, b := range batches {
		for _, s := range b.states {
			f := c.tablets[s.tablet]
			f.state = s.state
			c.tablets[s.tablet] = f
		}
		for _, a := range b.applied {
			f := c.tablets[a.tablet]
			f.applied = a.applied
			c.tablets[a.tablet] = f
		}
	}
}

// copy returns the figures as they are now.
func (c *checkpoints) copy() map[uint64]figures {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.tablets)
}

func (c *checkpoints) forget(tablet uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.tablets, tablet)
}

// Checkpoint makes everything durable that was committed before it is called, and records
// that in the log.
func (s *Store) Checkpoint() error { return s.checkpoint(nil) }

// checkpoint makes one, and in the same frame of the log all that batches ask for, which
// are committed.
func (s *Store) checkpoint(batches []*Batch) error {
	s.checkpoints.taking.Lock()
	defer s.checkpoints.taking.Unlock()
	if !needsSync(batches) {
		return s.Append(s.changes(batches, nil))
	}
	all := s.checkpoints.copy()
	if err := s.syncState(); err != nil {
		return err
	}
	frame := s.changes(batches, all)
	begun := map[uint64]bool{}
	for _, b := range batches {
		for _, c := range b.log {
			begun[c.tablet] = begun[c.tablet] || c.kind != logNote
		}
	}
	for _, r := range s.log.Replicas() {
		f, ok := all[r.Replica]
		if ok && f.applied.Index > r.Checkpoint && !begun[r.Replica] {
			frame.Checkpoint(r.Replica, f.applied.Index, f.encode())
		}
	}
	return s.Append(frame)
}

// needsSync reports whether what the batches say in the log rests on Badger: anything but
// records that stand for themselves.
func needsSync(batches []*Batch) bool {
	for _, b := range batches {
		if b.barrier {
			return true
		}
	}
	return len(batches) == 0
}

// changes is what the batches ask the log for.
func (s *Store) changes(batches []*Batch, all map[uint64]figures) *raftlog.Batch {
	frame := &raftlog.Batch{}
	for _, b := range batches {
		for _, c := range b.log {
			switch c.kind {
			case logBegin:
				f := all[c.tablet]
				frame.Begin(c.tablet, c.at, f.encode())
			case logDestroy:
				s.checkpoints.forget(c.tablet)
				if _, err := s.OpenLog(c.tablet); err == nil {
					frame.Destroy(c.tablet)
				}
			case logNote:
				frame.Note(c.key, c.note)
			}
		}
	}
	return frame
}

// syncState makes all durable that was committed: whatever files Badger has it in.
func (s *Store) syncState() error {
	if s.opts.NoSync || broken.CheckpointUnsynced {
		return nil
	}
	if s.opts.InMemory {
		s.markDurable()
		return nil
	}
	f, err := os.Open(s.state.dir)
	if err != nil {
		return fmt.Errorf("%w: sync the state: %w", ErrFailed, err)
	}
	defer f.Close()
	if err := unix.Syncfs(int(f.Fd())); err != nil {
		return fmt.Errorf("%w: sync the state: %w", ErrFailed, err)
	}
	return nil
}

// lookAtLog makes a checkpoint if one is due, and lets go of segments that hold next to
// nothing. The worker calls it.
func (s *Store) lookAtLog() {
	c, st := &s.checkpoints, s.log.Stats()
	due := st.Written-c.written >= checkpointBytes || time.Since(c.at) >= checkpointInterval
	if st.Written == c.written || !due {
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
	c.written, c.at = s.log.Stats().Written, time.Now()
}

// restore puts figures and records into Badger as the log has them, and takes away those of
// which it knows nothing. Before anything is read.
func (s *Store) restore() error {
	want := map[string][]byte{}
	for _, r := range s.log.Replicas() {
		f, err := decodeFigures([]byte(r.Figures))
		if err != nil {
			return fmt.Errorf("tablet %d: %w", r.Replica, err)
		}
		s.checkpoints.tablets[r.Replica] = f
		var b Batch
		b.PutTabletState(r.Replica, f.state)
		b.PutApplied(r.Replica, f.applied)
		for _, o := range b.ops {
			want[string(o.key)] = o.value
		}
	}
	maps.Copy(want, s.log.Notes())
	if broken.ReplayFromApplied {
		return nil
	}
	gone, err := s.difference(want)
	if err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(want)) {
		gone.Put([]byte(key), want[key])
		if gone.Size() > restoreBytes {
			if err := s.state.writer.Commit([]*Batch{gone}); err != nil {
				return err
			}
			gone = &Batch{}
		}
	}
	return s.state.writer.Commit([]*Batch{gone})
}

// restoreBytes is what goes in one batch of restore, about.
const restoreBytes = 1 << 20

// difference is a batch that deletes, under the prefixes of figures and records, what is not in
// want, and leaves in want what differs.
func (s *Store) difference(want map[string][]byte) (*Batch, error) {
	b := &Batch{}
	snap := s.Snap()
	defer snap.Close()
	for _, prefix := range []byte{tabletPrefix, appliedPrefix, tombstonePrefix, installingPrefix, recordPrefix} {
		var fault error
		snap.walk(walkOptions{prefix: []byte{prefix}}, func(key, value []byte, err error) bool {
			if fault = err; err != nil {
				return false
			}
			wanted, ok := want[string(key)]
			switch {
			case !ok:
				b.Delete(bytes.Clone(key))
			case bytes.Equal(wanted, value):
				delete(want, string(key))
			}
			return true
		})
		if fault != nil {
			return nil, fault
		}
	}
	return b, nil
}
