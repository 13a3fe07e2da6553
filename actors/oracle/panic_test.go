package oracle

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/actorkit"
	"github.com/percolator-go/percolator/internal/mvcc"
)

// heldMeta is a meta tablet whose answers the test controls. A raise to panicAt panics.
type heldMeta struct {
	asked chan func(term, mark uint64, err error)
}

const panicAt = 13

func (h *heldMeta) Mark(raiseTo uint64, then func(term, mark uint64, err error)) {
	if raiseTo == panicAt {
		panic("a panic of the test")
	}
	h.asked <- then
}

func (h *heldMeta) Confirmed() (term, mark uint64, alone, ok bool) { return 0, 0, false, false }

func spawn(t *testing.T, meta Meta, cfg Config) *Oracle {
	t.Helper()
	system := actorkit.NewSystem(slog.New(slog.DiscardHandler))
	o, err := Spawn(system, meta, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := o.Stop(); err != nil {
			t.Error(err)
		}
		system.Shutdown()
	})
	return o
}

// TestConfirmationServesItsBatch: the oracle panics while the meta tablet confirms a batch. The
// confirmation arrives while a later batch waits and must not serve it: another node may have led,
// and granted timestamps, before that batch was requested. Catches BROKEN=late_confirmation.
func TestConfirmationServesItsBatch(t *testing.T) {
	meta := &heldMeta{asked: make(chan func(uint64, uint64, error), 8)}
	o := spawn(t, meta, Config{Clock: at(2026).Now})
	type answer struct {
		first mvcc.Timestamp
		err   error
	}
	request := func() <-chan answer {
		out := make(chan answer, 1)
		go func() {
			first, err := ask(o, 1)
			out <- answer{first, err}
		}()
		return out
	}
	first := request()
	late := <-meta.asked
	o.system.Root.Send(o.port.PID(), &raise{panicAt})
	if a := <-first; !errors.Is(a.err, errPanic) {
		t.Fatalf("the batch that a panic has ended was answered with %d, %v", a.first, a.err)
	}
	second := request() // takes over the term and raises the mark
	(<-meta.asked)(1, 0, nil)
	mark := uint64(mvcc.TimestampAt(at(2027).now.UnixMilli()))
	(<-meta.asked)(1, mark, nil)
	if a := <-second; a.err != nil {
		t.Fatal(a.err)
	}
	third := request()
	own := <-meta.asked
	late(1, mark, nil)
	o.system.Root.Send(o.port.PID(), &raise{1}) // queued behind it in the mailbox
	(<-meta.asked)(1, 0, nil)
	gone := errors.New("another node leads")
	own(0, 0, gone)
	if a := <-third; !errors.Is(a.err, gone) {
		t.Errorf("LATE-CONFIRMATION: %d, %v by the answer to a request from before the batch was closed", a.first, a.err)
	}
}

// TestDropKeepsTheTerm: after its memory was dropped the oracle still rejects earlier terms.
func TestDropKeepsTheTerm(t *testing.T) {
	c := at(2026)
	m := &memory{clock: c.Now}
	m.Lock()
	defer m.Unlock()
	mark := mvcc.TimestampAt(c.Now().UnixMilli())
	raised := func(term uint64) (mvcc.Timestamp, error) { // as the actor does it
		_, err := m.take(term, mark, 1)
		var low *markTooLow
		if !errors.As(err, &low) {
			return 0, err
		}
		mark = low.raiseTo
		return m.take(term, mark, 1)
	}
	first, err := raised(5)
	if err != nil {
		t.Fatal(err)
	}
	m.drop()
	if ts, err := raised(4); !errors.Is(err, errStale) {
		t.Errorf("%d, %v in term 4, after term 5", ts, err)
	}
	before := mark
	if again, err := raised(5); err != nil || again <= before {
		t.Errorf("%d, %v; the memory with %d in it was dropped, and the mark was %d", again, err,
			first, before)
	}
}

// TestPanicLeavesNoLock: a panic while timestamps are allocated fails the batch, and the next is
// served.
func TestPanicLeavesNoLock(t *testing.T) {
	var fail atomic.Bool
	o := spawn(t, &fakeMeta{term: 1}, Config{Clock: func() time.Time {
		if fail.Load() {
			panic("a clock that panics")
		}
		return at(2026).now
	}})
	take(t, o, 1)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for _, bad := range []bool{true, false} {
		fail.Store(bad)
		_, err := o.Port().Ask(ctx, &pb.TimestampsRequest{Count: 1}, false)
		if errors.Is(err, errPanic) != bad || !bad && err != nil {
			t.Errorf("with a clock that panics %v: %v", bad, err)
		}
	}
}
