package txn

import (
	"context"
	"fmt"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// Waits between the passes of WaitIdle.
const (
	idleWaitBase = 2 * time.Millisecond
	idleWaitMax  = 200 * time.Millisecond
)

// pass is what one walk over all tablets has counted.
type pass struct {
	pending uint64 // notifications, locks on observed columns, intents
	written uint64 // notify entries since each leader began
	tablets int
}

// WaitIdle returns when no notification is left to run. One walk over the tablets is not one moment: a run may move
// work from a tablet that is yet to be asked to one that has answered. But then it has written notify entries, so two
// walks with nothing pending and the same counters mean that nothing was pending between them.
func (c *Client) WaitIdle(ctx context.Context) error {
	wait := backoff{base: idleWaitBase, max: idleWaitMax}
	var before pass
	unlinked, err := c.unlinked(ctx)
	if err != nil {
		return err
	}
	for clean := false; ; {
		now, err := c.pendingPass(ctx, unlinked)
		// A change of leader resets a counter, which looks like work: it only costs another walk.
		if err != nil {
			return err
		}
		if clean && now == before {
			return nil
		}
		clean, before = now.pending == 0, now
		if clean {
			continue // the second walk follows at once
		}
		if err := sleep(ctx, wait.next()); err != nil {
			return fmt.Errorf("%w: %d notifications, locks and intents are pending", err, now.pending)
		}
	}
}

// pendingPass walks over all tablets of user tables in order. Each step goes on where the tablet that has answered ends,
// so that none is left out, whatever splits meanwhile.
// unlinked are the observers of the catalogue that no process runs: what waits for them is not waited for.
func (c *Client) unlinked(ctx context.Context) ([]string, error) {
	catalogue, err := c.transport.Catalogue(ctx)
	if err != nil {
		return nil, adminError(err)
	}
	status, err := c.transport.NodeStatus(ctx)
	if err != nil {
		return nil, adminError(err)
	}
	linked := map[string]bool{}
	for _, o := range status.GetObservers() {
		linked[o.Name] = true
	}
	var out []string
	for _, o := range catalogue.GetObservers() {
		if !linked[o.Name] {
			out = append(out, o.Name)
		}
	}
	return out, nil
}

func (c *Client) pendingPass(ctx context.Context, unlinked []string) (pass, error) {
	var p pass
	at := wire.Position{Table: mvcc.FirstUserTable}
	for {
		resp, d, err := c.callTablet(ctx, at, &pb.TabletRequest{Op: &pb.TabletRequest_Pending{Pending: &pb.PendingRequest{Unlinked: unlinked}}}, true)
		if err != nil {
			return p, err
		}
		n := resp.GetPending()
		p.pending += n.GetNotifications() + n.GetLocks() + n.GetIntents()
		p.written += n.GetNotifyWritten()
		p.tablets++
		end, bounded := wire.EndOf(d)
		if !bounded {
			return p, nil
		}
		at = end
	}
}
