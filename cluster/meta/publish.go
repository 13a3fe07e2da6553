package meta

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster/route"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/wire"
)

// This file gives the newest catalogue to every tablet. The node that has written a version
// sends it to all tablets, again and again to those that are away, and then notes in meta,
// in rowTold, that all have it. A version that is not noted is sent by each node that
// starts and by the node that leads meta (node/registration.go). Several goroutines may do
// so at once: a tablet keeps the newest version that it was given, and the note only rises.

// ErrUntold is the error of a change of the catalogue, or of Sync, that is durable in
// meta, while some tablets could not be told in time. Sync goes on with it.
var ErrUntold = errors.New("meta: not every tablet has been told of the newest observers and " +
	"dropped tables")

// rowTold is the row with the newest catalogue version that every tablet is known to
// have, as 8 bytes, big-endian.
const rowTold = "told"

// publisher gives catalogues to tablets.
type publisher struct {
	records
	router *route.Router
	// published is the newest catalogue version that this process itself has told every
	// tablet.
	published atomic.Uint64
}

const (
	// pushAttempt bounds the wait for one tablet in one round: one that has no leader
	// must not keep others waiting.
	pushAttempt = 2 * time.Second
	// pushAtOnce is how many tablets are told at the same time.
	pushAtOnce = 32
	// pushPause is the first pause between rounds, maxPushPause the longest.
	pushPause    = 10 * time.Millisecond
	maxPushPause = 5 * time.Second
)

// toldVersion returns the newest catalogue version that every tablet is known to have, 0
// if none is, and the bytes of the note.
func (p *publisher) toldVersion(ctx context.Context) (version uint64, value []byte, err error) {
	value, err = p.get(ctx, rowTold)
	if err != nil || value == nil {
		return 0, value, err
	}
	if len(value) != 8 {
		return 0, value, fmt.Errorf("meta: record %s is damaged", rowTold)
	}
	return binary.BigEndian.Uint64(value), value, nil
}

// publish gives the catalogue to every tablet and then notes that they have it. If that is
// noted already it does nothing.
func (p *publisher) publish(ctx context.Context, c *pb.Catalogue) error {
	if told, _, err := p.toldVersion(ctx); err != nil || told >= c.Version {
		return err
	}
	if err := p.push(ctx, c); err != nil {
		return err
	}
	p.raisePublished(c.Version)
	_ = p.noteTold(ctx, c.Version) // without the note the tablets are told once more
	return nil
}

// raisePublished notes that this process has told every tablet the version. Several
// goroutines may raise it at once; it never falls.
func (p *publisher) raisePublished(version uint64) {
	for {
		before := p.published.Load()
		if before >= version || p.published.CompareAndSwap(before, version) {
			return
		}
	}
}

// noteTold raises the note in meta to the version, unless it is that high already.
func (p *publisher) noteTold(ctx context.Context, version uint64) error {
	return retry(ctx, func() (bool, error) {
		told, old, err := p.toldVersion(ctx)
		if err != nil || told >= version {
			return true, err
		}
		return p.swap(ctx, change{
			row: rowTold, old: old, value: binary.BigEndian.AppendUint64(nil, version),
		})
	})
}

// push gives the catalogue to every tablet of user tables, in rounds, until the tablets
// that have taken it cover the whole key space, or ctx ends. Coverage is what counts, not
// a list of tablets: a split inherits the version, so a tablet made after its parent was
// asked has it.
func (p *publisher) push(ctx context.Context, c *pb.Catalogue) error {
	left := []gap{{from: wire.Position{Table: mvcc.FirstUserTable}}}
	for wait := pushPause; ; wait = min(2*wait, maxPushPause) {
		r := &pushRound{publisher: p, catalogue: c}
		if err := r.run(ctx, left); err != nil {
			return err
		}
		if left = uncovered(left, r.taken); len(left) == 0 {
			return nil
		}
		if err := txn.Sleep(ctx, wait); err != nil {
			return fmt.Errorf("%w: %s: %w", ErrUntold, r.missing(), err)
		}
	}
}

// pushRound asks each tablet of some ranges once. Up to pushAtOnce questions are under
// way, each on a goroutine of its own; run joins them.
type pushRound struct {
	publisher *publisher
	catalogue *pb.Catalogue

	mu     sync.Mutex
	taken  []*pb.TabletDescriptor // those that have it now
	failed []uint64               // those that did not answer
	why    error                  // of the first of them to fail
}

