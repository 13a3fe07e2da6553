package join

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Comparison of a fresh node's clock with those of the nodes that it founds a cluster with or
// joins. The leader of meta derives timestamps from its clock, and a timestamp raised by one
// wrong clock cannot be lowered. The clocks come with responses to Hello; the comparison
// runs on Enter's goroutine.

// ErrClock reports that the difference between this node's clock and the others' exceeds the
// limit.
var ErrClock = errors.New("join: the clocks differ")

// clockReading compares another node's clock with this node's at the midpoint between request and
// response, the best estimate of when the other node read its clock.
type clockReading struct {
	addr string
	own  time.Time     // zero: the response, of an earlier version, has no time
	off  time.Duration // how far this node's clock is ahead of the other's; negative: behind
}

// readClock returns the reading from a response received between began and ended.
func readClock(addr string, began, ended time.Time, unixMs int64) clockReading {
	if unixMs == 0 {
		return clockReading{}
	}
	middle := began.Add(ended.Sub(began) / 2)
	return clockReading{addr, middle, middle.Sub(time.UnixMilli(unixMs))}
}

// clock returns the time by this node's clock.
func (d *Membership) clock() time.Time {
	if d.cfg.Clock != nil {
		return d.cfg.Clock()
	}
	return time.Now()
}

// compareClocks returns ErrClock if this clock differs from most of the others' by more than the
// limit, and otherwise the readings that differ, the farthest last. Of two middle readings the
// nearer one counts: of two other nodes both must differ. A single other node suffices.
func (d *Membership) compareClocks(readings []clockReading) (off []clockReading, err error) {
	readings = slices.DeleteFunc(readings, func(r clockReading) bool { return r.own.IsZero() })
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
	return fmt.Sprintf("it is %s here and %s at %s, and the difference may be at most %v; set the "+
		"wrong clock and start again",
		r.own.UTC().Format(layout), r.own.Add(-r.off).UTC().Format(layout), r.addr,
		d.cfg.MaxClockOff)
}

// joinClocks compares a fresh node's clock with those of the cluster that it joins. A returning
// node is admitted regardless: its clock is checked when it leads meta.
func (d *Membership) joinClocks(in []helloResult) error {
	if !d.cfg.Self.Identity().Fresh() {
		return nil
	}
	var readings []clockReading
	for _, g := range in {
		readings = append(readings, g.clock)
	}
	_, err := d.compareClocks(readings)
	return err
}

// foundClocks compares the clocks of the nodes that found a cluster together, once all have
// responded. It returns false while another node's clock differs.
func (d *Membership) foundClocks(set []*freshNode) (ok bool, err error) {
	if len(set) != d.cfg.Expect {
		return true, nil
	}
	var readings []clockReading
	for _, f := range set {
		readings = append(readings, f.clock)
	}
	off, err := d.compareClocks(readings)
	if len(off) > 0 {
		d.say("waiting to found a cluster: the clock of a node is off", "clocks",
			d.clockText(off[len(off)-1]))
	}
	return err == nil && len(off) == 0, err
}
