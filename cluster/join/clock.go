package join

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"
)

// This file compares a fresh node's clock with those of the nodes that it is to found a
// cluster with, or to join. Whoever leads meta has timestamps follow its clock, and a
// mark that one bad clock has raised can't be taken back. The clocks come with answers to
// Hello; all of it runs on Enter's goroutine.

// ErrClock reports that this node's clock and those of the others differ by too much.
var ErrClock = errors.New("join: the clocks differ")

// clockReading is another node's clock beside this one's, at the middle of the question:
// halfway between asking and hearing is the best guess of when the other one looked.
type clockReading struct {
	addr string
	own  time.Time
	off  time.Duration // how far this node's clock is ahead of the other's
}

// readClock returns what an answer that came between began and ended says of the other
// node's clock. It returns false if the answer, of an earlier version, does not tell.
func readClock(addr string, began, ended time.Time, unixMs int64) (clockReading, bool) {
	middle := began.Add(ended.Sub(began) / 2)
	return clockReading{addr, middle, middle.Sub(time.UnixMilli(unixMs))}, unixMs != 0
}

// clock returns the time by this node's clock.
func (d *Membership) clock() time.Time {
	if d.cfg.Clock != nil {
		return d.cfg.Clock()
	}
	return time.Now()
}

// compareClocks refuses a clock that is off from most of the others' by more than the
// limit, and returns the readings that are off, the farthest last. Of two in the middle
// the nearer one counts: a node is not refused by one other's word against another's.
func (d *Membership) compareClocks(readings []clockReading) (off []clockReading, err error) {
	if d.cfg.MaxClockOff <= 0 || len(readings) == 0 {
		return nil, nil
	}
	sorted := slices.SortedFunc(slices.Values(readings), func(a, b clockReading) int {
		return cmp.Compare(a.off.Abs(), b.off.Abs())
	})
	if median := sorted[(len(sorted)-1)/2]; median.off.Abs() > d.cfg.MaxClockOff {
		return nil, fmt.Errorf("%w: %s", ErrClock, d.clockText(median))
	}
	first := slices.IndexFunc(sorted, func(r clockReading) bool {
		return r.off.Abs() > d.cfg.MaxClockOff
	})
	if first < 0 {
		return nil, nil
	}
	return sorted[first:], nil
}

// clockText describes both clocks and the limit.
func (d *Membership) clockText(r clockReading) string {
	const layout = "2006-01-02 15:04:05.000 MST"
	return fmt.Sprintf("it is %s here and %s at %s, and clocks may differ by %v at most; set the "+
		"one that is wrong, and start again",
		r.own.UTC().Format(layout), r.own.Add(-r.off).UTC().Format(layout), r.addr,
		d.cfg.MaxClockOff)
}

// joinClocks compares a fresh node's clock with those of the nodes of the cluster that it
// is to join. One that comes back is let in whatever it says: it is judged when it leads
// meta.
func (d *Membership) joinClocks(in []greeting) error {
	if !d.cfg.Self.Identity().Fresh() {
		return nil
	}
	var readings []clockReading
	for _, g := range in {
		if g.told {
			readings = append(readings, g.clock)
		}
	}
	_, err := d.compareClocks(readings)
	return err
}

// foundClocks compares the clocks of those that are to found a cluster together, once all
// are there. False: another node's is off, and there is no founding before that has gone,
// or has been set.
func (d *Membership) foundClocks(set []*freshNode) (ok bool, err error) {
	if len(set) != d.cfg.Expect {
		return true, nil
	}
	var readings []clockReading
	for _, f := range set {
		if f.told {
			readings = append(readings, f.clock)
		}
	}
	off, err := d.compareClocks(readings)
	if len(off) > 0 {
		d.say("waiting to found a cluster: the clock of a node is off", "clocks",
			d.clockText(off[len(off)-1]))
	}
	return err == nil && len(off) == 0, err
}
