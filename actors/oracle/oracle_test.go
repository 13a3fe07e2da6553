package oracle

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"testing"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/actorkit"
	"github.com/percolator-go/percolator/internal/mvcc"
)

// TestStrictlyIncreasing: ranges of all callers are disjoint and never pass the persisted mark.
func TestStrictlyIncreasing(t *testing.T) {
	for _, alone := range []bool{false, true} {
		t.Run(fmt.Sprintf("alone=%v", alone), func(t *testing.T) {
			strictlyIncreasing(t, &fakeMeta{term: 1, alone: alone})
		})
	}
}

// strictlyIncreasing: every other caller calls Now first.
func strictlyIncreasing(t *testing.T, meta *fakeMeta) {
	c := at(2026)
	o := start(t, meta, c)
	var mu sync.Mutex
	given := map[mvcc.Timestamp]bool{}
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			last := mvcc.Timestamp(0)
			for range 500 {
				n := mvcc.Timestamp(w + 1)
				first, ok := mvcc.Timestamp(0), false
				if c.move(5 * time.Millisecond); w%2 == 0 { // past the mark now and then
					first, ok = o.Now(int(n))
				}
				if !ok {
					first = take(t, o, uint32(n))
				}
				if first <= last {
					t.Errorf("%d after %d", first, last)
				}
				last = first + n - 1
				mu.Lock()
				for ts := first; ts <= last; ts++ {
					if given[ts] {
						t.Errorf("%d granted twice", ts)
					}
					given[ts] = true
				}
				mu.Unlock()
				meta.change(func() {
					if uint64(last) > meta.mark {
						t.Errorf("%d is above the persisted mark %d", last, meta.mark)
					}
				})
			}
		})
	}
	wg.Wait()
}

// TestOnlyVoterConfirmsAtOnce: an only voter's meta tablet receives a request only to raise the
// mark; otherwise its state is read. Once it does not report to lead it receives requests again,
// and another term drops the memory.
func TestOnlyVoterConfirmsAtOnce(t *testing.T) {
	meta := &fakeMeta{term: 1, alone: true}
	o := start(t, meta, at(2026))
	first := take(t, o, 1)
	var asked, confirmed int
	meta.change(func() { asked, confirmed = meta.asked, meta.confirmed })
	for range 10 {
		take(t, o, 1)
	}
	meta.change(func() {
		if meta.asked != asked || meta.confirmed != confirmed+10 {
			t.Errorf("10 requests one after the other: %d questions, %d looks", meta.asked-asked,
				meta.confirmed-confirmed)
		}
		meta.alone, meta.err = false, errors.New("lost")
	})
	if _, err := o.Port().Ask(context.Background(), &pb.TimestampsRequest{Count: 1},
		false); err == nil {
		t.Error("a timestamp without confirmation")
	}
	meta.change(func() { // another leader raised the mark
		meta.alone, meta.err, meta.term, meta.mark = true, nil, 3,
			meta.mark+uint64(mvcc.TimestampAt(60_000))
	})
	if next := take(t, o, 1); next <= first+mvcc.TimestampAt(60_000) {
		t.Errorf("%d in the new term after %d", next, first)
	}
}

// TestNowOnlyConfirmed: Now grants nothing from memory alone. Catches BROKEN=unconfirmed.
func TestNowOnlyConfirmed(t *testing.T) {
	meta := &fakeMeta{term: 1, alone: true}
	o := start(t, meta, at(2026))
	if _, ok := o.Now(1); ok {
		t.Error("a timestamp above the mark")
	}
	first := take(t, o, 1) // raises the mark
	if next, ok := o.Now(2); !ok || next <= first {
		t.Errorf("%d, %v after %d", next, ok, first)
	}
	meta.change(func() { meta.alone = false })
	if ts, ok := o.Now(1); ok {
		t.Errorf("UNCONFIRMED: %d was granted by a node that does not report that it leads", ts)
	}
	for _, n := range []int{-1, 0, MaxCount + 1} {
		if _, ok := o.Now(n); ok {
			t.Errorf("%d timestamps at once", n)
		}
	}
}

