package oracle

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
)

// fullMeta is a meta tablet whose mark cannot be raised while its disk is full.
type fullMeta struct {
	fakeMeta
	full bool
}

func (f *fullMeta) Mark(raiseTo uint64, then func(term, mark uint64, err error)) {
	refused := false
	f.change(func() { refused = f.full && raiseTo > f.mark })
	if refused {
		then(0, 0, fmt.Errorf("%w: test", ErrNoRoom))
		return
	}
	f.fakeMeta.Mark(raiseTo, then)
}

// TestTimestampsOnFullDisk: while the mark cannot be raised there are timestamps all the same, each
// the next one and below the mark; when there is room time goes on.
func TestTimestampsOnFullDisk(t *testing.T) {
	for _, alone := range []bool{false, true} {
		t.Run(fmt.Sprintf("alone=%v", alone), func(t *testing.T) {
			meta, c := &fullMeta{fakeMeta: fakeMeta{term: 1, alone: alone}}, at(2026)
			o := spawn(t, meta, Config{Clock: c.Now})
			last := take(t, o, 1)
			meta.change(func() { meta.full = true })
			mark := mvcc.Timestamp(meta.mark)
			for i := range 100 {
				c.move(100 * time.Millisecond) // far beyond the mark
				ts := take(t, o, 1)
				if ts <= last || ts >= mark {
					t.Fatalf("timestamp %d is %d after %d, the mark is %d", i, ts, last, mark)
				}
				last = ts
			}
			left := mark - last
			if _, err := o.Port().Ask(context.Background(), &pb.TimestampsRequest{Count: MaxCount}, false); err != nil && left > MaxCount {
				t.Errorf("%d below the mark are left: %v", left, err)
			}
			meta.change(func() { meta.full = false })
			c.move(time.Second)
			for first := mvcc.Timestamp(0); first < mark; {
				first = take(t, o, 1)
			}
		})
	}
}

// TestTimeGoesOnAfterFullDisk: time that stands still while much is left below the mark, as after a
// while without requests, goes on as soon as there is room.
func TestTimeGoesOnAfterFullDisk(t *testing.T) {
	meta, c := &fullMeta{fakeMeta: fakeMeta{term: 1}}, at(2026)
	o := spawn(t, meta, Config{Clock: c.Now})
	take(t, o, 1)
	meta.change(func() { meta.full = true })
	c.move(time.Minute)
	take(t, o, 1)
	meta.change(func() { meta.full = false })
	for range 100 { // the first few have the mark raised
		if take(t, o, 1) >= mvcc.TimestampAt(c.Now().UnixMilli()) {
			return
		}
	}
	t.Error("time stands still although there is room")
}

// TestNoTimestampsAboveMark: what is below the mark runs out, and is no more than that.
func TestNoTimestampsAboveMark(t *testing.T) {
	meta, c := &fullMeta{fakeMeta: fakeMeta{term: 1}}, at(2026)
	o := spawn(t, meta, Config{Clock: c.Now})
	take(t, o, 1)
	c.move(2900 * time.Millisecond)
	meta.change(func() { meta.full = true })
	mark := mvcc.Timestamp(meta.mark)
	c.move(99 * time.Millisecond)
	take(t, o, 1)
	c.move(time.Second)
	for n := 0; ; n++ {
		r, err := o.Port().Ask(context.Background(), &pb.TimestampsRequest{Count: MaxCount}, false)
		if err != nil {
			if !errors.Is(err, ErrNoRoom) || n == 0 {
				t.Errorf("after %d: %v", n, err)
			}
			return
		}
		if end := mvcc.Timestamp(r.First) + mvcc.Timestamp(r.Count); end > mark {
			t.Fatalf("timestamps up to %d, the mark is %d", end, mark)
		}
	}
}
