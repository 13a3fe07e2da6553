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

// Distribution of the newest catalogue to every tablet. The node that wrote a version sends it to
// all tablets, repeatedly to those that are unavailable, and then records in meta, in rowTold,
// that all have it. A version without that record is sent by each node that starts and by the
// node that leads meta (node/hosting/registration.go). Several goroutines may do so concurrently: a
// tablet keeps the newest version it received, and the recorded version only increases.

// ErrUntold reports that the newest catalogue is durable in meta but did not reach every tablet in
// time. Changes of the catalogue and Sync return it. The next Sync continues the distribution.
var ErrUntold = errors.New("meta: some tablets have not applied the newest " +
	"catalogue of observers and dropped tables yet")

// rowTold is the row with the newest catalogue version that every tablet is known to have applied,
// as 8 bytes, big-endian.
const rowTold = "told"

// publisher sends catalogues to tablets.
type publisher struct {
	records
	router *route.Router
	// published is the newest catalogue version that this process itself has sent to every
	// tablet.
	published atomic.Uint64
}

const (
	// pushAttempt limits the wait for one tablet in one round: a tablet without a leader must not
	// delay others.
	pushAttempt = 2 * time.Second
	// pushAtOnce is the number of tablets contacted concurrently.
	pushAtOnce = 32
	// pushPause is the first pause between rounds, maxPushPause the longest.
	pushPause    = 10 * time.Millisecond
	maxPushPause = 5 * time.Second
)

// toldVersion returns the newest catalogue version that every tablet is known to have, or 0, and
// the bytes of its record.
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

// publish sends the catalogue to every tablet and then records that they have it. If that is
// already recorded it does nothing.
func (p *publisher) publish(ctx context.Context, c *pb.Catalogue) error {
	if told, _, err := p.toldVersion(ctx); err != nil || told >= c.Version {
		return err
	}
	if err := p.push(ctx, c); err != nil {
		return err
	}
	p.raisePublished(c.Version)
	_ = p.noteTold(ctx, c.Version) // without the record the version is sent again
	return nil
}

// raisePublished records that this process has sent the version to every tablet. It never
// decreases; concurrent calls are safe.
func (p *publisher) raisePublished(version uint64) {
	for {
		before := p.published.Load()
		if before >= version || p.published.CompareAndSwap(before, version) {
			return
		}
	}
}

// noteTold raises the recorded version in meta to version, unless it is that high already.
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

// push sends the catalogue to every tablet of user tables, in rounds, until the tablets that
// accepted it cover the whole key space, or ctx ends. Coverage is the criterion, not a list of
// tablets: a split inherits the version, so a tablet created after its parent accepted it has it.
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

// pushRound sends one request to each tablet of some ranges. Up to pushAtOnce are in flight, each
// on its own goroutine; run joins them.
type pushRound struct {
	publisher *publisher
	catalogue *pb.Catalogue

	mu     sync.Mutex
	taken  []*pb.TabletDescriptor // tablets that accepted it
	failed []uint64               // tablets that did not
	why    error                  // error of the first to fail
}

// run contacts the tablets that the router finds in the ranges. It returns an error only if
// another round cannot help.
func (r *pushRound) run(ctx context.Context, ranges []gap) error {
	group, within := errgroup.WithContext(ctx)
	group.SetLimit(pushAtOnce)
	for _, g := range ranges {
		// Walk the range tablet by tablet, by their cached ends.
		for at := g.from; ; {
			held, err := r.publisher.router.Find(within, at.Table, at.Row, 1)
			if err != nil || len(held) == 0 { // retried in the next round
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

// ask sends the catalogue to the tablet, provided that the tablet still has the router's epoch,
// and so its range. It returns an error only if a retry cannot help.
func (r *pushRound) ask(ctx context.Context, d *pb.TabletDescriptor) error {
	attempt, cancel := context.WithTimeout(ctx, pushAttempt)
	defer cancel()
	_, err := r.publisher.send(attempt, d.TabletId, &pb.TabletRequest{
		Epoch: d.Epoch, Op: &pb.TabletRequest_SetCatalogue{
			SetCatalogue: &pb.SetCatalogueRequest{Catalogue: r.catalogue},
		},
	})
	switch {
	case err == nil:
		r.mu.Lock()
		defer r.mu.Unlock()
		r.taken = append(r.taken, d)
		return nil
	// A timeout, a moved boundary or a lack of disk space may be temporary: the range stays a gap
	// for the next round.
	case attempt.Err() != nil, passes(codeOf(err)):
		r.note(d.TabletId, err)
		return nil
	}
	return fmt.Errorf("meta: send the catalogue to tablet %d: %w", d.TabletId, err)
}

// passes reports whether a tablet that rejected a request with this code may accept it later.
func passes(code pb.Error_Code) bool {
	return code == pb.Error_CODE_WRONG_TABLET || code == pb.Error_CODE_DISK_FULL
}

// note records that a tablet did not accept the catalogue; 0 stands for a range whose tablet is
// unknown.
func (r *pushRound) note(tablet uint64, why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.failed) == 0 {
		r.why = why
	}
	r.failed = append(r.failed, tablet)
}

// missing describes the tablets that did not accept the catalogue. It must be called after run
// has returned.
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
	bounded  bool // false: it has no end
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
		// The tablet is before the gap.
		if bounded && !g.from.Less(end) {
			continue
		}
		// The tablet is behind the gap, and so are all that follow.
		if g.bounded && !start.Less(g.to) {
			break
		}
		// A hole before the tablet remains.
		if g.from.Less(start) {
			out = append(out, gap{from: g.from, to: start, bounded: true})
		}
		// The tablet reaches beyond the gap: nothing remains.
		if !bounded || g.bounded && !end.Less(g.to) {
			return out
		}
		g.from = end
	}
	return append(out, g)
}
