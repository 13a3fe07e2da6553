package pending

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn/request"
	"github.com/percolator-go/percolator/internal/wire"
)

// Waits for the effects of commits: all observer runs that they cause, directly or indirectly
// (docs/adr/0042). A wait runs on its caller's goroutine and leaves no state in the client.

// Waits between queries about unfinished effects. They start short because most cascades take
// milliseconds, and stay short because the last run may end at any time; the duration of the
// queries bounds their rate.
const (
	effectsPause    = time.Millisecond
	effectsPauseMax = 20 * time.Millisecond
	// relinkEvery is the interval at which a wait refreshes the list of observers that no
	// process runs.
	relinkEvery = time.Second
)

// errNoEffects is the error for a node that does not implement the query.
var errNoEffects = request.Errorf("%w: the node that leads a tablet runs a release that cannot wait "+
	"for a commit's effects: start a later build on every node, and then run "+
	"`percolator cluster finalize`", request.ErrInvalid)

// effectsWait is one wait for the effects of commits up to a timestamp.
type effectsWait struct {
	o        *Observers
	until    mvcc.Timestamp
	unlinked []string
	asked    time.Time // when unlinked was last refreshed
}

// effectsWalk is the result of a walk over the tablets, each observed when nothing was pending
// there.
type effectsWalk struct {
	seen  map[wire.Position]*pb.EffectsResponse // by start of tablet
	again bool                                  // something changed since the previous walk
}

// WaitFor waits until all observer runs caused by commits up to the timestamp have ended,
// except those that no process can run. It returns what is left, by observer. It returns
// ErrInvalid if the oracle has not allocated the timestamp.
//
// A walk over the tablets is not atomic: a run may move work from a tablet not yet queried to one
// that has answered. So there are at least two walks, each of which continues until every tablet
// has reported that nothing is pending; the last one has found no change. Had anything been pending
// between the last two, one of them would have found its notification, or the notification was
// written after the tablet's answer to the first, which the second detects.
func (o *Observers) WaitFor(ctx context.Context,
	until mvcc.Timestamp) (map[string]*pb.ObserverPending, error) {
	if err := o.oracle.GivenOut(ctx, until); err != nil {
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
			// A process may run the observer by now.
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

// relink refreshes the list of observers that no process runs.
func (w *effectsWait) relink(ctx context.Context) (err error) {
	w.unlinked, err = w.o.unlinked(ctx)
	w.asked = time.Now()
	return err
}

// effectsAnswer is the answer of the tablet at a position.
type effectsAnswer struct {
	*pb.EffectsResponse
	at     wire.Position
	tablet *pb.TabletDescriptor
}

// walk queries every tablet, several at once, and then again those with pending work, until
// there is none. It queries these one after another: each query adds load to the
// nodes that do the runs it waits for, and the slowest tablet decides the total anyway.
func (w *effectsWait) walk(ctx context.Context, before *effectsWalk) (*effectsWalk, error) {
	now := &effectsWalk{seen: map[wire.Position]*pb.EffectsResponse{}}
	var mu sync.Mutex
	var waiting []effectsAnswer
	err := w.o.eachTablet(ctx, func(ctx context.Context, at wire.Position) (*pb.TabletDescriptor, error) {
		a, err := w.ask(ctx, at, before)
		if err != nil {
			return nil, err
		}
		mu.Lock()
		defer mu.Unlock()
		now.add(a, before)
		if a.Waiting {
			waiting = append(waiting, a)
		}
		return a.tablet, nil
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
		// The tablet may have been split since.
		until, bounded := wire.EndOf(a.tablet)
		for at, more := a.at, true; more; {
			last, err := w.askUntilDone(ctx, at, before)
			if err != nil {
				return nil, err
			}
			now.add(last, before)
			end, ends := wire.EndOf(last.tablet)
			at, more = end, ends && (!bounded || end.Less(until))
		}
	}
	return now, nil
}

// askUntilDone queries the tablet at the position until nothing is pending there.
func (w *effectsWait) askUntilDone(ctx context.Context, at wire.Position,
	before *effectsWalk) (effectsAnswer, error) {
	for pause, took := effectsPause, time.Duration(0); ; pause = min(2*pause, effectsPauseMax) {
		if err := request.Sleep(ctx, max(pause, took)); err != nil {
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

// ask queries the tablet at the position once.
func (w *effectsWait) ask(ctx context.Context, at wire.Position,
	before *effectsWalk) (effectsAnswer, error) {
	n, tablet, err := w.o.pendingAt(ctx, at, &pb.PendingRequest{
		Unlinked: w.unlinked,
		Effects:  &pb.EffectsRequest{Until: uint64(w.until), Since: before.seen[at].GetMark()},
	})
	if err == nil && n.GetEffects() == nil {
		err = errNoEffects
	}
	return effectsAnswer{n.GetEffects(), at, tablet}, err
}

// add records an answer. A change of the held work sets again, too: what no process was known to
// run may have run all the same, and its effects may be in any tablet.
func (w *effectsWalk) add(a effectsAnswer, before *effectsWalk) {
	w.again = w.again || a.Waiting || a.Written ||
		!slices.EqualFunc(a.Held, before.seen[a.at].GetHeld(),
			func(a, b *pb.ObserverPending) bool { return proto.Equal(a, b) })
	w.seen[a.at] = a.EffectsResponse
}

// held sums up the work that no process runs.
func (w *effectsWalk) held() map[string]*pb.ObserverPending {
	sum := map[string]*pb.ObserverPending{}
	for _, tablet := range w.seen {
		addPending(sum, tablet.Held)
	}
	return sum
}

// Settled reports whether the state at a timestamp includes all effects of the tables' observers
// for commits up to it. Without tables it means all observers. False may also mean unknown. One walk
// is enough: the timestamp is a fixed point, and a tablet records which runs ended after it.
func (o *Observers) Settled(ctx context.Context, at mvcc.Timestamp, tables []uint32) (bool, error) {
	unlinked, err := o.unlinked(ctx)
	if err != nil {
		return false, err
	}
	err = o.eachTablet(ctx, func(ctx context.Context, pos wire.Position) (*pb.TabletDescriptor, error) {
		n, tablet, err := o.pendingAt(ctx, pos, &pb.PendingRequest{
			Unlinked: unlinked,
			Effects:  &pb.EffectsRequest{Until: uint64(at), Tables: tables, Shown: true},
		})
		effects := n.GetEffects()
		switch {
		case err != nil:
			return nil, err
		case effects == nil:
			return nil, errNoEffects
		case effects.Waiting || effects.Hidden:
			return nil, errUnsettled
		}
		return tablet, nil
	})
	if errors.Is(err, errUnsettled) {
		return false, nil
	}
	return err == nil, err
}

// errUnsettled ends a walk that has found an effect missing from the snapshot.
var errUnsettled = errors.New("txn: not settled")
