package request

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// MaxBatchCells is the maximum number of cells of one mutation, in addition to the limit on
// its bytes.
const MaxBatchCells = 4096

// BatchBytes returns the maximum size of one mutation, by mvcc's weights. It is below the
// tablet's limit on messages and below the store's limit on batches, by at least the secondaries of
// an asynchronous commit (asyncFits).
func (r *Router) BatchBytes() int { return r.limits.Batch - r.limits.Batch/8 }

// Operations on many cells are split by the cached tablet map, which may be stale: they are
// split again where a tablet turns out to have been split.

// EachTablet sends an idempotent mutation of cells and intents to their tablets, in parallel
// and in as many messages as needed, until each is answered or refused for good. check, if not
// nil, is called with each result, by several goroutines, and may return an error.
func (r *Router) EachTablet(
	ctx context.Context, cells, intents []mvcc.Cell,
	build func(cells, intents []mvcc.Cell) *pb.TabletRequest, check func(*pb.MutationResult) error,
) error {
	parts, err := r.cellParts(ctx, cells, intents)
	if err != nil {
		return err
	}
	return Parallel(len(parts), func(i int) error {
		var wait Retry
		return r.mutatePart(ctx, parts[i], build, check, &wait)
	})
}

// cellPart is the part of an operation's cells that one tablet holds by the cached map.
type cellPart struct {
	d       *pb.TabletDescriptor
	cells   []mvcc.Cell // subslices of the operation's, sorted
	intents []mvcc.Cell
	weight  int
}

// halves divides a part whose effects are more than one operation may have: cells may have
// notifications for many observers, which their weights do not include. It returns nil for a
// single cell.
func (p cellPart) halves() []cellPart {
	switch c, i := len(p.cells), len(p.intents); {
	case c > 0 && i > 0:
		return []cellPart{{d: p.d, cells: p.cells}, {d: p.d, intents: p.intents}}
	case c > 1:
		return []cellPart{{d: p.d, cells: p.cells[:c/2]}, {d: p.d, cells: p.cells[c/2:]}}
	case i > 1:
		return []cellPart{{d: p.d, intents: p.intents[:i/2]}, {d: p.d, intents: p.intents[i/2:]}}
	}
	return nil
}

// cellParts groups cells and intents by tablet.
func (r *Router) cellParts(ctx context.Context, cells,
	intents []mvcc.Cell) (parts []cellPart, err error) {
	err = Cut(ctx, r, sorted(cells), r.DecisionWeight,
		func(d *pb.TabletDescriptor, run []mvcc.Cell, weight int) {
			parts = append(parts, cellPart{d: d, cells: run, weight: weight})
		})
	if err != nil {
		return nil, err
	}
	err = Cut(ctx, r, sorted(intents), func(c mvcc.Cell) (mvcc.Cell, int) {
		return c, c.IntentDecisionWeight()
	}, func(d *pb.TabletDescriptor, run []mvcc.Cell, weight int) {
		parts = r.addIntents(parts, cellPart{d: d, intents: run, weight: weight})
	})
	return parts, err
}

// DecisionWeight returns the cell, and the weight of committing, resolving or rolling it back.
func (r *Router) DecisionWeight(c mvcc.Cell) (mvcc.Cell, int) { return c, c.DecisionWeight(r.limits) }

// Cut splits an operation's items, sorted by cell, into one run per message and calls take
// with each run, its weight and its tablet by the cached map. Items of one tablet are
// adjacent, so no map is needed to group them. weigh returns an item's cell and its weight.
func Cut[T any](
	ctx context.Context, r *Router, items []T, weigh func(T) (mvcc.Cell, int),
	take func(d *pb.TabletDescriptor, run []T, weight int),
) error {
	for rest := items; len(rest) > 0; {
		first, _ := weigh(rest[0])
		d, err := r.Locate(ctx, PosOf(first))
		if err != nil {
			return err
		}
		n, weight := FirstRun(r, d, rest, weigh)
		take(d, rest[:n], weight)
		rest = rest[n:]
	}
	return nil
}

// FirstRun returns the number of leading items that fit into one message to the tablet, at
// least one, and their weight. A single cell within the limits always fits.
func FirstRun[T any](
	r *Router, d *pb.TabletDescriptor, items []T, weigh func(T) (mvcc.Cell, int),
) (n, weight int) {
	for i, item := range items {
		cell, w := weigh(item)
		full := i >= MaxBatchCells || weight+w > r.BatchBytes()
		if i > 0 && (full || !wire.Holds(d, PosOf(cell))) {
			return i, weight
		}
		weight += w
	}
	return len(items), weight
}

