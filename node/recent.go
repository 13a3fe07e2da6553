package node

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/percolator-go/percolator/actors/lockd"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/internal/metrics"
	"github.com/percolator-go/percolator/internal/recent"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/node/hosting"
)

// past is what this node remembers of its last hour (package recent). It owns the three memories
// and adds to them on a goroutine of the node's background; the console's questions and other
// nodes' requests read them, each on its own goroutine.
type past struct {
	points recent.Points
	heat   *recent.Heat
	lately recent.Lately

	client    *txn.Client
	peerNodes *cluster.PeerNodes
	observers *hosting.Host
	tablets   *tablets
	oracle    *localOracle
	lockd     *atomic.Pointer[lockd.Lockd]
	servers   *servers
	now       func() time.Time

	// found is how much was wrong with the cluster, by the last answer to somebody who looked.
	found atomic.Pointer[foundFindings]
}

type foundFindings struct {
	at time.Time
	n  uint32
}

// run adds points, and a sample of the tablets once a minute, until ctx ends.
func (p *past) run(ctx context.Context) {
	tick := time.NewTicker(recent.Every)
	defer tick.Stop()
	p.points.Add(p.now(), p.figures())
	p.lately.Add(p.now(), p.totals(true, true))
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		p.points.Add(p.now(), p.figures())
		if p.heat.Due(p.now()) {
			p.sample(ctx)
			p.lately.Add(p.now(), p.totals(true, true))
		}
	}
}

// sample takes what the tablets that are led here have done.
func (p *past) sample(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	p.heat.Sample(p.now(), p.tablets.statuses(ctx, true))
}

// figures returns this process's own counters, which ask nobody anything. They only grow,
// but for the backlog and the findings; recent.Points makes rates of them. Operations are
// those of remote clients, and transactions those that this process coordinates, so the
// sum over all nodes counts nothing twice.
func (p *past) figures() (out recent.Figures) {
	if p.servers.grpc != nil {
		for _, took := range p.servers.grpc.Stats().Operations {
			out.Operations = out.Operations.Plus(took)
		}
	}
	for _, outcomes := range p.client.Latencies().Whole {
		out.Transactions = out.Transactions.Plus(outcomes[txn.Committed])
	}
	for _, s := range p.observers.Status() {
		out.Backlog += uint64(s.Queued) + uint64(s.Waiting) + uint64(s.Running)
	}
	// Nobody judges the cluster for the line's sake: the point is missing where nobody has
	// looked since the one before.
	if f := p.found.Load(); f != nil && p.now().Sub(f.at) <= recent.Every {
		out.Findings = &f.n
	}
	return out
}

// answer returns what is asked for of this node, by its own console or by another node's. A
// part that was not asked for is left out, because histograms and heat are not small.
func (p *past) answer(ctx context.Context, req *wire.RecentRequest) *wire.Recent {
	out := &wire.Recent{}
	if req.GetPoints() {
		out.Points = p.points.Read()
	}
	if req.GetHeat() {
		p.sample(ctx) // so that it goes up to now
		out.Heat = p.heat.Read()
	}
	now := p.totals(req.GetMailboxes(), req.GetContended())
	out.LatelyMs = p.lately.Tell(p.now(), now).Milliseconds()
	out.Mailboxes, out.Contended = now.Mailboxes, now.Contended
	return out
}

// totals returns what this process has counted of its mailboxes, and of contended rows.
func (p *past) totals(mailboxes, contended bool) (out recent.Totals) {
	if mailboxes {
		for _, box := range readMailboxes(p.tablets, p.oracle, p.lockd) {
			out.Mailboxes = append(out.Mailboxes, &wire.Mailbox{
				Actor: box.actor, Queued: uint64(box.queued), Longest: uint64(box.longest),
				Batches: histogramPB(box.batches), Waits: histogramPB(box.waits),
				Took: histogramPB(box.took),
			})
		}
	}
	if contended {
		for _, r := range p.tablets.metrics.Contended.Read() {
			out.Contended = append(out.Contended, &wire.ContendedRow{
				Table: uint32(r.Table), Row: []byte(r.Row), Conflicts: r.Conflicts, Locked: r.Locked,
				AtMost: r.AtMost,
			})
		}
	}
	return out
}

func histogramPB(h metrics.Histogram) *wire.Histogram {
	return &wire.Histogram{Bounds: h.Bounds, Counts: h.Counts, Sum: h.Sum}
}

// nodeRecent is one node's answer.
type nodeRecent struct {
	node uint64
	*wire.Recent
}

// recentPatience bounds the question to each node. A page is drawn without those that take
// longer, and says so, rather than wait for a node that is stopped or cut off.
const recentPatience = 2 * time.Second

// everywhere asks all live nodes at once, and answers for this one by itself. The answers are
// in the order of the nodes; silent names those that did not answer, with why. A node
// that gossip takes for dead is not asked and not named: the overview tells of it.
func (p *past) everywhere(ctx context.Context, req *wire.RecentRequest) (answers []nodeRecent,
	silent []string) {
	ctx, cancel := context.WithTimeout(ctx, recentPatience)
	defer cancel()
	var mu sync.Mutex
	var asking sync.WaitGroup
	silent = []string{}
	answers = []nodeRecent{{p.peerNodes.Self(), p.answer(ctx, req)}}
	for _, id := range p.peerNodes.Alive() {
		asking.Go(func() {
			r, err := p.peerNodes.Call(ctx, id, &wire.PeerRequest{
				Body: &wire.PeerRequest_Recent{Recent: req},
			})
			mu.Lock()
			defer mu.Unlock()
			if err == nil && r.GetRecent() != nil {
				answers = append(answers, nodeRecent{id, r.GetRecent()})
				return
			}
			silent = append(silent, fmt.Sprintf("node %d: %v", id, err))
		})
	}
	asking.Wait()
	slices.SortFunc(answers, func(a, b nodeRecent) int { return cmp.Compare(a.node, b.node) })
	slices.Sort(silent)
	return answers, silent
}
