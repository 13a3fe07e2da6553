package txn

import (
	"context"
	"sync"

	"golang.org/x/sync/errgroup"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// observers is what a client does about the work that waits for observers, of all tablets:
// it counts it, waits until it is done, and makes what has run run again.
type observers struct {
	cfg     *Config
	meta    *meta
	router  *router
	oracle  *oracle
	backlog backlog
}

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
func (o *observers) WaitIdle(ctx context.Context) error {
	var wait backoff
	var before pass
	unlinked, err := o.unlinked(ctx)
	if err != nil {
		return err
	}
	for clean := false; ; {
		now, err := o.pendingPass(ctx, unlinked)
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
		if err := Sleep(ctx, wait.next()); err != nil {
			return Errorf("%w: %d notifications, locks and intents are pending", err,
				now.pending)
		}
	}
}

// unlinked are the observers of the catalogue that no process runs: what waits for them
// is not waited for.
func (o *observers) unlinked(ctx context.Context) ([]string, error) {
	catalogue, err := o.meta.Catalogue(ctx)
	if err != nil {
		return nil, err
	}
	status, err := o.meta.NodeStatus(ctx)
	if err != nil {
		return nil, err
	}
	linked := map[string]bool{}
	for _, run := range status.GetObservers() {
		linked[run.Name] = true
	}
	for _, name := range status.GetLinked() {
		linked[name] = true
	}
	var out []string
	for _, known := range catalogue.GetObservers() {
		if !linked[known.Name] {
			out = append(out, known.Name)
		}
	}
	return out, nil
}

// pendingPass walks over all tablets of user tables in order. What waits for observers
// that are paused, retired or unlinked is not in its figures.
func (o *observers) pendingPass(ctx context.Context, unlinked []string) (pass, error) {
	var p pass
	err := o.eachPending(ctx, unlinked, func(n *pb.PendingResponse) {
		p.pending += n.GetNotifications() + n.GetLocks() + n.GetIntents()
		p.written += n.GetNotifyWritten()
		p.tablets++
	})
	return p, err
}

// eachPending asks every tablet of user tables what is pending there. visit is called for one
// at a time.
func (o *observers) eachPending(ctx context.Context, unlinked []string,
	visit func(*pb.PendingResponse)) error {
	var mu sync.Mutex
	return o.eachTablet(ctx, func(ctx context.Context,
		at wire.Position) (wire.Position, bool, error) {
		n, end, bounded, err := o.pendingAt(ctx, at, &pb.PendingRequest{Unlinked: unlinked})
		if err == nil {
			mu.Lock()
			defer mu.Unlock()
			visit(n)
		}
		return end, bounded, err
	})
}

// tabletsAtOnce is how many tablets are asked at once.
const tabletsAtOnce = 16

// eachTablet calls ask for every tablet of user tables, for several at once, with a position in
// it; ask returns where the tablet ends that has answered, if it is not the last. What lies
// between two tablets that the client knows is gone through step by step, each from where the
// last one ends, so that none is left out, whatever splits meanwhile.
func (o *observers) eachTablet(ctx context.Context, ask func(ctx context.Context,
	at wire.Position) (end wire.Position, bounded bool, err error)) error {
	starts := o.router.tablets.startsFrom(wire.Position{Table: mvcc.FirstUserTable})
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(tabletsAtOnce)
	for i := range starts {
		group.Go(func() error {
			for at, more := starts[i], true; more; {
				end, bounded, err := ask(ctx, at)
				if err != nil {
					return err
				}
				at, more = end, bounded && (i+1 == len(starts) || end.Less(starts[i+1]))
			}
			return nil
		})
	}
	return group.Wait()
}

// pendingAt asks the tablet that holds the position, and returns where it ends, if it is not
// the last.
func (o *observers) pendingAt(ctx context.Context, at wire.Position,
	req *pb.PendingRequest) (n *pb.PendingResponse, end wire.Position, bounded bool, err error) {
	resp, d, err := o.router.call(ctx, at, &pb.TabletRequest{
		Op: &pb.TabletRequest_Pending{Pending: req},
	}, true)
	if err != nil {
		return nil, end, false, err
	}
	end, bounded = wire.EndOf(d)
	return resp.GetPending(), end, bounded, nil
}

// PendingObservers counts what waits for each observer of the catalogue, in all tablets
// together. Asking tablet after tablet is not one moment.
func (o *observers) PendingObservers(ctx context.Context) (map[string]*pb.ObserverPending, error) {
	sum := map[string]*pb.ObserverPending{}
	err := o.eachPending(ctx, nil, func(n *pb.PendingResponse) {
		addPending(sum, n.GetObservers())
	})
	return sum, err
}

// addPending adds what waits in one tablet to the sum for each observer.
func addPending(sum map[string]*pb.ObserverPending, tablet []*pb.ObserverPending) {
	for _, p := range tablet {
		s := sum[p.Name]
		if s == nil {
			s = &pb.ObserverPending{Name: p.Name}
			sum[p.Name] = s
		}
		s.Notifications += p.Notifications
		s.Parked += p.Parked
		s.Intents += p.Intents
		if s.OldestTs == 0 || (p.OldestTs != 0 && p.OldestTs < s.OldestTs) {
			s.OldestTs = p.OldestTs
		}
	}
}
