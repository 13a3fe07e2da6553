package soak

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/handle"
)

// action is a kind of operation or fault.
type action struct {
	name   string
	weight int
	do     func(*soak, context.Context) error
}

var actions = []action{
	{"load", 6, func(s *soak, ctx context.Context) error { return s.load(ctx, 1+s.Rand.IntN(100)) }},
	{"edit", 8, func(s *soak, ctx context.Context) error { return s.edit(ctx, 1+s.Rand.IntN(300)) }},
	{"delete", 4, func(s *soak, ctx context.Context) error {
		return s.remove(ctx, 1+s.Rand.IntN(60))
	}},
	{"split", 2, (*soak).split},
	{"pause", 3, (*soak).pause},
	{"park", 2, (*soak).park},
	{"hold", 3, (*soak).hold},
	{"kill a client", 2, (*soak).killClient},
}

// choose picks an action by weight.
func (s *soak) choose() action {
	sum := 0
	for _, a := range actions {
		sum += a.weight
	}
	n := s.Rand.IntN(sum)
	for _, a := range actions {
		if n -= a.weight; n < 0 {
			return a
		}
	}
	return actions[0]
}

// load writes n new documents, or fewer, so that there are at most s.o.Docs.
func (s *soak) load(ctx context.Context, n int) error {
	if n = min(n, s.o.Docs-len(s.model.may)); n <= 0 {
		return nil
	}
	s.step("load %d documents", n)
	return s.write(ctx, s.drafts(s.model.fresh(n)))
}

// edit rewrites some documents, half of them twice.
func (s *soak) edit(ctx context.Context, n int) error {
	rows := s.model.pick(s.Rand, n)
	s.step("edit %d documents", len(rows))
	if err := s.write(ctx, s.drafts(rows)); err != nil {
		return err
	}
	return s.write(ctx, s.drafts(rows[:len(rows)/2]))
}

// remove deletes documents.
func (s *soak) remove(ctx context.Context, n int) error {
	rows := s.model.pick(s.Rand, n)
	s.step("delete %d documents", len(rows))
	writes := map[string]string{}
	for _, row := range rows {
		writes[row] = ""
	}
	if len(s.gone) < 100 {
		s.gone = append(s.gone, rows[:min(len(rows), 10)]...)
	}
	return s.write(ctx, writes)
}

func (s *soak) drafts(rows []string) map[string]string {
	writes := map[string]string{}
	for _, row := range rows {
		writes[row] = s.model.draft(s.Rand)
	}
	return writes
}

// write loads texts, each in a transaction, and records the acknowledged ones. Any failure fails
// the test.
func (s *soak) write(ctx context.Context, texts map[string]string) error {
	failed, err := s.attempt(ctx, texts)
	if err != nil {
		return err
	}
	for row, err := range failed {
		return violation("write %s while the node runs: %v", row, err)
	}
	return nil
}

// attempt is like write, but returns the texts whose outcome is unknown.
func (s *soak) attempt(ctx context.Context,
	texts map[string]string) (failed map[string]error, err error) {
	var mu sync.Mutex
	failed = map[string]error{}
	loader := s.DB.Loader(percolator.LoaderConfig{Workers: 16, Name: "soak"})
	for _, row := range slices.Sorted(maps.Keys(texts)) {
		value := texts[row]
		err := loader.LoadThen(ctx, func(_ context.Context, tx *percolator.Tx) error {
			put(tx, row, text, value)
			put(tx, mirrorRow(row), copied, value)
			return nil
		}, func(err error) {
			if err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed[row] = err
			}
		})
		if err != nil {
			return nil, errors.Join(err, loader.Close())
		}
	}
	if err := loader.Close(); err != nil {
		return nil, err
	}
	s.did[writes] += len(texts)
	for row, value := range texts {
		if failed[row] != nil {
			s.did[unknown]++
			s.model.tried(row, value)
		} else {
			s.model.wrote(row, value)
		}
	}
	return failed, nil
}

// killWhileWriting kills the node with -9 during writes and restarts it.
func (s *soak) killWhileWriting(ctx context.Context) error {
	texts, after := s.drafts(s.model.pick(s.Rand, 50+s.Rand.IntN(300))),
		time.Duration(s.Rand.IntN(400))*time.Millisecond
	s.step("kill the node %v after the begin of %d writes", after, len(texts))
	writing := make(chan error, 1)
	go func() { // joined below
		failed, err := s.attempt(ctx, texts)
		s.step("the outcome of %d writes is not known", len(failed))
		writing <- err
	}()
	timer := time.NewTimer(after)
	defer timer.Stop()
	<-timer.C
	s.did[kills]++
	killed := s.node.Kill()
	if killed == nil {
		killed = s.start(ctx)
	}
	if killed != nil {
		return errors.Join(killed, <-writing)
	}
	s.step("the node is ready after %v", s.took.Round(time.Millisecond))
	return errors.Join(<-writing, s.reach(ctx))
}

