package telemetry

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/percolator-go/percolator/internal/metrics"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/recent"
	"github.com/percolator-go/percolator/internal/txn/counters"
	"github.com/percolator-go/percolator/internal/wire"
)

// Window is the last hour of this node (package recent). It owns points, heat and lately, and adds
// to them on a goroutine of the node's background; requests of the console and of other nodes read
// them on their own goroutines.
type Window struct {
	*Sources

	points recent.Points
	heat   *recent.Heat
	lately recent.Lately

	// found is the number of doctor's findings in the last status of the cluster that a user
	// requested.
	found atomic.Pointer[findings]
}

type findings struct {
	at time.Time
	n  uint32
}

// NewWindow returns a Window that is empty before Run.
func NewWindow(s *Sources) *Window { return &Window{Sources: s, heat: recent.NewHeat(s.Now())} }

// NoteFindings records the number of findings in a status of the cluster.
func (w *Window) NoteFindings(n int) { w.found.Store(&findings{w.Now(), uint32(n)}) }

// Points returns the points of this node, with those of the named observer; "" for none.
func (w *Window) Points(observer string) []*wire.Point { return w.points.Read(observer) }

// Run adds points, and a sample of the tablets once a minute, until ctx ends.
func (w *Window) Run(ctx context.Context) {
	tick := time.NewTicker(recent.Every)
	defer tick.Stop()
	w.points.Add(w.Now(), w.figures(ctx))
	w.lately.Add(w.Now(), w.totals(true, true))
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		w.points.Add(w.Now(), w.figures(ctx))
		if w.heat.Due(w.Now()) {
			w.sample(ctx)
			w.lately.Add(w.Now(), w.totals(true, true))
		}
	}
}

// sample records the operations of the tablets led here.
func (w *Window) sample(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	w.heat.Sample(w.Now(), w.Tablets.Leading(ctx))
}

// figures returns this node's counters, which grow, and its backlog, the age of the oldest
// notification and the findings. Operations are those of remote clients, transactions those of
// this process and of remote clients whose primary this node committed, and ages those of the
// tablets that it leads, so that the sum over all nodes counts nothing twice. It sends messages
// only to tablets of this node.
func (w *Window) figures(ctx context.Context) (out recent.Figures) {
	if server := w.Server(); server != nil {
		stats := server.Stats()
		for _, took := range stats.Operations {
			out.Operations = out.Operations.Plus(took)
		}
		out.ClientTransactions = stats.Committed
	}
	for _, outcomes := range w.Client.Latencies().Whole {
		out.Transactions = out.Transactions.Plus(outcomes[counters.Committed])
	}
	out.Observers = map[string]recent.ObserverFigures{}
	for _, s := range w.Observers.Status() {
		out.Backlog += uint64(s.Queued) + uint64(s.Waiting) + uint64(s.Running)
		out.Observers[s.Name] = recent.ObserverFigures{
			Runs: s.Runs, Failures: s.Failures, Conflicts: s.Conflicts, OldestMS: new(uint64),
		}
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	for _, tablet := range w.Tablets.Leading(ctx) {
		for _, p := range tablet.GetPending() {
			o := out.Observers[p.GetName()]
			age := uint64(max(0, w.Now().UnixMilli()-mvcc.Timestamp(p.GetOldestTs()).Millis()))
			if o.OldestMS == nil || age > *o.OldestMS {
				o.OldestMS = &age
			}
			out.Observers[p.GetName()] = o
		}
	}
	// The number of findings is known only if the cluster's status was requested since the last
	// point.
	if f := w.found.Load(); f != nil && w.Now().Sub(f.at) <= recent.Every {
		out.Findings = &f.n
	}
	return out
}

// Answer returns the requested records of this node, to its own console or another node's. It omits
// the records that are not requested, because histograms and heat are large.
func (w *Window) Answer(ctx context.Context, req *wire.RecentRequest) *wire.Recent {
	out := &wire.Recent{}
	if req.GetPoints() {
		out.Points = w.points.Read(req.GetObserver())
	}
	if req.GetHeat() {
		w.sample(ctx) // so that the heat includes the present
		out.Heat = w.heat.Read()
	}
	now := w.totals(req.GetMailboxes(), req.GetContended())
	out.LatelyMs = w.lately.Tell(w.Now(), now).Milliseconds()
	out.Mailboxes, out.Contended = now.Mailboxes, now.Contended
	return out
}

// totals returns this process's counters of mailboxes and of contended rows.
func (w *Window) totals(mailboxes, contended bool) (out recent.Totals) {
	if mailboxes {
		for _, box := range w.mailboxes() {
			out.Mailboxes = append(out.Mailboxes, &wire.Mailbox{
				Actor: box.actor, Queued: uint64(box.queued), Longest: uint64(box.longest),
				Batches: histogramPB(box.batches), Waits: histogramPB(box.waits),
				Took: histogramPB(box.took),
			})
		}
	}
	if contended {
		for _, r := range w.Tablets.Measured.Contended.Read() {
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

// NodeRecent is the answer of one node.
type NodeRecent struct {
	Node uint64
	*wire.Recent
}

// recentTimeout limits the request to each node. A page is drawn without the nodes that exceed it,
// and names them.
const recentTimeout = 2 * time.Second

// Everywhere queries all live nodes concurrently, and reads this node's records directly. The
// answers are in the order of the nodes; silent names those that did not answer, with why. It omits
// nodes that gossip reports dead, which the overview shows.
func (w *Window) Everywhere(ctx context.Context, req *wire.RecentRequest) (answers []NodeRecent,
	silent []string) {
	ctx, cancel := context.WithTimeout(ctx, recentTimeout)
	defer cancel()
	var mu sync.Mutex
	var asking sync.WaitGroup
	silent = []string{}
	answers = []NodeRecent{{w.Peers.Self(), w.Answer(ctx, req)}}
	for _, id := range w.Peers.Alive() {
		asking.Go(func() {
			r, err := w.Peers.Call(ctx, id, &wire.PeerRequest{
				Body: &wire.PeerRequest_Recent{Recent: req},
			})
			mu.Lock()
			defer mu.Unlock()
			if err == nil && r.GetRecent() != nil {
				answers = append(answers, NodeRecent{id, r.GetRecent()})
				return
			}
			silent = append(silent, fmt.Sprintf("node %d: %v", id, err))
		})
	}
	asking.Wait()
	slices.SortFunc(answers, func(a, b NodeRecent) int { return cmp.Compare(a.Node, b.Node) })
	slices.Sort(silent)
	return answers, silent
}
