package writers

import (
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/percolator-go/percolator/internal/actorkit"
	"github.com/percolator-go/percolator/store"
	"github.com/percolator-go/percolator/store/raftlog"
)

// Implementation of the two actors. Only their own turns touch their fields, except for counters.

// writer is the log actor or the state actor. They differ in what commit does.
type writer struct {
	commit func([]*Write) error // commits all of the writes, or none and returns an error
	batch  *actorkit.Batcher[*Write]
	// The first error, other than those of single writes and store.ErrDiskFull. Nothing is written
	// after it.
	failed   error
	counters *counters
	logger   *slog.Logger

	wake     func(m any) // sends the actor a message
	waiting  []*Write    // for disk space or another resource for files, in order
	retrying bool        // a retry is scheduled
	givenUp  bool        // writes no longer wait for disk space or the like
}

// retry triggers another attempt at the writes that wait for disk space or another resource.
type retry struct{}

// giveUp is the message of Pair.GiveUp.
type giveUp struct{}

// retryInterval is the interval of retries while writes wait for disk space.
const retryInterval = 200 * time.Millisecond

// Receive coalesces writes.
func (r *writer) Receive(c actor.Context) {
	switch m := c.Message().(type) {
	case *Write:
		if r.batch.Add(c, m, m.size()) {
			r.flush()
		}
	case *actorkit.Flush:
		if r.batch.Due(m) {
			r.flush()
		}
	case *retry:
		r.retrying = false
		r.flush()
	case *giveUp:
		r.givenUp = true
		r.flush()
	case *actor.Started:
		self, root := c.Self(), c.ActorSystem().Root
		r.wake = func(m any) { root.Send(self, m) }
	case *actor.Stopping:
		r.givenUp = true
		r.flush()
	}
}

// flush writes the entries that wait for disk space and then the collected ones. Entries that do
// not fit stay, and so do all later ones: Raft does not emit them again, and later writes depend
// on them.
func (r *writer) flush() {
	writes := r.batch.Take()
	if len(r.waiting) > 0 {
		if writes = append(r.waiting, writes...); r.retrying && !r.givenUp {
			r.waiting = writes
			return
		}
		r.waiting = nil
	}
	for len(writes) > 0 {
		// A fence ends its commit, so that nothing sent later is visible when its Done
		// runs.
		n := slices.IndexFunc(writes, func(w *Write) bool { return w.Fence }) + 1
		if n == 0 {
			n = len(writes)
		}
		if rest, err := r.write(writes[:n]); err != nil {
			r.awaitRoom(append(rest, writes[n:]...), err)
			return
		}
		writes = writes[n:]
	}
	if r.counters.full.Swap(false) {
		r.logger.Info("the store accepts writes again: the waiting ones are written")
	}
}

// write commits the writes together and answers each. If the disk is full it returns the
// error and the writes that were not committed.
func (r *writer) write(writes []*Write) (rest []*Write, err error) {
	if writes = r.dropRefused(writes); len(writes) == 0 {
		return nil, nil
	}
	if err = r.failed; err == nil {
		began := time.Now()
		err = r.commit(writes)
		if len(writes) > 1 || !writes[0].empty() {
			r.counters.took.Since(began)
		}
	}
	full := errors.Is(err, store.ErrDiskFull)
	switch {
	case full && len(writes) == 1:
		return writes, err
	case !full && !refused(err):
		if err != nil && r.failed == nil {
			r.failed = err
			r.logger.Error("the store refused a write; this node's tablets stop", "error", err)
		}
		r.observe(writes)
		for _, w := range writes {
			r.answer(w, r.failed)
		}
		return nil, nil
	case len(writes) == 1:
		r.logger.Error("a write was refused; its tablet stops on this node", "error", err)
		writes[0].Stream.refuse(err)
		r.answer(writes[0], err)
		return nil, nil
	}
	half := len(writes) / 2 // one of them is refused, or the store has room for only the first ones
	if rest, err = r.write(writes[:half]); err != nil {
		return append(rest, writes[half:]...), err
	}
	return r.write(writes[half:])
}

// observe counts a batch, without its writes that have nothing to write.
func (r *writer) observe(writes []*Write) {
	n := 0
	for _, w := range writes {
		if !w.empty() {
			n++
		}
	}
	if n > 0 {
		r.counters.batches.Observe(n)
	}
}

// answer ends a write.
func (r *writer) answer(w *Write, err error) {
	r.counters.queued.Add(-1)
	w.Done(err)
}

// refused reports whether the error concerns a single write, so that no retry can succeed.
func refused(err error) bool {
	if errors.Is(err, store.ErrFailed) {
		return false
	}
	return errors.Is(err, store.ErrBatchTooLarge) || errors.Is(err, raftlog.ErrBatchTooLarge) ||
		errors.Is(err, raftlog.ErrInvalid)
}

// dropRefused answers the writes of streams with a refused write, and returns the others.
func (r *writer) dropRefused(writes []*Write) []*Write {
	return slices.DeleteFunc(writes, func(w *Write) bool {
		err := w.Stream.err()
		if err != nil {
			r.answer(w, err)
		}
		return err != nil
	})
}

// awaitRoom keeps the writes that the disk has no space for and retries after
// retryInterval. After GiveUp it refuses them instead.
func (r *writer) awaitRoom(writes []*Write, err error) {
	if r.givenUp {
		for _, w := range writes {
			w.Stream.refuse(err)
			r.answer(w, err)
		}
		return
	}
	r.waiting = writes
	if !r.counters.full.Swap(true) {
		r.logger.Error("the store lacks disk space or another resource for files: writes wait",
			"error", err)
	}
	if !r.retrying {
		r.retrying = true
		wake := r.wake
		time.AfterFunc(retryInterval, func() { wake(&retry{}) })
	}
}
