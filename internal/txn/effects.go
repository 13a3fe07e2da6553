package txn

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// This file waits for all that a commit has set off (docs/adr/0042). A wait belongs to its
// caller's goroutine and keeps nothing in the client.

// Waits between questions about effects that are not there yet. They begin short, as most
// cascades take milliseconds, and stay short, as the last run may end at any time; what
// they cost is bounded by the time that the questions themselves take.
const (
	effectsPause    = time.Millisecond
	effectsPauseMax = 20 * time.Millisecond
	// relinkEvery is how often a wait looks again which observers no process runs.
	relinkEvery = time.Second
)

// errNoEffects is the answer of a node that does not know what is asked.
var errNoEffects = Errorf("%w: the node that leads a tablet is of a release that can't wait "+
	"for a commit's effects: start a later build on every node, and then run "+
	"`percolator cluster finalize`", ErrInvalid)

// effectsWait is one wait for the effects of commits up to a timestamp.
type effectsWait struct {
	o        *observers
	until    mvcc.Timestamp
	unlinked []string
	asked    time.Time // when unlinked was
}

// effectsWalk is what a walk over the tablets has found while nothing waited there.
type effectsWalk struct {
	seen  map[wire.Position]*pb.EffectsResponse // by where tablets begin
	again bool                                  // something has happened since the walk before
}

// WaitFor returns when all that goes back to commits up to the timestamp has been run or
// waits for nobody: then it returns what does, by observer. ErrInvalid if the timestamp has
// not been given out yet.
//
// One walk over the tablets is not one moment: a run may move work from a tablet that is
// yet to be asked to one that has answered. So there are two, each of which goes on until
// every tablet has said that it has nothing. Had anything been left at a moment between
// the two, its notification had either been met by one of them or been written after the
// first walk's mark, and the second would know.
func (o *observers) WaitFor(ctx context.Context,
	until mvcc.Timestamp) (map[string]*pb.ObserverPending, error) {
	if err := o.oracle.givenOut(ctx, until); err != nil {
		return nil, err
	}
	w := &effectsWait{o: o, until: until}
	if err := w.relink(ctx); err != nil {
		return nil, err
	}
	before := &effectsWalk{}
	for {
		now, err := w.walk(ctx, before)
		if err != nil {
			return nil, err
		}
		held, linked := now.held(), w.unlinked
		if !now.again && slices.ContainsFunc(linked, func(name string) bool {
			return held[name] != nil
		}) {
			// Somebody may run it by now.
			if err := w.relink(ctx); err != nil {
				return nil, err
			}
			now.again = !slices.Equal(w.unlinked, linked)
		}
		if !now.again {
			return held, nil
		}
		before = now
	}
}

// relink asks which observers no process runs.
func (w *effectsWait) relink(ctx context.Context) (err error) {
	w.unlinked, err = w.o.unlinked(ctx)
	w.asked = time.Now()
	return err
}

// effectsAnswer is what the tablet at a position has answered, and where it ends, if it
// is not the last.
type effectsAnswer struct {
	*pb.EffectsResponse
	at, end wire.Position
	bounded bool
}

