package store

import (
	"encoding/binary"
	"fmt"

	"github.com/dgraph-io/badger/v4"
)

// Chunks of long values. Each chunk is an entry of its own, so that Badger's value log stays
// empty. A value log would cost a second sync per commit, would log sync errors instead of
// returning them, would return an unreadable value as an empty one, and would need garbage
// collection (docs/adr/0002). The Writer writes and deletes chunks; readers on any goroutine
// join them within one Snap.
//
// The head, marked chunkedMeta, is stored under the value's own key: the total length as a
// varint, then the first bytes. Chunk i ≥ 1 is stored under 'c' | key | i in 2 bytes.
const (
	chunkPrefix = 'c'
	// chunkBytes is the maximum length of the part of a value in one entry. It is below Badger's
	// value threshold for every memtable size that Options allow.
	chunkBytes  = 256 << 10
	chunkedMeta = 0x01 // badger.Entry.UserMeta of a head

	chunkKeyOverhead = 1 + 2
)

// chunksOf returns the number of entries of a value of n bytes.
func chunksOf(n int) int { return max(1, (n+chunkBytes-1)/chunkBytes) }

// chunkKey returns the key of the i-th chunk of the value under key.
func chunkKey(key []byte, i int) []byte {
	return binary.BigEndian.AppendUint16(append([]byte{chunkPrefix}, key...), uint16(i))
}

// chunkHead returns the value to store under the key of a long value.
func chunkHead(value []byte) []byte {
	head := binary.AppendUvarint(make([]byte, 0, binary.MaxVarintLen32+chunkBytes),
		uint64(len(value)))
	return append(head, value[:chunkBytes]...)
}

// cutHead splits the head of a long value into the total length and the first bytes.
func cutHead(head []byte) (total int, first []byte, err error) {
	length, n := binary.Uvarint(head)
	if n <= 0 || length < uint64(len(head)-n) || length > 1<<31 {
		return 0, nil, fmt.Errorf("%w: head of a long value", ErrBadValue)
	}
	return int(length), head[n:], nil
}

// joinChunks reads the chunks that follow the head and returns the whole value.
func (s *Snap) joinChunks(key, head []byte) ([]byte, error) {
	total, first, err := cutHead(head)
	if err != nil {
		return nil, err
	}
	value := append(make([]byte, 0, total), first...)
	for i := 1; len(value) < total; i++ {
		item, err := s.get(chunkKey(key, i))
		switch {
		case item != nil:
			err = item.Value(func(b []byte) error {
				value = append(value, b...)
				return nil
			})
		case err == nil:
			err = badger.ErrKeyNotFound
		}
		if err != nil {
			return nil, fmt.Errorf("read chunk %d of a long value: %w", i, err)
		}
	}
	if len(value) != total {
		return nil, fmt.Errorf("%w: long value of %d bytes instead of %d", ErrBadValue, len(value),
			total)
	}
	return value, nil
}

// hasChunks reports whether the database contains any chunk. While it contains none, writes
// need not search for chunks that they replace.
func hasChunks(db *badger.DB, seq uint64) bool {
	txn := db.NewTransactionAt(seq, false)
	defer txn.Discard()
	it := txn.NewIterator(badger.IteratorOptions{Prefix: []byte{chunkPrefix}})
	defer it.Close()
	it.Rewind()
	return it.Valid()
}

// mayBeLong reports whether entries of this key's group can have chunks. Most writes are to
// the groups W, H, L, K, R, N and I, whose values are short.
func mayBeLong(key []byte) bool {
	switch key[0] {
	case 'W', 'H', 'L', 'K', 'R', 'N', 'I', appliedPrefix, padLow, padHigh:
		return false
	case stagedPrefix:
		return len(key) <= ownKeyBytes || mayBeLong(key[ownKeyBytes:])
	default:
		return true
	}
}