// reach waits until the client has reconnected: it pauses between attempts, and until then calls
// other than operations on tablets fail immediately.
func (s *soak) reach(ctx context.Context) error {
	var last error
	err := until(ctx, 10*lockTTL, func() (bool, error) {
		_, last = handle.Client(s.DB).Transport().NodeStatus(ctx)
		return last == nil, nil
	})
	return errors.Join(err, last)
}

// killClient kills a client during its commits.
func (s *soak) killClient(ctx context.Context) error {
	s.did[clientKills]++
	s.step("kill a client")
	return s.KillClient(ctx)
}

// split splits a table at a row that is in use or might be.
func (s *soak) split(ctx context.Context) error {
	if s.now[tablets] >= int64(s.o.Tablets) {
		return nil
	}
	table, row := docs, docRow(s.Rand.IntN(s.model.next+1))
	switch s.Rand.IntN(4) {
	case 0:
		table, row = mirror, mirrorRow(row)
	case 1:
		table, row = words, fmt.Sprintf("w%d", s.Rand.IntN(vocabulary))
	case 2:
		table, row = links, row+"/"+docRow(s.Rand.IntN(s.model.next+1))
	}
	s.step("split %s before %s", table, row)
	s.did[splits]++
	s.now[tablets]++
	return handle.Client(s.DB).Transport().SplitTablet(ctx, table, row)
}

// pause pauses an observer, writes, and resumes it: nothing runs during the pause, and everything
// after it.
func (s *soak) pause(ctx context.Context) error {
	name := observers[s.Rand.IntN(len(observers))]
	s.step("pause %s", name)
	if err := s.control(ctx, name, true); err != nil {
		return err
	}
	before, err := s.ended(ctx, name)
	if err != nil {
		return err
	}
	if err := s.write(ctx, s.drafts(s.model.pick(s.Rand, 1+s.Rand.IntN(100)))); err != nil {
		return err
	}
	after, err := s.observer(ctx, name)
	if err != nil {
		return err
	}
	if n := after.Runs - before; n != 0 {
		return violation("observer %s ran %d times while it was paused", name, n)
	}
	s.did[pauses]++
	s.step("resume %s", name)
	return s.control(ctx, name, false)
}

func (s *soak) control(ctx context.Context, name string, paused bool) error {
	_, err := handle.Client(s.DB).Admin().ControlObserver(ctx,
		&pb.ControlObserverRequest{Name: name, Paused: &paused})
	return err
}

// ended waits for the runs that began before the pause, and returns the total number of runs.
func (s *soak) ended(ctx context.Context, name string) (runs uint64, err error) {
	err = until(ctx, quiesceTimeout, func() (bool, error) {
		o, err := s.observer(ctx, name)
		if err != nil {
			return false, err
		}
		runs = o.Runs
		return o.Running == 0, nil
	})
	return runs, err
}

// observer returns the node's status of an observer.
func (s *soak) observer(ctx context.Context, name string) (*pb.ObserverStatus, error) {
	status, err := handle.Client(s.DB).Transport().NodeStatus(ctx)
	if err != nil {
		return nil, err
	}
	for _, o := range status.Observers {
		if o.Name == name {
			return o, nil
		}
	}
	return nil, fmt.Errorf("soak: the node does not run %s", name)
}

// park writes documents that "count" refuses until their notifications are parked, then replays
// those.
func (s *soak) park(ctx context.Context) error {
	// What an earlier call has replayed must have run before bad words are refused again.
	waiting, cancel := context.WithTimeout(ctx, quiesceTimeout)
	defer cancel()
	if err := s.DB.WaitIdle(waiting); err != nil {
		return fmt.Errorf("wait until idle, before parking: %w", err)
	}
	if err := s.refuse(ctx, "yes"); err != nil {
		return err
	}
	texts := s.drafts(s.model.pick(s.Rand, 1+s.Rand.IntN(8)))
	for row := range texts {
		texts[row] += " " + bad
	}
	s.step("park %d notifications", len(texts))
	if err := s.write(ctx, texts); err != nil {
		return err
	}
	var given []string
	err := until(ctx, quiesceTimeout, func() (done bool, err error) {
		given, err = leftovers(ctx, s.DB, true)
		return len(given) == len(texts), err
	})
	if err != nil {
		return violation("%d of %d notifications parked: %v\n%s", len(given), len(texts), err,
			few(given))
	}
	s.did[parked] += len(texts)
	if err := s.refuse(ctx, ""); err != nil {
		return err
	}
	n, err := handle.Client(s.DB).ReplayParked(ctx, "count", func(uint64) {})
	if err == nil && n != uint64(len(texts)) {
		err = violation("%d of %d parked notifications were replayed", n, len(texts))
	}
	return err
}

func (s *soak) refuse(ctx context.Context, value string) error {
	return s.DB.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
		put(tx, controlRow, refuse, value)
		return nil
	})
}
