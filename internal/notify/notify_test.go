package notify

import (
	"errors"
	"math"
	"testing"

	"github.com/percolator-go/percolator/internal/mvcc"
)

func TestAckRoundTrip(t *testing.T) {
	for _, ts := range []mvcc.Timestamp{0, 1, 1 << 18, mvcc.MaxTimestamp} {
		for _, version := range []uint32{0, 1, 300, math.MaxInt32} {
			value := EncodeAck(ts, version)
			got, of, err := DecodeAck(value)
			if err != nil || got != ts || of != version {
				t.Errorf("ack of %d, version %d came back as %d, %d, %v", ts, version, got, of, err)
			}
			if version == 0 && len(value) != 8 {
				t.Errorf("ack of version 0 has %d bytes; earlier builds read 8", len(value))
			}
		}
	}
	if got, version, err := DecodeAck(nil); got != 0 || version != 0 || err != nil {
		t.Errorf("no acknowledgment is %d, %d, %v", got, version, err)
	}
	for _, malformed := range []string{"short", "12345678\x00", "12345678\x80", "12345678\x01\x01",
		"12345678\xff\xff\xff\xff\x0f"} {
		if _, _, err := DecodeAck([]byte(malformed)); !errors.Is(err, ErrAck) {
			t.Errorf("malformed acknowledgment %q: %v", malformed, err)
		}
	}
}

func TestLockKeysDiffer(t *testing.T) {
	cells := []mvcc.Cell{
		{Table: 16, Row: "ab", Column: "c"}, {Table: 16, Row: "b", Column: "ca"},
		{Table: 17, Row: "ab", Column: "c"},
		{Table: 16, Row: "\x00ab", Column: "c"}, {Table: 16, Row: "ab", Column: "c\x00"},
		{Table: 16}, {Table: 16, Class: mvcc.ClassAck},
		{Table: 16, Class: mvcc.ClassAck, Row: "ab", Column: "c"},
	}
	seen := map[string]mvcc.Cell{}
	for _, c := range cells {
		if other, dup := seen[LockKey(c)]; dup {
			t.Errorf("%v and %v share a lock key", c, other)
		}
		seen[LockKey(c)] = c
		if back, ok := LockedCell(LockKey(c)); !ok || back != c {
			t.Errorf("the key of %v is of %v, %v", c, back, ok)
		}
	}
}
