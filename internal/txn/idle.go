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

// WaitIdle returns when no notification is left to run: parked ones, and those of
// observers that are paused, retired or linked by no process, are not waited for;
// PendingObservers counts them. One walk over the tablets is not one moment: a run may
// move work from a tablet that is yet to be asked to one that has answered. But then it
// has written notify entries, so two walks with nothing pending and the same counters
// mean that nothing was pending between them.
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

// unlinked are the observers of the catalogue that no process runs: what waits for them
// is not waited for.
func (c *Client) unlinked(ctx context.Context) ([]string, error) {
	catalogue, err := c.Catalogue(ctx)
	if err != nil {
		return nil, err
	}
	status, err := c.NodeStatus(ctx)
	if err != nil {
		return nil, err
	}
	linked := map[string]bool{}
	for _, o := range status.GetObservers() {
		linked[o.Name] = true
	}
	for _, name := range status.GetLinked() {
		linked[name] = true
	}
	var out []string
	for _, o := range catalogue.GetObservers() {
		if !linked[o.Name] {
			out = append(out, o.Name)
		}
	}
	return out, nil
}

// pendingPass walks over all tablets of user tables in order. What waits for observers
// that are paused, retired or unlinked is not in its figures.
func (c *Client) pendingPass(ctx context.Context, unlinked []string) (pass, error) {
	var p pass
	err := c.eachPending(ctx, unlinked, func(n *pb.PendingResponse) {
		p.pending += n.GetNotifications() + n.GetLocks() + n.GetIntents()
		p.written += n.GetNotifyWritten()
		p.tablets++
	})
	return p, err
}

// eachPending asks every tablet of user tables what is pending there. Each step goes on
// where the tablet that has answered ends, so that none is left out, whatever splits
// meanwhile.
func (c *Client) eachPending(ctx context.Context, unlinked []string, visit func(*pb.PendingResponse)) error {
	at := wire.Position{Table: mvcc.FirstUserTable}
	for {
		resp, d, err := c.callTablet(ctx, at, &pb.TabletRequest{Op: &pb.TabletRequest_Pending{Pending: &pb.PendingRequest{Unlinked: unlinked}}}, true)
		if err != nil {
			return err
		}
		visit(resp.GetPending())
		end, bounded := wire.EndOf(d)
		if !bounded {
			return nil
		}
		at = end
	}
}

// PendingObservers counts what waits for each observer of the catalogue, in all tablets
// together. Asking tablet after tablet is not one moment.
func (c *Client) PendingObservers(ctx context.Context) (map[string]*pb.ObserverPending, error) {
	sum := map[string]*pb.ObserverPending{}
	err := c.eachPending(ctx, nil, func(n *pb.PendingResponse) {
		for _, o := range n.GetObservers() {
			s := sum[o.Name]
			if s == nil {
				s = &pb.ObserverPending{Name: o.Name}
				sum[o.Name] = s
			}
			s.Notifications += o.Notifications
			s.Parked += o.Parked
			s.Intents += o.Intents
			if s.OldestTs == 0 || (o.OldestTs != 0 && o.OldestTs < s.OldestTs) {
				s.OldestTs = o.OldestTs
			}
		}
	})
	return sum, err
}
