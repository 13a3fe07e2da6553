package txn

import (
	"context"
	"slices"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// maxBatchCells bounds the cells of one mutation, apart from the limit on its bytes.
const maxBatchCells = 4096

// batchBytes returns the largest size of one mutation, by the weights of mvcc. It stays
// below the tablet's limit on messages, and below what its store takes at once.
func (r *router) batchBytes() int { return r.cfg.Limits.Batch - r.cfg.Limits.Batch/8 }

// Operations on many cells are cut along the cached tablet map, which may be old: they
// are cut again where a tablet turns out to have been split.

// eachTablet sends an idempotent mutation of cells and intents to their tablets, in
// parallel and in as many messages as it takes, until each is answered. check, if not
// nil, gets every result and may return an error.
func (r *router) eachTablet(
	ctx context.Context, cells, intents []mvcc.Cell,
	build func(cells, intents []mvcc.Cell) *pb.TabletRequest, check func(*pb.MutationResult) error,
) error {
	parts, err := r.cellParts(ctx, cells, intents)
	if err != nil {
		return err
	}
	return parallel(len(parts), func(i int) error {
		var wait retryPolicy
		return r.mutatePart(ctx, parts[i], build, check, &wait)
	})
}

// cellPart is the part of an operation's cells that one tablet is believed to hold.
type cellPart struct {
	d       *pb.TabletDescriptor
	cells   []mvcc.Cell // slices of the operation's own, sorted
	intents []mvcc.Cell
	weight  int
}

// cellParts sorts cells and intents by tablet.
func (r *router) cellParts(ctx context.Context, cells,
	intents []mvcc.Cell) (parts []cellPart, err error) {
	err = cut(ctx, r, sorted(cells), r.decision,
		func(d *pb.TabletDescriptor, run []mvcc.Cell, weight int) {
			parts = append(parts, cellPart{d: d, cells: run, weight: weight})
		})
	if err != nil {
		return nil, err
	}
	err = cut(ctx, r, sorted(intents), func(c mvcc.Cell) (mvcc.Cell, int) {
		return c, c.IntentDecisionWeight()
	}, func(d *pb.TabletDescriptor, run []mvcc.Cell, weight int) {
		parts = r.addIntents(parts, cellPart{d: d, intents: run, weight: weight})
	})
	return parts, err
}

// decision returns the cell, and the weight of committing, resolving or rolling it back.
func (r *router) decision(c mvcc.Cell) (mvcc.Cell, int) { return c, c.DecisionWeight(r.cfg.Limits) }

// cut cuts what an operation does, item by item in the order of their cells, into one run
// for each message, and gives take each run with its weight and the tablet that is believed
// to hold it. Items of one tablet are neighbours in order, so no map is needed to group
// them. weigh gives an item's cell and its weight.
func cut[T any](
	ctx context.Context, r *router, items []T, weigh func(T) (mvcc.Cell, int),
	take func(d *pb.TabletDescriptor, run []T, weight int),
) error {
	for rest := items; len(rest) > 0; {
		first, _ := weigh(rest[0])
		d, err := r.locate(ctx, posOf(first))
		if err != nil {
			return err
		}
		n, weight := firstRun(r, d, rest, weigh)
		take(d, rest[:n], weight)
		rest = rest[n:]
	}
	return nil
}

// firstRun returns how many of the items the tablet takes in one message, at least one,
// and what they weigh. A single cell within the limits always fits into a message.
func firstRun[T any](
	r *router, d *pb.TabletDescriptor, items []T, weigh func(T) (mvcc.Cell, int),
) (n, weight int) {
	for i, item := range items {
		cell, w := weigh(item)
		full := i >= maxBatchCells || weight+w > r.batchBytes()
		if i > 0 && (full || !wire.Holds(d, posOf(cell))) {
			return i, weight
		}
		weight += w
	}
	return len(items), weight
}

// addIntents adds the intents of p to the message for the cells of their tablet, if they
// fit.
func (r *router) addIntents(parts []cellPart, p cellPart) []cellPart {
	for i := range parts {
		with := &parts[i]
		if with.d == p.d && with.intents == nil && with.weight+p.weight <= r.batchBytes() &&
			len(with.cells)+len(p.intents) <= maxBatchCells {
			with.intents = p.intents
			with.weight += p.weight
			return parts
		}
	}
	return append(parts, p)
}

// sorted returns cells in order, copied if they were not.
func sorted(cells []mvcc.Cell) []mvcc.Cell {
	if slices.IsSortedFunc(cells, mvcc.Cell.Compare) {
		return cells
	}
	cells = slices.Clone(cells)
	slices.SortFunc(cells, mvcc.Cell.Compare)
	return cells
}

// mutatePart carries out one part. The operation is idempotent, so it may be sent again
// whatever became of an attempt, even after a lost reply.
func (r *router) mutatePart(
	ctx context.Context, p cellPart,
	build func(cells, intents []mvcc.Cell) *pb.TabletRequest, check func(*pb.MutationResult) error,
	wait *retryPolicy,
) error {
	resp, v, err := r.try(ctx, p.d, build(p.cells, p.intents))
	switch v {
	case answered:
		if resp.GetMutation() == nil {
			return Errorf("%w: the tablet answered something else", ErrUnavailable)
		}
		if check != nil {
			return check(resp.GetMutation())
		}
		return nil
	case refused:
		return err
	}
	if err := wait.again(ctx, r.cfg, v, err); err != nil {
		return err
	}
	// The part may be in several tablets by now. Patience is passed on, so that all of
	// this ends when it is used up.
	parts, err := r.cellParts(ctx, p.cells, p.intents)
	if err != nil {
		return err
	}
	return parallel(len(parts), func(i int) error {
		own := *wait
		return r.mutatePart(ctx, parts[i], build, check, &own)
	})
}

// notify writes notify entries for the cells of a commit or a replay. The request is all but
// the cells.
func (r *router) notify(ctx context.Context, as *pb.NotifyRequest, cells []mvcc.Cell,
	trace []byte) error {
	return r.eachTablet(ctx, cells, nil, func(cells, _ []mvcc.Cell) *pb.TabletRequest {
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
			return Errorf("%w: notify answered %v", ErrUnavailable, res.Status)
		case as.Replay:
			cell := wire.Cell(res.ConflictAt)
			return Errorf("%w: row %q column %q: nothing observes it", ErrNotifyOnly, cell.Row,
				cell.Column)
		}
		return notifyOnly(res)
	})
}

// ClearNotifies removes the notify entries of the cells that are not newer than upTo, with
// one message for each of their tablets. It may be repeated. The error is ErrInvalid as long
// as the cluster does not use such messages (version.Batches).
func (r *router) ClearNotifies(ctx context.Context, cells []mvcc.Cell,
	as mvcc.ClearNotifyRequest) error {
	return r.eachTablet(ctx, cells, nil, func(cells, _ []mvcc.Cell) *pb.TabletRequest {
		return &pb.TabletRequest{Op: &pb.TabletRequest_ClearNotify{ClearNotify: &pb.ClearNotifyRequest{
			Cells: wire.CellsPB(cells), UpTo: uint64(as.UpTo), Origin: uint64(as.Origin),
			Ended: uint64(as.Ended),
		}}}
	}, nil)
}

// TabletOf returns the tablet that is believed to hold the cell, 0 if none is known. It asks
// nobody.
func (r *router) TabletOf(c mvcc.Cell) uint64 { return r.tablets.find(posOf(c)).GetTabletId() }
