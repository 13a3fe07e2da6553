package scanner

import (
	"context"
	"sync"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/notify"
	"github.com/percolator-go/percolator/internal/wire"
)

// Survey reports clean tablets to save walks. It may be outdated or wrong; rechecks limit the
// time for which it can hide a cell.
type Survey interface {
	// Look returns the reports of tablets' leaders that are at most age old. It may request them.
	Look(ctx context.Context, age time.Duration) View
	// Settled reports whether a tablet led on this node certainly holds neither locks, apart from
	// reservations, nor weak intents.
	Settled(tablet uint64) bool
	// SettledVersion changes when results of Settled change, or the tablets led here. It is never
	// 0.
	SettledVersion() uint64
}

// View is the result of a survey. It is safe for concurrent use.
type View interface {
	// Clean reports whether the tablet's leader reports no dirty cell other than parked ones.
	Clean(tablet uint64) bool
	// Scanning returns the number of nodes, including this one, that scan for dirty cells of the
	// target.
	Scanning(target notify.Target) int
	// Version is equal in two views only if they agree about all tablets. It is never 0.
	Version() uint64
}

// choice caches the tablets that a survey leaves to be walked. A node's scanners share it, so
// that an idle node does not iterate over its tablets in every turn. It is safe for concurrent
// use.
type choice struct {
	again *rechecks

	mu      sync.Mutex
	version uint64 // version of the view from which last was made; 0 before the first
	last    *chosen
}

// chosen is immutable.
type chosen struct {
	observed []*pb.TabletDescriptor
	clean    []bool                 // by index in observed
	dirty    []*pb.TabletDescriptor // tablets in observed that are not clean
}

// of returns the tablets observed for the targets, and which of them the view reports as clean.
// tablets returns all tablets.
func (c *choice) of(view View, targets []notify.Target,
	tablets func() ([]*pb.TabletDescriptor, error)) (*chosen, error) {
	version := view.Version() // read first: later changes of the view then have a later version
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.version == version {
		return c.last, nil
	}
	all, err := tablets()
	if err != nil {
		return nil, err
	}
	out := &chosen{}
	for _, d := range all {
		if !observes(d, targets) {
			continue
		}
		clean := view.Clean(d.GetTabletId())
		out.observed, out.clean = append(out.observed, d), append(out.clean, clean)
		if !clean {
			out.dirty = append(out.dirty, d)
		}
	}
	c.version, c.last = version, out
	return out, nil
}

// observes reports whether the tablet holds rows of a target's table.
func observes(d *pb.TabletDescriptor, targets []notify.Target) bool {
	for _, t := range targets {
		if _, ok := wire.Clip(d, mvcc.Span{Table: t.Table}); ok {
			return true
		}
	}
	return false
}

// choose returns the tablets that may be dirty, and those of the clean ones that are due to be
// walked again. Without a survey all tablets may be dirty.
func (s *scan) choose(ctx context.Context) (dirty, again []*pb.TabletDescriptor, err error) {
	tablets := func() ([]*pb.TabletDescriptor, error) {
		ctx, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		return s.cfg.Places.Tablets(ctx, false)
	}
	if s.cfg.Survey == nil {
		dirty, err = tablets()
		return dirty, nil, err
	}
	// A scanner that finds work needs newer answers. A node's scanners share the answers that
	// one of them has asked for.
	view := s.cfg.Survey.Look(ctx, max(s.pause/2, s.cfg.PaceMin))
	c, err := s.choice.of(view, s.cfg.Targets, tablets)
	if err != nil {
		return nil, nil, err
	}
	nodes := view.Scanning(s.cfg.Targets[0])
	for _, t := range s.cfg.Targets[1:] {
		nodes = min(nodes, view.Scanning(t))
	}
	all := len(c.observed)
	first, count := s.choice.again.take(s.cfg.Now(), all, nodes, 1)
	for i := range count {
		if i = (first + i) % all; c.clean[i] {
			again = append(again, c.observed[i])
		}
	}
	s.stats.Clean.Add(uint64(all - len(c.dirty) - len(again)))
	return c.dirty, again, nil
}
