package txn

import (
	"context"
	"fmt"
	"slices"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// maxBatchCells bounds the cells of one mutation, apart from the limit on its bytes.
const maxBatchCells = 4096

// batchBytes is how large one mutation is made: a little below the tablet's limit, which counts the same bytes.
func (c *Client) batchBytes() int { return c.cfg.Limits.Batch - c.cfg.Limits.Batch/8 }

// keyCost bounds what one key of a cell takes in a tablet's batch besides its row and column.
const keyCost = 64

// commitCost bounds what committing a cell, or resolving its lock, adds to a tablet's batch: the new record and the one
// that it moves to the history, each with an inline value, and the lock's end. A tablet can't take more than the batch
// limit in one operation, and a commit must never be too large.
func (c *Client) commitCost(cell mvcc.Cell) int {
	return 2*c.cfg.Limits.Inline + 3*(len(cell.Row)+len(cell.Column)+keyCost)
}

// writeCost bounds what prewriting a cell, or committing it in one phase, adds: its value, the lock or record with the
// primary's address, and the record that goes to the history.
func (c *Client) writeCost(w *pending, primary mvcc.Cell) int {
	return len(w.value) + c.cfg.Limits.Inline + 3*(len(w.cell.Row)+len(w.cell.Column)+keyCost) + len(primary.Row) + len(primary.Column)
}

// cellRun is how many of the cells, which are sorted, the tablet takes in one message.
func (c *Client) cellRun(d *pb.TabletDescriptor, cells []mvcc.Cell) int {
	size := 0
	for i, cell := range cells {
		size += c.commitCost(cell)
		if i > 0 && (i >= maxBatchCells || size > c.batchBytes() || !wire.Holds(d, posOf(cell))) {
			return i
		}
	}
	return len(cells)
}

// Operations on many cells know where the cells are only as well as the cached tablet map does. They are cut along the
// map, sent, and cut again where a tablet turns out to have been split meanwhile.

// eachTablet sends an idempotent mutation about cells and intents, tablet by tablet in parallel and in as many messages
// as it takes, until each is answered. check, if given, sees every result and may return an error.
func (c *Client) eachTablet(
	ctx context.Context, cells, intents []mvcc.Cell,
	build func(cells, intents []mvcc.Cell) *pb.TabletRequest, check func(*pb.MutationResult) error,
) error {
	parts, err := c.cellParts(ctx, cells, intents)
	if err != nil {
		return err
	}
	return parallel(len(parts), func(i int) error {
		var wait patience
		return c.mutatePart(ctx, parts[i], build, check, &wait)
	})
}

// cellPart is a part of an operation's cells that is believed to be in one tablet.
type cellPart struct {
	d       *pb.TabletDescriptor
	cells   []mvcc.Cell // slices of the operation's own, sorted
	intents []mvcc.Cell
}

// cellParts sorts cells and intents by tablet.
func (c *Client) cellParts(ctx context.Context, cells, intents []mvcc.Cell) ([]cellPart, error) {
	var parts []cellPart
	// Cells of one tablet are neighbours in order, so each part is a run, and no map is needed to group them.
	for _, set := range []struct {
		cells  []mvcc.Cell
		intent bool
	}{{sorted(cells), false}, {sorted(intents), true}} {
		for rest := set.cells; len(rest) > 0; {
			d, err := c.locate(ctx, posOf(rest[0]))
			if err != nil {
				return nil, err
			}
			n := c.cellRun(d, rest)
			parts = addPart(parts, d, rest[:n], set.intent)
			rest = rest[n:]
		}
	}
	return parts, nil
}

// addPart lets intents travel with the cells of their tablet.
func addPart(parts []cellPart, d *pb.TabletDescriptor, cells []mvcc.Cell, intent bool) []cellPart {
	if !intent {
		return append(parts, cellPart{d: d, cells: cells})
	}
	for i := range parts {
		if parts[i].d == d && parts[i].intents == nil && len(parts[i].cells)+len(cells) <= maxBatchCells {
			parts[i].intents = cells
			return parts
		}
	}
	return append(parts, cellPart{d: d, intents: cells})
}

// sorted is cells in order; a copy if they were not.
func sorted(cells []mvcc.Cell) []mvcc.Cell {
	if slices.IsSortedFunc(cells, compareCells) {
		return cells
	}
	cells = slices.Clone(cells)
	slices.SortFunc(cells, compareCells)
	return cells
}

// mutatePart has one part done. Whatever the answer to one attempt was, sending an idempotent operation again is right,
// also after a lost reply.
func (c *Client) mutatePart(
	ctx context.Context, p cellPart,
	build func(cells, intents []mvcc.Cell) *pb.TabletRequest, check func(*pb.MutationResult) error, wait *patience,
) error {
	resp, v, err := c.try(ctx, p.d, build(p.cells, p.intents))
	switch v {
	case answered:
		if resp.GetMutation() == nil {
			return fmt.Errorf("%w: the tablet answered something else", ErrUnavailable)
		}
		if check != nil {
			return check(resp.GetMutation())
		}
		return nil
	case refused:
		return err
	}
	if err := wait.again(ctx, c, v, err); err != nil {
		return err
	}
	// The part may be in several tablets by now. Patience is passed on, so that all of this ends when it is used up.
	parts, err := c.cellParts(ctx, p.cells, p.intents)
	if err != nil {
		return err
	}
	return parallel(len(parts), func(i int) error {
		own := *wait
		return c.mutatePart(ctx, parts[i], build, check, &own)
	})
}
