package oracle

import (
	"errors"
	"sync/atomic"
	"testing"
)

// TestJudgedAsVotersJoin: the only voter's clock is not judged. When other voters join in the same
// term, it is judged before the next timestamp is granted, and again when more join. Catches
// BROKEN=lone_judged.
func TestJudgedAsVotersJoin(t *testing.T) {
	meta := &fakeMeta{term: 1, alone: true}
	var voters, judgements atomic.Int64
	ahead := errors.New("ahead")
	var wrong atomic.Bool
	o := spawn(t, meta, Config{
		Clock:  at(2026).Now,
		Voters: func() int { return int(voters.Load()) },
		Judge: func(_ uint64, then func(error)) {
			judgements.Add(1)
			if wrong.Load() {
				then(ahead)
				return
			}
			then(nil)
		},
	})
	take(t, o, 1)
	if n := judgements.Load(); n != 0 {
		t.Fatalf("the only voter was judged %d times", n)
	}
	meta.change(func() { meta.alone = false })
	voters.Store(2)
	wrong.Store(true)
	if ts, err := ask(o, 1); !errors.Is(err, ahead) {
		t.Fatalf("LONE-JUDGED: %d, %v in the term that it was alone in, and two others vote", ts,
			err)
	}
	wrong.Store(false)
	for range 3 {
		take(t, o, 1)
	}
	if n := judgements.Load(); n != 2 {
		t.Errorf("judged %d times with two other voters", n)
	}
	voters.Store(4)
	take(t, o, 1)
	voters.Store(2)
	take(t, o, 1)
	if n := judgements.Load(); n != 3 {
		t.Errorf("judged %d times after two more have come, and gone", n)
	}
}
