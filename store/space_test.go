package store_test

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/percolator-go/percolator/store"
)

// TestSpaceGoesAndComesBack: below the watermark clients' writes are refused, and operations that
// need space are refused in advance; when almost none is left, so are all others. Once there is
// enough again all are accepted. A disk whose free space cannot be read counts as full.
func TestSpaceGoesAndComesBack(t *testing.T) {
	const watermark = 100 << 20
	var free atomic.Uint64 // 0: unreadable
	free.Store(1 << 30)
	st := open(t, t.TempDir(), func(o *store.Options) {
		o.MinFreeBytes = watermark
		o.FreeBytes = func() (uint64, error) {
			if free.Load() == 0 {
				return 0, errors.New("no such disk")
			}
			return free.Load(), nil
		}
	})
	for _, tc := range []struct {
		free                     uint64
		room, blocked, exhausted bool
	}{
		{free: watermark + 10<<20, room: true},
		{free: watermark + 10<<20 - 1},
		{free: watermark - 1, blocked: true},
		{free: 1 << 20, blocked: true, exhausted: true},
		{free: 1 << 30, room: true},
		{free: 0, blocked: true, exhausted: true},
		{free: 1 << 30, room: true},
	} {
		free.Store(tc.free)
		room := st.Room(10 << 20) // it measures; the others report the last measurement
		for what, got := range map[string]struct {
			err  error
			full bool
		}{
			"room for 10 MiB": {room, !tc.room},
			"write":           {st.WriteBlocked(), tc.blocked},
			"any entry":       {st.Exhausted(), tc.exhausted},
		} {
			if got.full != errors.Is(got.err, store.ErrDiskFull) || !got.full && got.err != nil {
				t.Errorf("%+v: %s: %v", tc, what, got.err)
			}
		}
	}
}
