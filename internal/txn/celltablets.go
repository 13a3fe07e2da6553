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

// batchBytes is how large one mutation is made, by the weights of mvcc: below the
// tablet's limit on what a message says, and below what its store takes at once.
func (c *Client) batchBytes() int { return c.cfg.Limits.Batch - c.cfg.Limits.Batch/8 }

// decisionWeight is the weight of committing, resolving or rolling back a cell.
func (c *Client) decisionWeight(cell mvcc.Cell) int { return cell.DecisionWeight(c.cfg.Limits) }

// cellRun is how many of the cells, which are sorted, the tablet takes in one message,
// and what they weigh. It is one at least: a single cell within the limits always goes
// into a message.
func (c *Client) cellRun(
	d *pb.TabletDescriptor, cells []mvcc.Cell, weigh func(mvcc.Cell) int,
) (n, weight int) {
	for i, cell := range cells {
		w := weigh(cell)
		full := i >= maxBatchCells || weight+w > c.batchBytes()
		if i > 0 && (full || !wire.Holds(d, posOf(cell))) {
			return i, weight
		}
		weight += w
	}
	return len(cells), weight
}

// Operations on many cells know where the cells are only as well as the cached tablet map
// does. They are cut along the map, sent, and cut again where a tablet turns out to have
// been split meanwhile.

// eachTablet sends an idempotent mutation about cells and intents, tablet by tablet in
// parallel and in as many messages as it takes, until each is answered. check, if given,
// sees every result and may return an error.
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
	weight  int
}

// cellParts sorts cells and intents by tablet.
func (c *Client) cellParts(ctx context.Context, cells, intents []mvcc.Cell) ([]cellPart, error) {
	var parts []cellPart
	// Cells of one tablet are neighbours in order, so each part is a run, and no map is
	// needed to group them.
	for rest := sorted(cells); len(rest) > 0; {
		d, err := c.locate(ctx, posOf(rest[0]))
		if err != nil {
			return nil, err
		}
		n, weight := c.cellRun(d, rest, c.decisionWeight)
		parts = append(parts, cellPart{d: d, cells: rest[:n], weight: weight})
		rest = rest[n:]
	}
	for rest := sorted(intents); len(rest) > 0; {
		d, err := c.locate(ctx, posOf(rest[0]))
		if err != nil {
			return nil, err
		}
		n, weight := c.cellRun(d, rest, mvcc.Cell.IntentDecisionWeight)
		parts = c.addIntents(parts, cellPart{d: d, intents: rest[:n], weight: weight})
		rest = rest[n:]
	}
	return parts, nil
}

// addIntents lets intents travel with the cells of their tablet if there is room for them.
func (c *Client) addIntents(parts []cellPart, p cellPart) []cellPart {
	for i := range parts {
		with := &parts[i]
		if with.d == p.d && with.intents == nil && with.weight+p.weight <= c.batchBytes() &&
			len(with.cells)+len(p.intents) <= maxBatchCells {
			with.intents = p.intents
			with.weight += p.weight
			return parts
		}
	}
	return append(parts, p)
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

// mutatePart has one part done. Whatever the answer to one attempt was, sending an
// idempotent operation again is right, also after a lost reply.
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
	// The part may be in several tablets by now. Patience is passed on, so that all of
	// this ends when it is used up.
	parts, err := c.cellParts(ctx, p.cells, p.intents)
	if err != nil {
		return err
	}
	return parallel(len(parts), func(i int) error {
		own := *wait
		return c.mutatePart(ctx, parts[i], build, check, &own)
	})
}
