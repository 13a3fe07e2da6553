package store

import (
	"encoding/binary"
	"iter"

	"github.com/dgraph-io/badger/v4"

	"github.com/percolator-go/percolator/store/raftlog"
)

// Keys of a tablet's replicas other than their state and logs:
//
//	'x' | tablet id          tombstone: the replica ids removed here
//	'i' | tablet id          marker: the range is being filled or cleared
//	's' | tablet id | key    a staged entry of a snapshot
const (
	tombstonePrefix  = 'x'
	installingPrefix = 'i'
	stagedPrefix     = 's'
	recordPrefix     = 'n' // of Batch.PutRecord

	ownKeyBytes = 1 + 8
)

func appendOwnKey(dst []byte, prefix byte, tablet uint64) []byte {
	return binary.BigEndian.AppendUint64(append(dst, prefix), tablet)
}

// PutTombstone sets the opaque record of the tablet's replicas that were removed here. It is never
// deleted.
func (b *Batch) PutTombstone(tablet uint64, record []byte) {
	b.putRecord(appendOwnKey(nil, tombstonePrefix, tablet), append([]byte{plainTag}, record...))
	b.barrier = true
}

// PutInstalling sets the opaque marker of a tablet whose range is being filled or cleared. If it
// exists after a crash, the caller must complete that before it opens a replica of the tablet.
func (b *Batch) PutInstalling(tablet uint64, record []byte) {
	b.putRecord(appendOwnKey(nil, installingPrefix, tablet), append([]byte{plainTag}, record...))
	b.barrier = true // makes the staged entries durable too
}

// DeleteInstalling removes the marker.
func (b *Batch) DeleteInstalling(tablet uint64) {
	b.putRecord(appendOwnKey(nil, installingPrefix, tablet), nil)
	b.barrier = true // makes the filled or cleared range durable too
}

// InitialLog begins a log after (index, term), with everything up to index committed: that of a new
// replica, or of one that has installed a snapshot. The batch must also put the tablet's state and
// Applied record as of that index. Existing entries are removed. An existing HardState is kept and
// raised to the position, because votes must not be forgotten.
func (b *Batch) InitialLog(tablet, index, term uint64) {
	at := raftlog.Position{Index: index, Term: term}
	b.log = append(b.log, logChange{kind: logBegin, tablet: tablet, at: at})
	b.barrier = true
}

// Stage stores an entry of a snapshot for the tablet under a separate key, which no read of the
// rows finds. The batch keeps the value.
func (b *Batch) Stage(tablet uint64, e Entry) { b.Put(stagedKey(tablet, e.Key), e.Value) }

func stagedKey(tablet uint64, key []byte) []byte {
	return append(appendOwnKey(make([]byte, 0, ownKeyBytes+len(key)), stagedPrefix, tablet), key...)
}

// StageCost returns the amounts that Stage counts against MaxBatchBytes and MaxBatchLen.
func StageCost(e Entry) (size, entries int) {
	size, entries = Cost(e.Key, e.Value)
	return size + entries*ownKeyBytes, entries
}

// DeleteReplica removes the tablet's state, its Applied record and its log. Its rows are cleared
// afterwards, and a marker must exist until they are.
func (b *Batch) DeleteReplica(tablet uint64) {
	b.Delete(appendOwnKey(nil, tabletPrefix, tablet))
	b.Delete(appendOwnKey(nil, appliedPrefix, tablet))
	b.tablets = append(b.tablets, tabletChange{kind: tabletGone, tablet: tablet})
	b.log = append(b.log, logChange{kind: logDestroy, tablet: tablet})
	b.barrier = true
}

// Tombstone returns the value last set by PutTombstone.
func (s *Snap) Tombstone(tablet uint64) ([]byte, bool, error) {
	return lookup(s, s.ownKey(tombstonePrefix, tablet), copyPlain)
}

// Installing returns the tablet's marker, if it has one.
func (s *Snap) Installing(tablet uint64) ([]byte, bool, error) {
	return lookup(s, s.ownKey(installingPrefix, tablet), copyPlain)
}

// Record returns a copy of the value last set by PutRecord.
func (s *Snap) Record(name string) (record []byte, ok bool, err error) {
	return s.Get(append([]byte{recordPrefix}, name...))
}

// Installings iterates the markers of all tablets by id.
func (s *Snap) Installings() iter.Seq2[TabletStateEntry, error] {
	return s.ownRecords(installingPrefix)
}

// Staged returns a cursor over the tablet's staged entries. Its Next returns them with the keys
// that they will have once installed, its Each with those under which they are staged.
func (s *Snap) Staged(tablet uint64) *Cursor {
	return &Cursor{snap: s, prefix: appendOwnKey(nil, stagedPrefix, tablet)}
}

// StagedTablets returns the tablets that have staged entries.
func (s *Snap) StagedTablets() (ids []uint64, err error) {
	it, err := s.iterator(badger.IteratorOptions{Prefix: []byte{stagedPrefix}})
	if err != nil {
		return nil, err
	}
	defer it.Close()
	for it.Rewind(); it.Valid(); {
		key := it.Item().Key()
		if len(key) < ownKeyBytes {
			return nil, s.corrupt(key, errKeyLength)
		}
		ids = append(ids, binary.BigEndian.Uint64(key[1:]))
		it.Seek(prefixEnd(key[:ownKeyBytes]))
	}
	return ids, nil
}