// walk asks every tablet, several at once, and then those again where something waited, until
// nothing does. Those are asked one after another: each question is work for those who are
// waited for, and whoever has to be waited for longest decides.
func (w *effectsWait) walk(ctx context.Context, before *effectsWalk) (*effectsWalk, error) {
	now := &effectsWalk{seen: map[wire.Position]*pb.EffectsResponse{}}
	var mu sync.Mutex
	var waiting []effectsAnswer
	err := w.o.eachTablet(ctx, func(ctx context.Context,
		at wire.Position) (end wire.Position, bounded bool, err error) {
		a, err := w.ask(ctx, at, before)
		if err != nil {
			return end, false, err
		}
		mu.Lock()
		defer mu.Unlock()
		now.add(a, before)
		if a.Waiting {
			waiting = append(waiting, a)
		}
		return a.end, a.bounded, nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(waiting, func(a, b effectsAnswer) int {
		if a.at.Less(b.at) {
			return -1
		}
		return 1
	})
	for _, a := range waiting {
		// It may have been split since.
		for at, more := a.at, true; more; {
			last, err := w.askUntilDone(ctx, at, before)
			if err != nil {
				return nil, err
			}
			now.add(last, before)
			at, more = last.end, last.bounded && (!a.bounded || last.end.Less(a.end))
		}
	}
	return now, nil
}

// askUntilDone asks the tablet at the position again until nothing waits there.
func (w *effectsWait) askUntilDone(ctx context.Context, at wire.Position,
	before *effectsWalk) (effectsAnswer, error) {
	for pause, took := effectsPause, time.Duration(0); ; pause = min(2*pause, effectsPauseMax) {
		if err := Sleep(ctx, max(pause, took)); err != nil {
			return effectsAnswer{}, err
		}
		if time.Since(w.asked) >= relinkEvery {
			if err := w.relink(ctx); err != nil {
				return effectsAnswer{}, err
			}
		}
		began := time.Now()
		a, err := w.ask(ctx, at, before)
		if err != nil || !a.Waiting {
			return a, err
		}
		took = time.Since(began)
	}
}

// ask asks the tablet at the position once.
func (w *effectsWait) ask(ctx context.Context, at wire.Position,
	before *effectsWalk) (effectsAnswer, error) {
	n, end, bounded, err := w.o.pendingAt(ctx, at, &pb.PendingRequest{
		Unlinked: w.unlinked,
		Effects:  &pb.EffectsRequest{Until: uint64(w.until), Since: before.seen[at].GetMark()},
	})
	if err == nil && n.GetEffects() == nil {
		err = errNoEffects
	}
	return effectsAnswer{n.GetEffects(), at, end, bounded}, err
}

// add takes an answer in. What waits for nobody may have been run all the same, and what it
// has set off may be anywhere.
func (w *effectsWalk) add(a effectsAnswer, before *effectsWalk) {
	w.again = w.again || a.Waiting || a.Written ||
		!slices.EqualFunc(a.Held, before.seen[a.at].GetHeld(),
			func(a, b *pb.ObserverPending) bool { return proto.Equal(a, b) })
	w.seen[a.at] = a.EffectsResponse
}

// held sums up what waits for nobody.
func (w *effectsWalk) held() map[string]*pb.ObserverPending {
	sum := map[string]*pb.ObserverPending{}
	for _, tablet := range w.seen {
		addPending(sum, tablet.Held)
	}
	return sum
}

// Settled reports whether the tables' observers had committed by the snapshot's timestamp
// all that they do for commits up to there; no table: all observers. False may also mean that
// it is not known. One walk is enough: the timestamp is one moment, and a tablet knows what
// has ended after it.
func (s *Snapshot) Settled(ctx context.Context, tables ...string) (bool, error) {
	if s.ended.Load() {
		return false, Errorf("%w: snapshot", ErrClosed)
	}
	ids := make([]uint32, len(tables))
	for i, name := range tables {
		id, err := s.c.meta.TableID(ctx, name)
		if err != nil {
			return false, err
		}
		ids[i] = uint32(id)
	}
	unlinked, err := s.c.observers.unlinked(ctx)
	if err != nil {
		return false, err
	}
	err = s.c.observers.eachTablet(ctx, func(ctx context.Context,
		at wire.Position) (wire.Position, bool, error) {
		n, end, bounded, err := s.c.observers.pendingAt(ctx, at, &pb.PendingRequest{
			Unlinked: unlinked,
			Effects:  &pb.EffectsRequest{Until: uint64(s.at), Tables: ids, Shown: true},
		})
		effects := n.GetEffects()
		switch {
		case err != nil:
			return end, false, err
		case effects == nil:
			return end, false, errNoEffects
		case effects.Waiting || effects.Hidden:
			return end, false, errUnsettled
		}
		return end, bounded, nil
	})
	if errors.Is(err, errUnsettled) {
		return false, nil
	}
	return err == nil, err
}

// errUnsettled ends a walk that has found something that a snapshot does not show.
var errUnsettled = errors.New("txn: not settled")
