package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dgraph-io/badger/v4"

	"github.com/percolator-go/percolator/store/raftlog"
	"github.com/percolator-go/percolator/store/space"
)

// Store is one node's storage: the state of all its tablets in Badger, and their Raft
// logs in a write-ahead log. Its methods may be used concurrently.
type Store struct {
	opts  Options
	space *space.Disk
	locks []*os.File // hold the flocks on the directories; none in memory
	stamp stamp
	state *database
	log   *raftlog.Log

	checkpoints checkpoints
	badger      badgerCounts
	gate        *space.Gate

	closed  atomic.Bool
	stop    chan struct{}
	workers sync.WaitGroup

	damage    *damage
	suspicion chan struct{} // see suspect

	unmoved    string     // last error of maintainLog's rewriting, which alone uses it
	reclaiming sync.Mutex // held while Reclaim or Compact works
	replaced   sync.Mutex // held until damage of the tables that checkReplaced verifies is recorded
}

// database contains the open Badger database, its writer and the sequence numbers of transactions.
type database struct {
	db        *badger.DB
	seq       sequence
	hot       *hotCells
	writer    *Writer
	count     counters
	dead      atomic.Int64 // approximate bytes that have become dead since the last compaction
	holder    holder
	verified  verified
	damage    *damage       // the store's
	suspicion chan struct{} // the store's
	looked    uint64        // bytes written from Open to Reclaim's last pass; guarded by reclaiming
}

// Names inside Options.Dir.
const (
	stateDirName = "db"
	logDirName   = "log"
)