// TestStaleConfirmation: a delayed answer of the meta tablet is of an earlier term than the
// timestamps that Now has granted since; the actor requests confirmation again.
func TestStaleConfirmation(t *testing.T) {
	meta := &fakeMeta{term: 1, mark: uint64(mvcc.TimestampAt(at(2026).now.UnixMilli() + 10_000))}
	o := start(t, meta, at(2026))
	gate := make(chan struct{})
	meta.change(func() { meta.gate = gate })
	answer := make(chan mvcc.Timestamp, 1)
	go func() { answer <- take(t, o, 1) }()
	for asked := 0; asked == 0; runtime.Gosched() { // the answer of term 1 is in flight
		meta.change(func() { asked = meta.asked })
	}
	meta.change(func() { meta.alone, meta.gate, meta.term = true, nil, 3 })
	meta.change(func() { meta.mark += uint64(mvcc.TimestampAt(60_000)) })
	if _, ok := o.Now(1); ok { // term 3 begins above its mark
		t.Error("a timestamp above the mark")
	}
	meta.change(func() { meta.mark += uint64(mvcc.TimestampAt(60_000)) })
	now, ok := o.Now(1)
	if !ok {
		t.Fatal("nothing at once in term 3")
	}
	close(gate)
	if late := <-answer; late <= now {
		t.Errorf("%d by the answer of term 1, after %d in term 3", late, now)
	}
}

// TestNowHasTheMarkRaised: Now has the mark raised before timestamps run out, so that its callers
// never wait.
func TestNowHasTheMarkRaised(t *testing.T) {
	meta, c := &fakeMeta{term: 1, alone: true}, at(2026)
	o := start(t, meta, c)
	take(t, o, 1)
	var before uint64
	meta.change(func() { before = meta.mark })
	c.move(2 * time.Second) // of the 3 that the mark was ahead
	if _, ok := o.Now(1); !ok {
		t.Fatal("nothing at once below the mark")
	}
	take(t, o, 1) // queued behind the raise in the mailbox
	meta.change(func() {
		if meta.mark <= before {
			t.Errorf("the mark is still %d", meta.mark)
		}
	})
	c.move(2 * time.Second)
	if _, ok := o.Now(1); !ok {
		t.Error("nothing at once after the raise")
	}
}

// TestClockGoesBack: a wall clock that is set back, within one life or between two, does not
// decrease timestamps.
func TestClockGoesBack(t *testing.T) {
	meta, c := &fakeMeta{term: 1}, at(2026)
	first := take(t, start(t, meta, c), 1)
	c.move(-24 * time.Hour)
	o := start(t, meta, c) // the next life
	second := take(t, o, 1)
	c.move(-time.Hour)
	third := take(t, o, 1)
	if second <= first || third <= second {
		t.Errorf("%d, %d, %d", first, second, third)
	}
}

// TestNewTermStartsAboveTheMark: memory is valid for one term; after another leader's term
// timestamps start above the mark.
func TestNewTermStartsAboveTheMark(t *testing.T) {
	meta := &fakeMeta{term: 1}
	o := start(t, meta, at(2026))
	first := take(t, o, 1)
	var mark uint64
	meta.change(func() { // another node led in between and raised the mark
		meta.term, meta.mark = 3, meta.mark+uint64(mvcc.TimestampAt(60_000))
		mark = meta.mark
	})
	if next := take(t, o, 1); uint64(next) <= mark || next <= first {
		t.Errorf("%d is not above the mark %d of the other term", next, mark)
	}
}

// TestOneConfirmationABatch: leadership is confirmed once for all requests of a batch, after the
// batch was closed.
func TestOneConfirmationABatch(t *testing.T) {
	meta := &fakeMeta{term: 1}
	o := start(t, meta, at(2026))
	take(t, o, 1)
	gate := make(chan struct{})
	var before int
	meta.change(func() { meta.gate, before = gate, meta.asked })
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() { take(t, o, 1) })
	}
	for o.Port().Queued() < 100 { // all are waiting
		runtime.Gosched()
	}
	close(gate)
	wg.Wait()
	meta.change(func() {
		if n := meta.asked - before; n > 20 {
			t.Errorf("%d confirmations for 100 requests that waited together", n)
		}
	})
}

// TestNoLeaderNoTimestamp: without confirmation nothing is granted, and the caller receives an
// error.
func TestNoLeaderNoTimestamp(t *testing.T) {
	lost := errors.New("lost")
	meta := &fakeMeta{term: 1, err: lost}
	o := start(t, meta, at(2026))
	if _, err := o.Port().Ask(context.Background(), &pb.TimestampsRequest{Count: 1},
		false); !errors.Is(err, lost) {
		t.Errorf("got %v", err)
	}
	if _, err := o.Port().Ask(context.Background(), &pb.TimestampsRequest{Count: MaxCount + 1},
		false); err == nil {
		t.Error("a request for too many was served")
	}
}

