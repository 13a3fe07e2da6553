package raftlog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
	"go.etcd.io/raft/v3/raftpb"
	"golang.org/x/sys/unix"
)

// This log allows a state in Badger without syncs: from time to time all of Badger's files are made
// durable, and then a checkpoint records the position of each replica's state. After a crash the
// entries behind the checkpoint are applied again. The tests of replay_state_test.go cover this
// design, with Badger opened as by package store, only smaller, and blind puts and deletes.

const (
	stateReplicas = 3
	stateKeys     = 1500 // of each replica
)

// machine is a log and the state derived from its entries.
type machine struct {
	log     *Log
	db      *badger.DB
	seq     uint64 // Badger's newest version
	applied [stateReplicas + 1]uint64
	dir     string
}

func stateOptions(dir string) badger.Options {
	b := badger.DefaultOptions(dir)
	b.Logger = nil
	b.SyncWrites = false
	b.MemTableSize = 2 << 20
	b.NumMemtables = 3
	b.NumCompactors = 2
	b.NumLevelZeroTables = 2
	b.NumLevelZeroTablesStall = 6
	b.BaseLevelSize = 4 << 20
	b.BaseTableSize = 1 << 20
	b.ValueThreshold = b.MemTableSize * 15 / 100
	b.ValueLogFileSize = 1 << 20
	b.Compression = options.None
	b.BlockCacheSize = 0
	b.IndexCacheSize = 0
	b.NumVersionsToKeep = 1
	b.DetectConflicts = false
	b.MetricsEnabled = false
	return b
}

// openMachine opens both and replays. replayed is the number of entries applied again.
func openMachine(dir string) (m *machine, replayed int, err error) {
	m = &machine{dir: filepath.Join(dir, "state")}
	o := Options{Create: true, SegmentBytes: 1 << 20, CacheBytes: 64 << 10}
	if m.log, err = Open(filepath.Join(dir, "log"), o); err != nil {
		return nil, 0, err
	}
	if err := removeEmpty(m.dir); err != nil {
		return nil, 0, err
	}
	if m.db, err = badger.OpenManaged(stateOptions(m.dir)); err != nil {
		return nil, 0, fmt.Errorf("badger: %w", err)
	}
	m.seq = m.db.MaxVersion()
	for _, s := range m.log.Replicas() {
		m.applied[s.Replica] = s.Checkpoint
		for lo := s.Checkpoint + 1; lo <= s.Last; {
			entries, err := m.log.Replica(s.Replica).Entries(lo, s.Last+1, 1<<20)
			if err == nil {
				err = m.apply(s.Replica, entries)
			}
			if err != nil {
				return nil, 0, err
			}
			lo += uint64(len(entries))
			replayed += len(entries)
		}
	}
	return m, replayed, nil
}

// removeEmpty removes log files of zero bytes, as package store does (Badger's issue 2207).
func removeEmpty(dir string) error {
	for _, pattern := range []string{"*.mem", "*.vlog"} {
		names, _ := filepath.Glob(filepath.Join(dir, pattern))
		for _, name := range names {
			if info, err := os.Stat(name); err != nil || info.Size() > 0 {
				continue
			}
			if err := os.Remove(name); err != nil {
				return err
			}
		}
	}
	return nil
}

// effect is a blind put, or a delete.
type effect struct {
	key, value []byte
	del        bool
}

// effects returns the effects of an entry: its data is their seed.
func effects(replica uint64, e *raftpb.Entry) (all []effect) {
	seed := binary.BigEndian.Uint64(e.Data)
	rng := rand.New(rand.NewPCG(seed, replica))
	n, most := 1+rng.IntN(12), 4000
	if rng.IntN(60) == 0 { // more than fits into one of Badger's transactions
		n, most = 60, 40_000
	}
	for i := range n {
		f := effect{key: fmt.Appendf(nil, "r%d-k%05d", replica, rng.IntN(stateKeys))}
		f.del = rng.IntN(4) == 0
		if !f.del {
			stamp := binary.BigEndian.AppendUint64(nil, seed+uint64(i))
			f.value = bytes.Repeat(stamp, 1+rng.IntN(most/8))
		}
		all = append(all, f)
	}
	return all
}

