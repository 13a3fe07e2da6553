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

// TestTimestampsOnFullDisk: while the mark cannot be raised, timestamps are still granted, each the
// next one below the mark; once there is space, time advances.
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
			if _, err := o.Port().Ask(context.Background(), &pb.TimestampsRequest{Count: MaxCount},
				false); err != nil && left > MaxCount {
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

// TestTimeGoesOnAfterFullDisk: time that stands still far below the mark, as after a period without
// requests, advances as soon as there is space.
func TestTimeGoesOnAfterFullDisk(t *testing.T) {
	meta, c := &fullMeta{fakeMeta: fakeMeta{term: 1}}, at(2026)
	o := spawn(t, meta, Config{Clock: c.Now})
	take(t, o, 1)
	meta.change(func() { meta.full = true })
	c.move(time.Minute)
	take(t, o, 1)
	meta.change(func() { meta.full = false })
	for range 100 { // the first few raise the mark
		if take(t, o, 1) >= mvcc.TimestampAt(c.Now().UnixMilli()) {
			return
		}
	}
	t.Error("time stands still although there is space")
}

// TestNoTimestampsAboveMark: the timestamps below the mark run out, and none is granted above it.
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

// TestTimeLeavesReserve: while the mark is being raised, advancing time leaves the reserve from
// which timestamps are granted when time stands still, at whatever moment one is requested.
func TestTimeLeavesReserve(t *testing.T) {
	for before := range 4 { // milliseconds before the mark
		c := at(2026)
		m := &memory{clock: c.Now}
		m.Lock()
		_, err := m.take(1, 0, 1)
		var low *markTooLow
		if !errors.As(err, &low) {
			t.Fatal(err)
		}
		mark := low.raiseTo
		if _, err := m.take(1, mark, 1); err != nil {
			t.Fatal(err)
		}
		c.move(3*time.Second - time.Duration(before)*time.Millisecond)
		if _, err := m.take(1, mark, 1); !errors.As(err, &low) || low.spent {
			t.Errorf("%d ms before the mark: %v", before, err)
		}
		m.frozen = true
		for i := range 1000 {
			if first, err := m.take(1, mark, MaxCount); err != nil || first+MaxCount > mark {
				t.Fatalf("%d ms before the mark timestamps %d are %d, %v", before, i, first, err)
			}
		}
		m.Unlock()
	}
}

// TestTwoRefusals: the mark is refused to a batch after it was refused in advance, both requested
// before. The batch is served from below the mark, like all others.
func TestTwoRefusals(t *testing.T) {
	meta, c := &heldMeta{asked: make(chan func(uint64, uint64, error), 8)}, at(2026)
	o := spawn(t, meta, Config{Clock: c.Now})
	refused := fmt.Errorf("%w: test", ErrNoRoom)
	answered := make(chan error, 1)
	request := func() {
		go func() { _, err := ask(o, 1); answered <- err }()
	}
	mark := uint64(mvcc.TimestampAt(c.Now().UnixMilli()+3000) + 1)
	request()
	(<-meta.asked)(1, 0, nil)
	(<-meta.asked)(1, mark, nil) // raised
	if err := <-answered; err != nil {
		t.Fatal(err)
	}
	c.move(2 * time.Second)
	request()
	(<-meta.asked)(1, mark, nil)
	if err := <-answered; err != nil {
		t.Fatal(err)
	}
	early := <-meta.asked
	c.move(2 * time.Second)
	request()
	(<-meta.asked)(1, mark, nil)
	own := <-meta.asked
	early(0, 0, refused)
	own(0, 0, refused)
	select {
	case confirm := <-meta.asked:
		confirm(1, mark, nil)
		if err := <-answered; err != nil {
			t.Error(err)
		}
	case err := <-answered:
		t.Errorf("two seconds of timestamps are left below the mark: %v", err)
	}
}
