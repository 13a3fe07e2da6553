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

// TestNowUnderALease: a leader with a lease grants timestamps without a message once its clock has
// been judged for the term and its voters. Catches BROKEN=lease_unjudged.
func TestNowUnderALease(t *testing.T) {
	meta := &fakeMeta{term: 1, mark: 1, leased: true}
	var voters atomic.Int64
	voters.Store(2)
	o := spawn(t, meta, Config{
		Clock:  at(2026).Now,
		Voters: func() int { return int(voters.Load()) },
		Judge:  func(_ uint64, then func(error)) { then(nil) },
	})
	take(t, o, 1) // judges the clock, and raises the mark
	if _, ok := o.Now(1); !ok {
		t.Error("no timestamp under a lease")
	}
	voters.Store(4)
	if ts, ok := o.Now(1); ok {
		t.Errorf("LEASE-UNJUDGED: %d was granted, and the clock was not compared with two new voters'", ts)
	}
	take(t, o, 1)
	meta.change(func() { meta.term = 2 })
	if ts, ok := o.Now(1); ok {
		t.Errorf("LEASE-UNJUDGED: %d was granted in a term in which the clock was not judged", ts)
	}
	take(t, o, 1)
	meta.change(func() { meta.leased = false })
	if ts, ok := o.Now(1); ok {
		t.Errorf("%d was granted without a lease", ts)
	}
}