// run asks the tablets that the router knows in the ranges. An error is one that another
// round cannot help.
func (r *pushRound) run(ctx context.Context, ranges []gap) error {
	group, within := errgroup.WithContext(ctx)
	group.SetLimit(pushAtOnce)
	for _, g := range ranges {
		// Walk the range tablet by tablet, by the ends that they are believed to have.
		for at := g.from; ; {
			held, err := r.publisher.router.Find(within, at.Table, at.Row, 1)
			if err != nil || len(held) == 0 { // it may be found in the next round
				r.note(0, err)
				break
			}
			group.Go(func() error { return r.ask(within, held[0]) })
			end, bounded := wire.EndOf(held[0])
			if !bounded || g.bounded && !end.Less(g.to) {
				break
			}
			at = end
		}
	}
	return group.Wait()
}

// ask gives the catalogue to the tablet, provided that the tablet still has the epoch,
// and so the range, that the router believes. An error is one that asking again cannot
// help.
func (r *pushRound) ask(ctx context.Context, d *pb.TabletDescriptor) error {
	attempt, cancel := context.WithTimeout(ctx, pushAttempt)
	defer cancel()
	_, err := r.publisher.send(attempt, d.TabletId, &pb.TabletRequest{
		Epoch: d.Epoch, Op: &pb.TabletRequest_SetCatalogue{
			SetCatalogue: &pb.SetCatalogueRequest{Catalogue: r.catalogue},
		},
	})
	var refused *txn.ServerError
	switch {
	case err == nil:
		r.mu.Lock()
		defer r.mu.Unlock()
		r.taken = append(r.taken, d)
		return nil
	// Silence, a moved boundary or a full disk may pass: the range stays a gap for the
	// next round.
	case attempt.Err() != nil, errors.As(err, &refused) && passes(refused.Code):
		r.note(d.TabletId, err)
		return nil
	}
	return fmt.Errorf("meta: give tablet %d the catalogue: %w", d.TabletId, err)
}

// passes reports whether a tablet that refuses the catalogue with this code may accept it
// later.
func passes(code pb.Error_Code) bool {
	return code == pb.Error_CODE_WRONG_TABLET || code == pb.Error_CODE_DISK_FULL
}

// note records that a tablet did not take the catalogue; 0 stands for a range whose
// tablet is not known.
func (r *pushRound) note(tablet uint64, why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.failed) == 0 {
		r.why = why
	}
	r.failed = append(r.failed, tablet)
}

// missing describes the tablets that did not take the catalogue. It must be called after
// run has returned.
func (r *pushRound) missing() string {
	const listed = 8
	slices.Sort(r.failed)
	text := fmt.Sprintf("version %d is missing on %d tablets", r.catalogue.Version, len(r.failed))
	for i, id := range r.failed[:min(len(r.failed), listed)] {
		if i == 0 {
			text += ":"
		}
		text += fmt.Sprintf(" %d", id)
	}
	if len(r.failed) > listed {
		text += " and others"
	}
	if r.why != nil {
		text += fmt.Sprintf(" (%v)", r.why)
	}
	return text
}

// gap is a range of rows whose tablets are not known to have the catalogue.
type gap struct {
	from, to wire.Position
	bounded  bool // else it has no end
}

// uncovered returns the parts of gaps that the tablets do not cover.
func uncovered(gaps []gap, tablets []*pb.TabletDescriptor) (out []gap) {
	slices.SortFunc(tablets, route.ByStart)
	for _, g := range gaps {
		out = append(out, g.without(tablets)...)
	}
	return out
}

// without returns the parts of the gap that the tablets, ordered by start, do not cover.
func (g gap) without(tablets []*pb.TabletDescriptor) (out []gap) {
	for _, d := range tablets {
		start := wire.StartOf(d)
		end, bounded := wire.EndOf(d)
		// It lies before the gap.
		if bounded && !g.from.Less(end) {
			continue
		}
		// It lies behind the gap, and so do all that follow.
		if g.bounded && !start.Less(g.to) {
			break
		}
		// A hole before the tablet stays open.
		if g.from.Less(start) {
			out = append(out, gap{from: g.from, to: start, bounded: true})
		}
		// It reaches beyond the gap: nothing is left.
		if !bounded || g.bounded && !end.Less(g.to) {
			return out
		}
		g.from = end
	}
	return append(out, g)
}
