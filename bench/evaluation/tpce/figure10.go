package tpce

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/percolator-go/percolator/bench/evaluation/harness"
	"github.com/percolator-go/percolator/internal/txn"
)

// zones is the number of zones, and of replicas of each tablet, one in each zone: the nodes of one
// zone are a third of all.
const zones = 3

// killing holds the parameters of Figure 10.
type killing struct {
	nodes         int
	before        time.Duration // load before the kill
	down, restart time.Duration // load until the killed nodes are started again, and after that
}

// The criterion of recovery: the mean rate of window seconds is at least steadyShare of the rate
// before the kill, less the killed nodes' third.
const (
	window      = 5
	steadyShare = 0.8
)

const killed = "killed"

func figure10(ctx context.Context, r *harness.Run) (err error) {
	if !canLimit() {
		r.Note("Skipped: CPU quotas need root and version 1 of cgroups.")
		r.Logf("figure10 skipped: CPU quotas need root and version 1 of cgroups")
		return nil
	}
	c := killing{nodes: 6, before: 25 * time.Second, down: 25 * time.Second, restart: 25 * time.Second}
	if r.Smoke {
		c = killing{nodes: 3, before: 2 * time.Second, down: time.Second, restart: time.Second}
	}
	l := layout{nodes: c.nodes, replicas: zones, zones: zones, cpus: nodeCPUs}
	s, err := openNodes(ctx, r.Dir, l)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	e, err := s.prepare(ctx, newDataset(r.Seed, l.nodes))
	if err != nil {
		return err
	}
	t := &timeline{began: time.Now(), seconds: make([]atomic.Int64, int((c.before+c.down+c.restart)/time.Second)+60)}
	stop := e.load(ctx, callersEach*l.nodes, t.done)
	at, err := c.course(ctx, s, t)
	stop()
	if err != nil {
		return err
	}
	if err := s.release(); err != nil {
		return err
	}
	if err := errors.Join(s.cluster.Ready(ctx), e.settleBooks(ctx)); err != nil {
		return err
	}
	r.Axes(killed, "seconds after the kill", "transactions/s", false, false)
	seconds := t.whole(int((c.before + c.down + c.restart) / time.Second))
	for i, n := range seconds {
		r.Point(killed, "committed", float64(i)-at.Seconds(), float64(n))
	}
	r.Paper(killed, "recovery", "a dip, then recovery within minutes; 5 of 15 servers killed")
	r.Note("%d nodes in %d zones with %g CPUs each, three replicas; both nodes of the zone that leads the meta tablet, and so runs the oracle, are killed (SIGKILL) and "+
		"started again %v later. Steady means at least %.0f %% of the remaining nodes' share of the rate before, over %d s. "+
		"All trades that were acknowledged exist, and the books are consistent.",
		c.nodes, zones, nodeCPUs, c.down, 100*steadyShare, window)
	if r.Smoke {
		return nil
	}
	return judge(r, seconds, int(at/time.Second), int((c.before+c.down)/time.Second), t.failed.Load())
}

// course kills a zone under load and starts it again, and returns when it was killed.
func (c killing) course(ctx context.Context, s *onNodes, t *timeline) (at time.Duration, err error) {
	_ = txn.Sleep(ctx, c.before)
	zone, err := s.metaZone(ctx)
	if err != nil {
		return 0, err
	}
	at = time.Since(t.began)
	ended := make(chan error, c.nodes)
	count := 0
	for i, p := range s.cluster.Nodes() {
		if i%zones == zone {
			count++
			go func() { ended <- p.Kill() }() // received below
		}
	}
	for range count {
		err = errors.Join(err, <-ended)
	}
	_ = txn.Sleep(ctx, c.down)
	for i, p := range s.cluster.Nodes() {
		if i%zones == zone && err == nil {
			err = errors.Join(p.Start(), p.Quota(s.layout.cpus))
		}
	}
	_ = txn.Sleep(ctx, c.restart)
	return at, errors.Join(err, ctx.Err())
}

// metaZone returns the zone of the node that leads meta.
func (s *onNodes) metaZone(ctx context.Context) (int, error) {
	nodes, err := s.db.Admin().Nodes(ctx)
	if err != nil {
		return 0, err
	}
	for _, n := range nodes {
		for i, p := range s.cluster.Nodes() {
			if n.LeadsMeta && n.Addr == p.Listen {
				return i % zones, nil
			}
		}
	}
	return 0, errors.New("tpce: no node reports that it leads meta")
}

// timeline counts the transactions of each second.
type timeline struct {
	began   time.Time
	seconds []atomic.Int64
	failed  atomic.Int64
}

// done counts a transaction; a failed one may have committed, and is not counted.
func (t *timeline) done(_ kind, _ time.Time, err error) {
	if err != nil {
		t.failed.Add(1)
	} else if s := int(time.Since(t.began) / time.Second); s < len(t.seconds) {
		t.seconds[s].Add(1)
	}
}

// whole returns the counts of the first n seconds.
func (t *timeline) whole(n int) (out []int64) {
	for i := range n {
		out = append(out, t.seconds[i].Load())
	}
	return out
}

// judge records when the load was steady again after the kill.
func judge(r *harness.Run, seconds []int64, at, restarted int, failed int64) error {
	before := mean(seconds[at/2 : at]) // the first half warms up
	left := before * (zones - 1) / zones
	r.Value(killed, "recovery", "/s before", before)
	r.Value(killed, "recovery", "/s in the second of the kill", float64(seconds[at]))
	r.Value(killed, "recovery", "/s in the next", float64(seconds[at+1]))
	r.Value(killed, "recovery", "/s without them", mean(seconds[at+window:restarted]))
	r.Value(killed, "recovery", "/s at the end", mean(seconds[len(seconds)-2*window:]))
	r.Value(killed, "recovery", "failed transactions", float64(failed))
	for from := at + 1; from+window <= len(seconds); from++ {
		if mean(seconds[from:from+window]) >= steadyShare*left {
			r.Value(killed, "recovery", "s until steady", float64(from-at))
			return nil
		}
	}
	return fmt.Errorf("tpce: not steady again: %.0f transactions/s before, %.0f after", before, mean(seconds[at+1:]))
}

func mean(seconds []int64) float64 {
	var sum int64
	for _, n := range seconds {
		sum += n
	}
	return float64(sum) / float64(max(1, len(seconds)))
}
