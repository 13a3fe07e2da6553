package raftlog

// Log: opening, appending and closing. writing serializes Append, Rewrite and Close. Readers and
// Stats read-lock mu, which Append never holds during I/O.

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/percolator-go/percolator/internal/metrics"
)

// Defaults of Options.
const (
	// DefaultSegmentBytes is large enough to make the cost of a new segment, three syncs,
	// negligible next to that of its contents, and small enough for segments to be freed soon.
	DefaultSegmentBytes = 16 << 20
	// DefaultCacheBytes serves followers and applies that are at most 160 ms behind at 50 MB/s.
	// Others read the segments, from the page cache.
	DefaultCacheBytes = 8 << 20
	// DefaultSpares is the number of segments written between two checkpoints at 50 MB/s.
	DefaultSpares = 4
)

const (
	// reserveBytes is the part at the end of a segment that, when there is no space for another
	// segment, only batches without entries may use: truncations and checkpoints, which free
	// space.
	reserveBytes = 64 << 10
	// smallBytes is the minimum size of a segment that is created on a full disk: by Open, or for
	// a batch without entries that does not fit into the reserve.
	smallBytes = 16 << 10
	// minSegmentBytes leaves space in addition to the reserve.
	minSegmentBytes = 4 * reserveBytes
	// keptBuffer limits the buffer that Append keeps for the next one.
	keptBuffer = 1 << 20
	dirMode    = 0o700
)

// Options configure a Log. Zero fields get the defaults.
type Options struct {
	Create       bool  // create the log if there is none, instead of failing with ErrNoLog
	SegmentBytes int64 // size of a segment's file; a larger batch gets a larger one
	CacheBytes   int64 // memory for the newest entries of all replicas together
	Spares       int   // number of files kept for new segments; none if negative

	// ID is the id of the log to open or create. Open returns ErrForeign for another log. If ID
	// is zero, Open accepts any log, and a new one gets a random id.
	ID        [16]byte
	InMemory  bool          // keep nothing on disk. For tests.
	NoSync    bool          // never sync, which loses acknowledged writes. For tests of tests.
	SyncDelay time.Duration // sleep after each sync, for benchmarks of slower disks

	// Room returns an error that wraps ErrDiskFull if the log may not create a file of so many
	// bytes. Nil means only the file system limits the log. After such an error, Open, and a batch
	// without entries for which the last segment has no space, get a smaller file, for which Room is
	// not called.
	Room func(bytes int64) error

	fs fileSystem // for tests
}

func (o Options) withDefaults() Options {
	o.SegmentBytes = align(max(cmp.Or(o.SegmentBytes, DefaultSegmentBytes), minSegmentBytes))
	o.CacheBytes = cmp.Or(o.CacheBytes, DefaultCacheBytes)
	o.Spares = cmp.Or(o.Spares, DefaultSpares)
	return o
}

// Log is the write-ahead log of all replicas of a node. Its methods may be used concurrently;
// Append, Rewrite and Close exclude each other.
type Log struct {
	opts Options
	dir  string
	fs   fileSystem
	id   logID

	writing sync.Mutex // held by Append, Rewrite and Close, and acquired before mu

	mu       sync.RWMutex // guards state, segments and counts; never held during I/O
	state    *state
	segments []*segment // oldest first; the last is written to
	counts   counts
	synced   metrics.Durations

	spareCount atomic.Int64 // len(spares), for Stats
	reached    atomic.Uint64

	// reading is read-locked by readers of segments, and locked to close or reuse a file. It may
	// be acquired while mu is held, never the other way round.
	reading sync.RWMutex

	// writing guards the fields from here on.
	next   uint64 // sequence number of the next segment
	spares []string
	failed error
	buffer []byte
}

type counts struct{ batches, bytes uint64 }

// Open opens the log in a directory, reads all of it and begins a new segment. It returns a
// *DamageError if a frame that was certainly synced differs from what was written. A batch that
// the last process was writing when it ended is present as a whole or not at all.
func Open(dir string, o Options) (*Log, error) {
	o = o.withDefaults()
	l := &Log{opts: o, dir: dir, fs: o.fs, state: newState(o.CacheBytes), next: 1}
	if l.fs == nil && o.InMemory {
		l.fs = newMemFS()
	}
	if l.fs == nil {
		if err := os.MkdirAll(dir, dirMode); err != nil {
			return nil, fmt.Errorf("raftlog: create directory: %w", err)
		}
		l.fs = osDir(dir)
	}
	if err := l.open(); err != nil {
		for _, s := range l.segments {
			err = errors.Join(err, s.file.close())
		}
		return nil, err
	}
	return l, nil
}

func (l *Log) open() error {
	// A file that a killed process has renamed must not reappear under its old name after it
	// has been overwritten.
	err := l.fs.sync()
	if err != nil {
		return fmt.Errorf("raftlog: sync directory: %w", err)
	}
	names, err := l.fs.list()
	if err != nil {
		return fmt.Errorf("raftlog: read directory: %w", err)
	}
	if err := l.find(names); err != nil {
		return err
	}
	if len(l.segments) == 0 {
		if l.id = l.opts.ID; l.id == (logID{}) {
			_, _ = rand.Read(l.id[:]) // never fails
		}
	} else if err := l.replay(); err != nil {
		return err
	}
	if err := l.begin(0, true); err != nil {
		return fmt.Errorf("raftlog: begin a segment: %w", err)
	}
	if err := l.free(); err != nil {
		return fmt.Errorf("raftlog: free old segments: %w", err)
	}
	return nil
}

