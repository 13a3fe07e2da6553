package simtest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Limits of the recovery, in virtual time. A correct cluster needs seconds.
const (
	// for the events to end: cancelling a drain may take minutes
	eventsPatience = 8 * time.Minute
	servePatience  = 2 * time.Minute // for all nodes to serve
	killPatience   = 5 * time.Minute // for the end of killed processes
)

// errNotHealed reports that the cluster does not recover although all faults have ended.
var errNotHealed = errors.New("simtest: the cluster does not recover from the faults")

// heal waits for the events to end, starts all nodes, and returns when they serve. If that exceeds its
// limits it kills all of them, so that the simulation can end.
func (c *Cluster) heal() error {
	if !within(eventsPatience, c.events.Wait) {
		return c.giveUp("events still run after %v", eventsPatience)
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

// missing returns the nodes that do not serve.
func (c *Cluster) missing() (out []int) {
	for _, m := range c.list() {
		if m.up() == nil {
			out = append(out, m.index)
		}
	}
	return out
}

// giveUp kills all nodes permanently.
func (c *Cluster) giveUp(format string, args ...any) error {
	err := fmt.Errorf("%w: %s, nodes %v of %d do not serve", errNotHealed,
		fmt.Sprintf(format, args...), c.missing(), len(c.list()))
	c.logf("%v", err)
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
	if !killed { // a bubble with goroutines ends only by a panic
		panic(fmt.Sprintf("%v; killed processes have not ended after %v\nlog:\n%s", err,
			killPatience, lines))
	}
	return err
}

// within runs fn and reports whether it returned in time; otherwise fn keeps running.
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