// addIntents adds the intents of p to the message for the cells of their tablet, if they
// fit.
func (r *Router) addIntents(parts []cellPart, p cellPart) []cellPart {
	for i := range parts {
		with := &parts[i]
		if with.d == p.d && with.intents == nil && with.weight+p.weight <= r.BatchBytes() &&
			len(with.cells)+len(p.intents) <= MaxBatchCells {
			with.intents = p.intents
			with.weight += p.weight
			return parts
		}
	}
	return append(parts, p)
}

// sorted returns cells in order. It copies them if they were not sorted.
func sorted(cells []mvcc.Cell) []mvcc.Cell {
	if slices.IsSortedFunc(cells, mvcc.Cell.Compare) {
		return cells
	}
	cells = slices.Clone(cells)
	slices.SortFunc(cells, mvcc.Cell.Compare)
	return cells
}

// mutatePart applies one part. The operation is idempotent, so it may be sent again after any
// failure, even a lost reply.
func (r *Router) mutatePart(
	ctx context.Context, p cellPart,
	build func(cells, intents []mvcc.Cell) *pb.TabletRequest, check func(*pb.MutationResult) error,
	wait *Retry,
) error {
	resp, v, err := r.Try(ctx, p.d, build(p.cells, p.intents))
	switch v {
	case Answered:
		if resp.GetMutation() == nil {
			return Errorf("%w: unexpected answer to a mutation from the tablet", ErrUnavailable)
		}
		if check != nil {
			return check(resp.GetMutation())
		}
		return nil
	case Refused:
		halves := p.halves()
		if !errors.Is(err, ErrTooLarge) || halves == nil {
			return err
		}
		return Parallel(len(halves), func(i int) error {
			own := *wait
			return r.mutatePart(ctx, halves[i], build, check, &own)
		})
	}
	if err := wait.Again(ctx, r.timeout, v, err); err != nil {
		return err
	}
	// The part may now be in several tablets. They inherit the retry policy, so the whole
	// operation ends at its timeout.
	parts, err := r.cellParts(ctx, p.cells, p.intents)
	if err != nil {
		return err
	}
	return Parallel(len(parts), func(i int) error {
		own := *wait
		return r.mutatePart(ctx, parts[i], build, check, &own)
	})
}

// Notify writes notify entries for the cells of a commit or a replay. The argument as is the
// request without its cells.
func (r *Router) Notify(ctx context.Context, as *pb.NotifyRequest, cells []mvcc.Cell,
	trace []byte) error {
	return r.EachTablet(ctx, cells, nil, func(cells, _ []mvcc.Cell) *pb.TabletRequest {
		return &pb.TabletRequest{Op: &pb.TabletRequest_Notify{
			Notify: &pb.NotifyRequest{
				Ts: as.Ts, Origin: as.Origin, Replay: as.Replay, Cells: wire.CellsPB(cells),
			},
		}, Trace: trace}
	}, func(res *pb.MutationResult) error {
		switch {
		case res.Status == pb.Status_STATUS_OK:
			return nil
		case res.Status != pb.Status_STATUS_NOTIFY_ONLY:
			return Errorf("%w: unexpected status of notify: %v", ErrUnavailable, res.Status)
		case as.Replay:
			cell := wire.Cell(res.ConflictAt)
			return Errorf("%w: no observer observes row %q column %q", ErrNotifyOnly, cell.Row,
				cell.Column)
		}
		return NotifyOnly(res)
	})
}

// TabletOf returns the cell's tablet by the cached map, or 0 if it is not cached. It sends
// nothing.
func (r *Router) TabletOf(c mvcc.Cell) uint64 { return r.tablets.Find(PosOf(c)).GetTabletId() }

// NotifyOnly returns the error that names the cell of the wrong kind.
func NotifyOnly(res *pb.MutationResult) error {
	cell := wire.Cell(res.ConflictAt)
	return Errorf("%w: row %q column %q: a weak column can be notified but not written, any other column written but not notified", ErrNotifyOnly, cell.Row, cell.Column)
}

// maxParallel is the maximum number of tasks that one call of Parallel runs at once.
const maxParallel = 16

// Parallel runs n tasks, up to maxParallel at once, one of them on the caller's goroutine, and
// returns the error of the first in order that failed.
func Parallel(n int, task func(i int) error) error {
	if n == 1 {
		return task(0)
	}
	// All tasks run to completion even if one fails: waiting is cheaper than cleaning up after
	// a canceled operation, whose outcome is unknown.
	errs := make([]error, n)
	var next atomic.Int64
	work := func() {
		for i := int(next.Add(1)); i <= n; i = int(next.Add(1)) {
			errs[i-1] = task(i - 1)
		}
	}
	var wg sync.WaitGroup
	for range min(n, maxParallel) - 1 {
		wg.Go(work)
	}
	work()
	wg.Wait()
	return cmp.Or(errs...)
}
