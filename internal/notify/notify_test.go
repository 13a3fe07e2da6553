package notify

import (
	"errors"
	"testing"

	"github.com/percolator-go/percolator/internal/mvcc"
)

func TestAckRoundTrip(t *testing.T) {
	for _, ts := range []mvcc.Timestamp{0, 1, 1 << 18, mvcc.MaxTimestamp} {
		got, err := DecodeAck(EncodeAck(ts))
		if err != nil || got != ts {
			t.Errorf("ack of %d came back as %d, %v", ts, got, err)
		}
	}
	if got, err := DecodeAck(nil); got != 0 || err != nil {
		t.Errorf("no acknowledgment is %d, %v", got, err)
	}
	if _, err := DecodeAck([]byte("short")); !errors.Is(err, ErrAck) {
		t.Errorf("malformed acknowledgment: %v", err)
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