// Append makes the batch durable and then visible, with one write and one sync. After ErrInvalid,
// ErrBatchTooLarge and ErrDiskFull nothing was written and nothing has changed. After any other
// error but ErrClosed the log fails permanently with ErrFailed, and only reopening it shows whether
// the batch is on disk.
//
// The caller adds changes that need no sync of their own, such as a HardState in which only the
// commit index changed, to a later batch: every write is synced before the next one.
func (l *Log) Append(b *Batch) error {
	l.writing.Lock()
	defer l.writing.Unlock()
	return l.appendBatch(b)
}

// appendBatch appends the batch as Append does. The caller holds writing.
func (l *Log) appendBatch(b *Batch) error {
	if l.failed != nil {
		return l.failed
	}
	if len(b.items) == 0 {
		return nil
	}
	if err := l.state.check(b.items); err != nil { // only holders of writing change the state
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if b.size > MaxBatchBytes {
		return fmt.Errorf("%w: %d bytes, the limit is %d", ErrBatchTooLarge, b.size, MaxBatchBytes)
	}
	err := l.write(b)
	if err == nil || errors.Is(err, ErrDiskFull) {
		return err
	}
	l.failed = fmt.Errorf("%w: %w", ErrFailed, err)
	return l.failed
}

func (l *Log) write(b *Batch) error {
	var head [frameHead]byte // sealFrame fills it in
	l.buffer = append(l.buffer[:0], head[:]...)
	buf := l.buffer
	for i := range b.items {
		buf = b.items[i].append(buf)
	}
	if l.buffer = buf; cap(buf) > keptBuffer {
		l.buffer = nil
	}
	s, err := l.segmentFor(align(int64(len(buf))), b.housekeeping())
	if err != nil {
		return err
	}
	at := s.end
	buf = sealFrame(buf, s.seed(), s.frames, at)
	if err := s.write(buf, at); err != nil {
		return fmt.Errorf("write segment %s: %w", s.name, err)
	}
	if err := l.sync(s); err != nil {
		return fmt.Errorf("sync segment %s: %w", s.name, err)
	}
	if b.maySend() {
		l.reached.Store(framePosition(s.sequence, s.frames))
	}
	s.end += int64(len(buf))
	s.frames++
	l.mu.Lock()
	for i := range b.items {
		if err = l.state.apply(&b.items[i], s, at+frameHead, b.items[i].entry); err != nil {
			break // cannot happen: check has accepted it
		}
	}
	l.counts.batches++
	l.counts.bytes += uint64(len(buf))
	l.mu.Unlock()
	if err != nil {
		return err
	}
	return l.free()
}

// segmentFor returns a segment with space for a frame of so many bytes: the last one, or a new one.
func (l *Log) segmentFor(bytes int64, housekeeping bool) (*segment, error) {
	s := l.segments[len(l.segments)-1]
	if s.end+bytes <= s.bytes-reserveBytes {
		return s, nil
	}
	err := l.begin(bytes, false)
	if errors.Is(err, ErrDiskFull) && housekeeping {
		if s.end+bytes <= s.bytes {
			return s, nil
		}
		err = l.begin(bytes, true)
	}
	if err != nil {
		return nil, err
	}
	return l.segments[len(l.segments)-1], nil
}

func (l *Log) sync(s *segment) error {
	defer l.synced.Since(time.Now())
	if l.opts.NoSync {
		return nil
	}
	err := s.file.sync()
	if err == nil && l.opts.SyncDelay > 0 {
		time.Sleep(l.opts.SyncDelay)
	}
	return err
}

// Close writes a last, empty frame, so that Open can distinguish damage to an earlier frame from
// an unfinished write, and closes the files. It omits the frame if the log has failed or the last
// segment is full. No reader may be active.
func (l *Log) Close() error {
	l.writing.Lock()
	defer l.writing.Unlock()
	if errors.Is(l.failed, ErrClosed) {
		return ErrClosed
	}
	var errs []error
	if s := l.segments[len(l.segments)-1]; l.failed == nil && s.end+frameHead <= s.bytes {
		errs = append(errs, s.write(sealFrame(make([]byte, frameHead), s.seed(), s.frames, s.end),
			s.end))
		errs = append(errs, l.sync(s))
	}
	l.failed = ErrClosed
	l.reading.Lock()
	defer l.reading.Unlock()
	for _, s := range l.segments {
		errs = append(errs, s.file.close())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("raftlog: close: %w", err)
	}
	return nil
}

// Notes returns all notes by key. They must not be changed.
func (l *Log) Notes() map[string][]byte {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return maps.Clone(l.state.notes)
}

// State is the log's state of a replica except its entries.
type State struct {
	Replica    uint64
	Term, Vote uint64
	Commit     uint64
	Truncated  Position // position after which the log begins
	Checkpoint uint64   // the state is durable up to this index; a replay begins after it
	Figures    string   // figures of the last Checkpoint or Begin
	Last       uint64   // index of the last entry, or Truncated.Index if there is none
}

// Replicas returns the states of all replicas by id.
func (l *Log) Replicas() []State {
	l.mu.RLock()
	defer l.mu.RUnlock()
	states := make([]State, 0, len(l.state.replicas))
	for _, id := range slices.Sorted(maps.Keys(l.state.replicas)) {
		h := &l.state.replicas[id].head
		states = append(states, State{
			Replica: id, Term: h.hard.term, Vote: h.hard.vote, Commit: h.hard.commit,
			Truncated: h.truncated, Checkpoint: h.checkpoint, Figures: h.figures,
			Last: h.last,
		})
	}
	return states
}