// Open opens the store in o.Dir, and creates it if the directory is missing or empty. It returns
// ErrInUse, ErrForeign, ErrForeignLog, ErrLogMissing, ErrDamaged or *VersionError, with the path,
// if it may not use the directories, and a *space.ShortError if files cannot be created.
func Open(o Options) (*Store, error) {
	o = o.withDefaults()
	s := newStore(o)
	s.stamp.version = o.Versions.Oldest
	if o.InMemory {
		if o.Dir != "" || o.LogDir != "" {
			return nil, errors.New("store: Dir and LogDir must be empty with InMemory")
		}
		if err := s.openParts([16]byte{}, true); err != nil {
			return nil, err
		}
		return s, nil
	}
	d, err := prepareDir(o)
	if err != nil {
		return nil, err
	}
	s.locks = d.locks
	s.stamp.version, s.stamp.log = d.version, d.log
	err = s.checkFiles()
	if err == nil {
		err = s.fitMemTables()
	}
	if err == nil {
		err = s.openParts(d.log, d.fresh)
	}
	if err != nil {
		return nil, errors.Join(err, s.unlock())
	}
	if err := finishDir(o); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func newStore(o Options) *Store {
	s := &Store{
		opts: o, space: o.space(), stop: make(chan struct{}), damage: &damage{},
		suspicion: make(chan struct{}, 1),
		badger:    badgerCounts{compacted: make(chan struct{}, 1)},
	}
	s.gate = space.NewGate(s.space, s.stop)
	s.checkpoints.tablets, s.checkpoints.at = map[uint64]figures{}, time.Now()
	return s
}

// openParts opens the log and the state.
func (s *Store) openParts(log [16]byte, fresh bool) error {
	if err := s.openLog(log, fresh); err != nil {
		return err
	}
	return s.openState(nil)
}

// openState opens the database, fills it with the remains of a simulated crash, if any, makes
// it agree with the log, and starts the background goroutines. After an error it leaves nothing
// open, not even the log.
func (s *Store) openState(left *remains) (err error) {
	defer func() {
		if err == nil {
			return
		}
		close(s.stop)
		if s.state != nil {
			err = errors.Join(err, s.gate.UnlessStuck(s.state.db.Close))
		}
		err = errors.Join(err, s.checkpoints.closeRoot(), s.log.Close())
	}()
	if s.state, err = s.openDatabase(); err != nil {
		return err
	}
	if s.opts.Crashes {
		if err := s.beginCrashes(left); err != nil {
			return err
		}
	}
	if err := s.state.findLocks(); err != nil {
		return fmt.Errorf("store: find the locks: %w", err)
	}
	if err := s.restore(); err != nil {
		return fmt.Errorf("store: restore figures and records from the log: %w", err)
	}
	s.space.Look()
	if err := s.checkReplaced(); err != nil { // holds the tables from now on
		return err
	}
	s.workers.Go(s.watch)
	s.workers.Go(s.work)
	if !s.opts.InMemory {
		s.workers.Go(s.scrub)
	}
	return nil
}

func (s *Store) openDatabase() (*database, error) {
	dir := ""
	if !s.opts.InMemory {
		dir = filepath.Join(s.opts.Dir, stateDirName)
		// Opened before any write, because a sync of root reports only the errors of later writes.
		if err := s.checkpoints.openRoot(s.opts.Dir); err != nil {
			return nil, err
		}
	}
	db, err := s.openBadger(s.opts.badgerOptions(dir, s.badgerLog()))
	if err != nil {
		return nil, err
	}
	d := &database{db: db, hot: newHotCells(s.opts.hotCells), damage: s.damage, suspicion: s.suspicion}
	d.seq.assigned = db.MaxVersion()
	d.seq.visible = d.seq.assigned
	d.writer = &Writer{store: s, d: d, drops: map[string]struct{}{}}
	d.writer.chunks = hasChunks(db, d.seq.visible)
	return d, nil
}

// badgerLog returns Badger's logger.
func (s *Store) badgerLog() badgerLog { return badgerLog{s.opts.Logger, &s.badger, s.gate} }

// openBadger opens a database.
func (s *Store) openBadger(b badger.Options) (*badger.DB, error) {
	if !b.InMemory {
		if err := s.prepareBadger(b); err != nil {
			return nil, err
		}
	}
	db, err := badger.OpenManaged(b)
	if err == nil {
		return db, nil
	}
	// Badger's errors do not wrap the system's, so check which resource is short.
	if short := s.space.ShortOfFiles(space.ReserveDivisor); short != nil {
		return nil, fmt.Errorf("%w: open %s: %w", short, b.Dir, err)
	}
	return nil, fmt.Errorf("%w: open %s: %w", ErrDamaged, b.Dir, err)
}

// prepareBadger verifies the files of a database, and removes stale ones, before it is opened.
func (s *Store) prepareBadger(b badger.Options) error {
	if err := removeLeftovers(b.Dir); err != nil {
		return err
	}
	newest, err := checkTables(b)
	if err != nil {
		return err
	}
	return s.removeOldLogs(b, newest)
}

// FreeBytes returns the free bytes of the store's file systems for this process: the smaller of
// the state's and the log's. A store in memory has no limit.
func (s *Store) FreeBytes() (uint64, error) { return s.space.FreeBytes() }

// FreeFiles returns, for each resource, the number of files that can still be created.
func (s *Store) FreeFiles() map[space.Resource]uint64 { return s.space.FreeFiles() }

// WriteBlocked is Disk.WriteBlocked of package space.
func (s *Store) WriteBlocked() error { return s.space.WriteBlocked() }

// Exhausted is Disk.Exhausted of package space.
func (s *Store) Exhausted() error { return s.space.Exhausted() }

// Room is Disk.Room of package space.
func (s *Store) Room(bytes uint64) error { return s.space.Room(bytes) }

// StateWriter returns the writer of the state.
func (s *Store) StateWriter() *Writer { return s.state.writer }

// Close stops the background work, makes a last checkpoint, so that the next Open need not apply
// entries again, and closes the database and the log. After a failed write, or on a full disk, it
// makes no checkpoint. Every Snap must be closed before, and no Commit or Append may be running. A
// second Close returns ErrClosed.
func (s *Store) Close() error {
	if !s.closed.CompareAndSwap(false, true) {
		return ErrClosed
	}
	close(s.stop)
	s.workers.Wait()
	s.reclaiming.Lock() // a concurrent Reclaim ends first
	defer s.reclaiming.Unlock()
	var errs []error
	if n := s.snaps(); n > 0 {
		errs = append(errs, fmt.Errorf("store: closed with %d snaps open", n))
	}
	if s.Damaged() == nil { // damage found before has been reported
		errs = append(errs, s.checkReplaced())
	}
	s.state.releaseTables()
	errs = append(errs, s.lastCheckpoint(), s.gate.UnlessStuck(s.state.db.Close), s.checkpoints.closeRoot(),
		s.log.Close(), s.unlock())
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("store: close: %w", err)
	}
	return nil
}

// lastCheckpoint stops the writer and makes a checkpoint, unless an earlier write has
// failed or the disk is full; the next Open then has more to apply again.
func (s *Store) lastCheckpoint() error {
	if s.state.writer.stop() != nil {
		return nil
	}
	s.checkpoints.taking.Lock()
	defer s.checkpoints.taking.Unlock()
	err := s.record(nil)
	if errors.Is(err, ErrDiskFull) {
		s.opts.Logger.Warn("store: checkpoint failed", "error", err)
		return nil
	}
	return err
}

func (s *Store) unlock() error {
	var errs []error
	for _, lock := range s.locks {
		errs = append(errs, lock.Close())
	}
	return errors.Join(errs...)
}
