package simtest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Bounds of the way back to health, in virtual time. A cluster that keeps its promises
// needs seconds.
const (
	// for the events to end: one that drains takes its node back for minutes at most
	eventsPatience = 8 * time.Minute
	servePatience  = 2 * time.Minute // for all nodes to serve
	killPatience   = 5 * time.Minute // for the end of what has been killed
)

// errNotHealed reports that the cluster does not come back although nothing is wrong with it
// any more.
var errNotHealed = errors.New("simtest: the cluster does not recover from the faults")

// heal waits for the events to end, starts all nodes, and returns when they serve. If
// that takes too long all of them are killed, so that the simulation can end.
func (c *Cluster) heal() error {
	if !within(eventsPatience, c.events.Wait) {
		return c.giveUp("their events go on after %v", eventsPatience)
	}
	c.network.heal()
	if !within(servePatience, c.startAll) || len(c.missing()) > 0 {
		return c.giveUp("%v later", servePatience)
	}
	return nil
}

func (c *Cluster) startAll() {
	var wg sync.WaitGroup
	for _, m := range c.list() {
		wg.Go(func() { c.fail(m.start()) })
	}
	wg.Wait()
}

// missing are the nodes that do not serve.
func (c *Cluster) missing() (out []int) {
	for _, m := range c.list() {
		if m.up() == nil {
			out = append(out, m.index)
		}
	}
	return out
}

// giveUp kills all nodes, none of which starts again.
func (c *Cluster) giveUp(format string, args ...any) error {
	err := fmt.Errorf("%w: %s, nodes %v of %d do not serve", errNotHealed,
		fmt.Sprintf(format, args...), c.missing(), len(c.list()))
	c.say("%v", err)
	lines := c.log.String()
	c.over.Store(true)
	killed := within(killPatience, func() {
		var wg sync.WaitGroup
		for _, m := range slices.Backward(c.list()) {
			wg.Go(func() { c.fail(m.crash(false)) })
		}
		wg.Wait()
		c.events.Wait()
	})
	if !killed { // nothing can end this bubble any more
		panic(fmt.Sprintf("%v; and what was killed has not ended after %v\nlog:\n%s", err,
			killPatience, lines))
	}
	return err
}

// within runs fn, and reports whether it has returned in time; if not it is left alone.
func within(limit time.Duration, fn func()) bool {
	done := make(chan struct{})
	go func() { defer close(done); fn() }()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}
