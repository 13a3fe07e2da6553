package snapshot

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/store"
)

// A bit flip in a piece in transit is detected, in any byte of a key or value.
func TestSnapshotBitFlips(t *testing.T) {
	source, here := newSource(t, sentDescriptor()), newSite(t, "")
	pieces := source.pieces(1 << 10)
	here.old()
	a, err := here.arrive(pieces[:1])
	if err != nil {
		t.Fatal(err)
	}
	tried := 0
	for i := range pieces[1].Entries {
		for at := range len(pieces[1].Entries[i].Key) + min(len(pieces[1].Entries[i].Value), 100) {
			bad := proto.CloneOf(pieces[1])
			key, value := bad.Entries[i].Key, bad.Entries[i].Value
			if at < len(key) {
				key[at] ^= 1 << (at % 8)
			} else {
				value[at-len(key)] ^= 1 << (at % 8)
			}
			if err := a.Take(bad, func(error) {}); !errors.Is(err, ErrDamaged) {
				t.Fatalf("UNNOTICED: byte %d of entry %d: %v", at, i, err)
			}
			tried++
		}
	}
	if tried < 100 {
		t.Errorf("only %d bits flipped: the piece has %d entries", tried, len(pieces[1].Entries))
	}
}

// A snapshot read from a damaged table does not complete, so it is never installed. In virtual time
// the store's scrubber, which verifies a table shortly after it was opened, cannot run before the
// damage; otherwise the table would count as sound for a minute.
func TestSnapshotOfDamagedTable(t *testing.T) { synctest.Test(t, snapshotOfDamagedTable) }

func snapshotOfDamagedTable(t *testing.T) {
	source := newSite(t, t.TempDir())
	source.fill(sentDescriptor())
	source.reopen() // moves committed entries to a table
	names, err := filepath.Glob(filepath.Join(source.dir, "db", "*.sst"))
	if err != nil || len(names) != 1 {
		t.Fatal(names, err)
	}
	data, err := os.ReadFile(names[0])
	if err != nil {
		t.Fatal(err)
	}
	value := []byte("W.16.m")
	at := bytes.Index(data, value)
	f, err := os.OpenFile(names[0], os.O_RDWR, 0)
	if err != nil || at < 0 {
		t.Fatal(at, err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte("w"), int64(at)); err != nil {
		t.Fatal(err)
	}
	ask := func(_ uint64, _ time.Time, c *wire.SnapshotChunk,
		then func(*wire.SnapshotAnswer, error)) {
		if c.Last {
			t.Errorf("BIT-ROT: the last piece of %d was sent", c.Sequence+1)
		}
		then(&wire.SnapshotAnswer{Next: c.Sequence + 1, Installed: c.Last}, nil)
	}
	if err := source.sendTo(ask, 200); !errors.Is(err, store.ErrDamaged) {
		t.Errorf("BIT-ROT: sent: %v, want ErrDamaged", err)
	}
}
