// Package pending counts, awaits and replays the notifications that are pending for observers.
package pending

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn/request"
	"github.com/percolator-go/percolator/internal/wire"
)

// Observers counts and awaits the notifications pending in all tablets, and replays observer
// runs. It is safe for concurrent use.
type Observers struct {
	transport request.Transport
	timeout   time.Duration // of a query of the backlog
	meta      *request.Meta
	router    *request.Router
	oracle    *request.Oracle
	backlog   backlog
}

// New returns the Observers of a client. The timeout bounds a query of the backlog.
func New(transport request.Transport, timeout time.Duration, meta *request.Meta,
	router *request.Router, oracle *request.Oracle) *Observers {
	return &Observers{
		transport: transport, timeout: timeout, meta: meta, router: router, oracle: oracle,
		backlog: backlog{turn: make(chan struct{}, 1)},
	}
}

// pass contains the sums of the tablets' answers in one walk over all user tables.
type pass struct {
	pending uint64 // notifications, locks on observed columns, intents
	written uint64 // notify entries since each leader began
	tablets int
}

// WaitIdle waits until no runnable notification is pending. It ignores parked notifications
// and those of observers that are paused, retired or registered by no process;
// PendingObservers counts them. A walk over the tablets is not atomic: a run may move work
// from a tablet not yet queried to one that has answered. But then it has written notify
// entries, so two walks with nothing pending and the same counters mean that nothing was
// pending between them.
func (o *Observers) WaitIdle(ctx context.Context) error {
	var wait request.Backoff
	var before pass
	unlinked, err := o.unlinked(ctx)
	if err != nil {
		return err
	}
	for clean := false; ; {
		now, err := o.pendingPass(ctx, unlinked)
		// A leader change resets a counter, which looks like new work and only costs another
		// walk.
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
		if err := request.Sleep(ctx, wait.Next()); err != nil {
			return request.Errorf("%w: %d notifications, locks and intents are pending", err,
				now.pending)
		}
	}
}

// unlinked returns the catalogue's observers that no process runs. Their notifications are not
// awaited.
func (o *Observers) unlinked(ctx context.Context) ([]string, error) {
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

// pendingPass sums up the pending work of all tablets of user tables. It excludes notifications of
// observers that are paused, retired or unlinked.
func (o *Observers) pendingPass(ctx context.Context, unlinked []string) (pass, error) {
	var p pass
	err := o.eachPending(ctx, unlinked, func(n *pb.PendingResponse) {
		p.pending += n.GetNotifications() + n.GetLocks() + n.GetIntents()
		p.written += n.GetNotifyWritten()
		p.tablets++
	})
	return p, err
}

// eachPending queries every tablet of user tables for its pending work, and calls visit with the
// answer of each. A tablet that was merged from two cached ones is queried at both of their starts, and
// visited twice only if it was merged in between.
func (o *Observers) eachPending(ctx context.Context, unlinked []string,
	visit func(*pb.PendingResponse)) error {
	var mu sync.Mutex
	visited := map[uint64]uint64{} // the greatest epoch visited, by tablet
	return o.eachTablet(ctx, func(ctx context.Context, at wire.Position) (*pb.TabletDescriptor, error) {
		n, d, err := o.pendingAt(ctx, at, &pb.PendingRequest{Unlinked: unlinked})
		mu.Lock()
		defer mu.Unlock()
		if err == nil && d.Epoch > visited[d.TabletId] {
			visited[d.TabletId] = d.Epoch
			visit(n)
		}
		return d, err
	})
}

// tabletsAtOnce is the number of tablets queried concurrently.
const tabletsAtOnce = 16

// eachTablet calls ask with a position in every tablet of user tables, tabletsAtOnce at a
// time. ask returns the tablet that has answered. Between two cached tablets the walk proceeds from
// end to end, so that concurrent splits cannot make it miss a tablet; after a merge of the two it
// queries the tablet twice.
func (o *Observers) eachTablet(ctx context.Context,
	ask func(ctx context.Context, at wire.Position) (*pb.TabletDescriptor, error)) error {
	starts := o.router.StartsFrom(wire.Position{Table: mvcc.FirstUserTable})
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(tabletsAtOnce)
	for i := range starts {
		group.Go(func() error {
			for at, more := starts[i], true; more; {
				d, err := ask(ctx, at)
				if err != nil {
					return err
				}
				end, bounded := wire.EndOf(d)
				at, more = end, bounded && (i+1 == len(starts) || end.Less(starts[i+1]))
			}
			return nil
		})
	}
	return group.Wait()
}

// pendingAt queries the tablet that holds the position.
func (o *Observers) pendingAt(ctx context.Context, at wire.Position,
	req *pb.PendingRequest) (*pb.PendingResponse, *pb.TabletDescriptor, error) {
	resp, d, err := o.router.Call(ctx, at, &pb.TabletRequest{
		Op: &pb.TabletRequest_Pending{Pending: req},
	}, true)
	return resp.GetPending(), d, err
}

// PendingObservers counts the pending notifications of each observer of the catalogue over all
// tablets. The sum is not atomic.
func (o *Observers) PendingObservers(ctx context.Context) (map[string]*pb.ObserverPending, error) {
	sum := map[string]*pb.ObserverPending{}
	err := o.eachPending(ctx, nil, func(n *pb.PendingResponse) {
		addPending(sum, n.GetObservers())
	})
	return sum, err
}

// addPending adds one tablet's counts to the sum of each observer.
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