// ask is take that returns the error.
func ask(o *Oracle, n uint32) (mvcc.Timestamp, error) {
	r, err := o.Port().Ask(context.Background(), &pb.TimestampsRequest{Count: n}, false)
	return mvcc.Timestamp(r.GetFirst()), err
}

// TestFailOver: two nodes' oracles share one meta tablet and lead it in turn; one clock is a minute
// ahead of the other. Timestamps increase from leader to leader. Catches BROKEN=reuse_timestamps.
func TestFailOver(t *testing.T) {
	ahead, behind := &fakeMeta{term: 1}, &fakeMeta{err: errors.New("not the leader")}
	clockA, clockB := at(2026), at(2026)
	clockA.move(time.Minute)
	a, b := start(t, ahead, clockA), start(t, behind, clockB)
	last := take(t, a, 1000) + 999
	if ts, err := ask(b, 1); err == nil {
		t.Fatalf("%d from a node that does not lead", ts)
	}
	for term := uint64(2); term < 6; term++ {
		from, to, now := ahead, behind, b
		if term%2 == 1 {
			from, to, now = behind, ahead, a
		}
		var mark uint64
		from.change(func() { mark, from.err = from.mark, errors.New("another leads") })
		to.change(func() { to.mark, to.term, to.err = mark, term, nil })
		first := take(t, now, 1000)
		if first <= last {
			t.Fatalf("REUSED-TIMESTAMPS: term %d begins at %d, and %d was granted before", term,
				first, last)
		}
		last = first + 999
	}
}

// TestMemoryGoesWithTheTerm: an oracle that loses and regains the leadership learns of another's
// timestamps from the mark alone. Catches BROKEN=keep_memory.
func TestMemoryGoesWithTheTerm(t *testing.T) {
	meta := &fakeMeta{term: 1}
	c := at(2026)
	o := start(t, meta, c)
	take(t, o, 10)
	// Another node, the leader of term 2, has raised the mark and granted timestamps up to it.
	var given mvcc.Timestamp
	meta.change(func() {
		meta.mark += uint64(mvcc.TimestampAt(3000))
		meta.term, given = 3, mvcc.Timestamp(meta.mark)
	})
	if first := take(t, o, 1); first <= given {
		t.Errorf("KEPT-MEMORY: %d in term 3, and term 2 may have granted all up to %d", first,
			given)
	}
}

// TestJudgedBeforeTheFirstTimestamp: in a term nothing is granted and no mark raised before the
// clock is accepted; callers receive an error, and their next requests are judged again. A term is
// judged once; the only voter is not.
func TestJudgedBeforeTheFirstTimestamp(t *testing.T) {
	meta := &fakeMeta{term: 1}
	bad, judged := errors.New("ahead"), []uint64{}
	var verdict error
	system := actorkit.NewSystem(slog.New(slog.DiscardHandler))
	o, err := Spawn(system, meta, Config{Clock: at(2026).Now,
		Judge: func(term uint64, then func(error)) {
			judged = append(judged, term) // in the actor's turn
			then(verdict)
		}})
	if err != nil {
		t.Fatal(err)
	}
	defer system.Shutdown()
	defer func() {
		if err := o.Stop(); err != nil {
			t.Error(err)
		}
	}()
	verdict = bad
	for range 2 {
		if ts, err := ask(o, 1); !errors.Is(err, bad) {
			t.Errorf("%d, %v before the clock was accepted", ts, err)
		}
	}
	meta.change(func() {
		if meta.mark != 0 {
			t.Errorf("the mark was raised to %d", meta.mark)
		}
	})
	verdict = nil
	for range 3 {
		take(t, o, 1)
	}
	meta.change(func() { meta.term = 2 })
	take(t, o, 1)
	if fmt.Sprint(judged) != "[1 1 1 2]" {
		t.Errorf("judged terms %v", judged)
	}
	meta.change(func() { meta.term, meta.alone = 3, true })
	take(t, o, 1)
	if len(judged) != 4 {
		t.Errorf("the only voter was judged: %v", judged)
	}
}