// apply writes the effects of the entries to Badger without a sync.
func (m *machine) apply(replica uint64, entries []*raftpb.Entry) error {
	m.seq++
	txn := m.db.NewTransactionAt(m.seq, true)
	defer func() { txn.Discard() }()
	put := func(f effect) error {
		if f.del {
			return txn.Delete(f.key)
		}
		return txn.Set(f.key, f.value)
	}
	for _, e := range entries {
		for _, f := range effects(replica, e) {
			err := put(f)
			if errors.Is(err, badger.ErrTxnTooBig) {
				if err := txn.CommitAt(m.seq, nil); err != nil {
					return err
				}
				m.seq++
				txn = m.db.NewTransactionAt(m.seq, true)
				err = put(f)
			}
			if err != nil {
				return err
			}
		}
		m.applied[replica] = e.GetIndex()
	}
	if err := txn.CommitAt(m.seq, nil); err != nil {
		return err
	}
	m.db.SetDiscardTs(m.seq - 1)
	return nil
}

// step appends some entries, synced, and returns those to apply.
func (m *machine) step(rng *rand.Rand) (replica uint64, entries []*raftpb.Entry, err error) {
	replica = 1 + rng.Uint64N(stateReplicas)
	b, l := new(Batch), m.log.Replica(replica)
	last, err := l.LastIndex()
	if errors.Is(err, ErrNoReplica) {
		b.Begin(replica, Position{}, nil)
	} else if err != nil {
		return 0, nil, err
	}
	for i := range 1 + rng.Uint64N(4) {
		// so that the effects of each entry are known
		data := binary.BigEndian.AppendUint64(nil, last+1+i)
		entries = append(entries, entry(last+1+i, 1, append(data, make([]byte, rng.IntN(2000))...)))
	}
	b.Append(replica, entries, hardOf(1, 1, last+uint64(len(entries))))
	return replica, entries, m.log.Append(b)
}

// checkpoint records that the state is durable up to its applied position, and truncates some of
// the log.
func (m *machine) checkpoint(rng *rand.Rand, applied [stateReplicas + 1]uint64) error {
	b := new(Batch)
	for _, s := range m.log.Replicas() {
		at := applied[s.Replica]
		b.Checkpoint(s.Replica, at, nil)
		if at > s.Truncated.Index {
			b.Truncate(s.Replica, s.Truncated.Index+1+rng.Uint64N(at-s.Truncated.Index))
		}
	}
	return m.log.Append(b)
}

// verify compares the state with that of all entries from the first on.
func (m *machine) verify() error {
	type origin struct {
		seed uint64
		size int
	}
	want := map[string]origin{}
	for _, s := range m.log.Replicas() {
		if m.applied[s.Replica] != s.Last {
			return fmt.Errorf("replica %d is applied up to %d of %d",
				s.Replica, m.applied[s.Replica], s.Last)
		}
		for i := uint64(1); i <= s.Last; i++ {
			e := entry(i, 1, binary.BigEndian.AppendUint64(nil, i))
			for _, f := range effects(s.Replica, e) {
				if delete(want, string(f.key)); !f.del {
					want[string(f.key)] = origin{binary.BigEndian.Uint64(f.value), len(f.value)}
				}
			}
		}
	}
	txn := m.db.NewTransactionAt(math.MaxUint64, false)
	defer txn.Discard()
	it := txn.NewIterator(badger.DefaultIteratorOptions)
	defer it.Close()
	for it.Rewind(); it.Valid(); it.Next() {
		key := string(it.Item().Key())
		w, ok := want[key]
		if !ok {
			return fmt.Errorf("%s came back: version %d", key, it.Item().Version())
		}
		delete(want, key)
		err := it.Item().Value(func(v []byte) error {
			if !bytes.Equal(v, bytes.Repeat(binary.BigEndian.AppendUint64(nil, w.seed), w.size/8)) {
				return fmt.Errorf("%s is of entry %d, want one of %d", key,
					binary.BigEndian.Uint64(v), w.seed)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	for key := range want {
		return fmt.Errorf("%s is lost, and %d in all", key, len(want))
	}
	return nil
}

// Ways to make all files in Badger's directory durable.
var durably = map[string]func(dir string) error{
	"syncfs": func(dir string) error {
		f, err := os.Open(dir)
		if err != nil {
			return err
		}
		return errors.Join(unix.Syncfs(int(f.Fd())), f.Close())
	},
	"fsync": func(dir string) error {
		names, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		for _, e := range names {
			if err := fsync(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
		return fsync(dir)
	},
	"none": func(string) error { return nil },
}

// fsync syncs a file or directory, unless it is gone: then its content is elsewhere, and durable
// there.
func fsync(name string) error {
	f, err := os.Open(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
