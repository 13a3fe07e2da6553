package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/dgraph-io/badger/v4"
)

// Store is one node's storage: the Raft logs and the state of all its tablets. Its methods may be used concurrently,
// except that each Writer belongs to one goroutine at a time.
type Store struct {
	opts  Options
	lock  *os.File // holds the flock on the directory; nil in memory
	state *database
	log   *database // the same as state unless Options.SeparateLog

	closed  atomic.Bool
	stop    chan struct{}
	workers sync.WaitGroup

	damage    *damage
	suspicion chan struct{} // of the scrubber: everything is to be verified now

	blocked    atomic.Bool   // below MinFreeBytes when last looked at
	exhausted  atomic.Bool   // see Exhausted
	reclaiming sync.Mutex    // held while Reclaim or Compact works, and while Badger's compactors are started or stopped
	wake       chan struct{} // of the worker: much was written to a database that rests
}

// database is one Badger database with its sequence and its writer.
type database struct {
	db        *badger.DB
	seq       sequence
	hot       *hotCells
	durable   *durable
	writer    *Writer
	count     counters
	dead      atomic.Int64 // bytes, about, that have become superfluous since the last compaction
	rest      rest
	holder    holder
	verified  verified
	damage    *damage // the store's, as the next
	suspicion chan struct{}
	looked    uint64 // bytes written when Reclaim last looked; guarded by reclaiming
}

// Names inside Options.Dir.
const (
	sharedDir = "db"
	stateDir  = "state"
	logDir    = "log"
)

// Open opens the store in o.Dir, creating it if the directory is missing or empty. It returns ErrInUse, ErrForeign,
// ErrDamaged or *VersionError, wrapped with the path, when the directory is not one that it may use.
func Open(o Options) (*Store, error) {
	o = o.withDefaults()
	s := &Store{
		opts: o, stop: make(chan struct{}), wake: make(chan struct{}, 1),
		damage: &damage{}, suspicion: make(chan struct{}, 1),
	}
	if o.InMemory {
		if o.Dir != "" {
			return nil, errors.New("store: a store in memory has no directory")
		}
		return s, s.openDatabases()
	}
	lock, err := prepareDir(o)
	if err != nil {
		return nil, err
	}
	s.lock = lock
	if err := fitMemTables(o); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	if err := s.openDatabases(); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	if err := finishDir(o); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// openDatabases opens the one or two databases and starts the worker. On an error nothing is left open.
func (s *Store) openDatabases() (err error) {
	name := sharedDir
	if s.opts.SeparateLog {
		name = stateDir
	}
	if s.state, err = s.openDatabase(name); err != nil {
		return err
	}
	s.log = s.state
	if s.opts.SeparateLog {
		if s.log, err = s.openDatabase(logDir); err != nil {
			return errors.Join(err, s.state.db.Close(), s.state.durable.close())
		}
	}
	s.lookAtSpace()
	s.workers.Go(s.work)
	if !s.opts.InMemory {
		s.workers.Go(s.scrub)
	}
	return nil
}

func (s *Store) openDatabase(name string) (*database, error) {
	dir := ""
	if !s.opts.InMemory {
		dir = filepath.Join(s.opts.Dir, name)
	}
	options := s.opts.badgerOptions(dir, badgerLog{s.opts.Logger})
	db, err := openBadger(options, s.opts.NoSync)
	if err != nil {
		return nil, err
	}
	d := &database{db: db, hot: newHotCells(hotSlots), damage: s.damage, suspicion: s.suspicion}
	d.rest.until.Store(never)
	if d.durable, err = openDurable(options, s.opts.NoSync || s.opts.InMemory); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	d.seq.assigned = db.MaxVersion()
	d.seq.visible = d.seq.assigned
	d.writer = &Writer{store: s, d: d, drops: chunkDrops{}}
	if err := d.writer.rollBack(); err != nil {
		return nil, errors.Join(fmt.Errorf("store: undo a batch that was cut short: %w", err), db.Close(), d.durable.close())
	}
	d.writer.chunks = hasChunks(db, d.seq.visible)
	return d, nil
}

// openBadger opens a database, once more if leftovers of a killed process were in the way: between making a log file
// and sizing it, a crash leaves an empty file that Badger refuses ("Create a new file", its issue 2207).
func openBadger(b badger.Options, noSync bool) (*badger.DB, error) {
	const attempts = 2
	var err error
	for range attempts {
		if !b.InMemory {
			if err = errors.Join(removeLeftovers(b.Dir), checkTables(b)); err != nil {
				return nil, err
			}
		}
		if !b.InMemory {
			if err = mendLogs(b.Dir, noSync); err != nil {
				return nil, err
			}
		}
		var db *badger.DB
		if db, err = badger.OpenManaged(b); err == nil {
			return db, nil
		}
	}
	return nil, fmt.Errorf("%w: %s: %w", ErrDamaged, b.Dir, err)
}

// MaxBatchBytes is the greatest Batch.Size that Commit takes.
func (s *Store) MaxBatchBytes() int { return maxBatchBytes }

// MaxBatchLen is the greatest Batch.Len that Commit takes.
func (s *Store) MaxBatchLen() int { return maxBatchLen }

// LogWriter returns the writer of the Raft logs.
func (s *Store) LogWriter() *Writer { return s.log.writer }

// StateWriter returns the writer of the state: the same as LogWriter unless Options.SeparateLog.
func (s *Store) StateWriter() *Writer { return s.state.writer }

// Close ends the background work, waits for it and closes the databases. Every Snap and Log must be done with before,
// and no Commit may be under way. Close again returns ErrClosed.
func (s *Store) Close() error {
	if !s.closed.CompareAndSwap(false, true) {
		return ErrClosed
	}
	close(s.stop)
	s.workers.Wait()
	s.reclaiming.Lock() // somebody else's Reclaim ends first
	defer s.reclaiming.Unlock()
	var errs []error
	if n := s.state.seq.pinned(); n > 0 {
		errs = append(errs, fmt.Errorf("store: closed with %d snaps open", n))
	}
	for _, d := range s.databases() {
		errs = append(errs, s.condemn(d.checkReplaced()))
		d.letGo()
		if err := errors.Join(d.writer.stop(), d.db.Close(), d.durable.close()); err != nil {
			errs = append(errs, fmt.Errorf("store: close: %w", err))
		}
	}
	if s.lock != nil {
		errs = append(errs, s.lock.Close())
	}
	return errors.Join(errs...)
}

// databases returns the one or two databases.
func (s *Store) databases() []*database {
	if s.log == s.state {
		return []*database{s.state}
	}
	return []*database{s.state, s.log}
}
