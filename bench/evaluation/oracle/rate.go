package oracle

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/percolator-go/percolator/bench/evaluation/harness"
	"github.com/percolator-go/percolator/internal/mvcc"
)

const (
	rateTable    = "timestamps, three processes"
	latencyTable = "latency of a timestamp, open loop, 16 clients"
	// perSecond is the paper's rate (§2.3), and ours to reach.
	perSecond = 2_000_000
)

// load is a number of clients, and of callers of each.
type load struct {
	clients, callers int
	// batched leaves out the callers' goroutines: each client requests timestamps for all its callers
	// at once, one request after the other, which is what it sends if they all wait.
	batched bool
}

func (l load) String() string {
	if l.batched {
		return fmt.Sprintf("%d clients, requests of %d", l.clients, l.callers)
	}
	return fmt.Sprintf("%d clients × %d callers", l.clients, l.callers)
}

// loads ends with the one that is compared with the paper.
var loads = []load{
	{1, 1, false}, {1, 64, false}, {16, 64, false}, {16, 1024, false}, {16, 16, true}, {16, 64, true}, {16, 1024, true},
}

// rates measures how many timestamps callers obtain that ask again and again.
func (s *stage) rates(ctx context.Context) error {
	d := 1500 * time.Millisecond
	if s.r.Smoke {
		d = 100 * time.Millisecond
	}
	leader, err := s.leader(ctx)
	if err != nil {
		return err
	}
	for range s.r.Rounds {
		for _, l := range loads {
			if err := s.rate(ctx, l, leader.PID(), d); err != nil {
				return fmt.Errorf("%v: %w", l, err)
			}
		}
	}
	s.r.Note("Clients, oracle and two followers share two processors. With a goroutine for each caller the client's " +
		"goroutine switches are the limit, not the oracle; the requests of many timestamps are what clients send " +
		"when as many callers wait, as in the paper, whose clients ran on machines of their own.")
	return nil
}

// rate measures one load; the processor time is that of the process that grants timestamps.
func (s *stage) rate(ctx context.Context, l load, leader int, d time.Duration) (err error) {
	of, end, err := s.connect(ctx, l.clients)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	if _, err := closedLoop(ctx, of, l, d/5); err != nil { // a warm-up
		return err
	}
	cpu := harness.CPUOf(leader)
	count, err := closedLoop(ctx, of, l, d)
	if err != nil {
		return err
	}
	cpu = harness.CPUOf(leader) - cpu
	rate := float64(count) / d.Seconds()
	s.r.Value(rateTable, l.String(), "/s", rate)
	s.r.Value(rateTable, l.String(), "µs CPU of the oracle's process", float64(cpu.Microseconds())/float64(count))
	if l == loads[len(loads)-1] {
		s.r.Ratio(rateTable, l.String(), rate/perSecond, "≥ 1.0 of 2 M/s")
		s.r.Paper(rateTable, l.String(), "2 M/s (§2.3)")
	}
	return nil
}

// closedLoop has the callers of each client request timestamps for d. It returns the number of
// timestamps, and an error if those that one caller receives do not increase.
func closedLoop(ctx context.Context, of []client, l load, d time.Duration) (uint64, error) {
	var count atomic.Uint64
	var over atomic.Bool
	defer time.AfterFunc(d, func() { over.Store(true) }).Stop()
	g, ctx := errgroup.WithContext(ctx)
	for _, c := range of {
		ask, callers := func(ctx context.Context) (mvcc.Timestamp, int, error) {
			ts, err := c.one(ctx)
			return ts, 1, err
		}, l.callers
		if l.batched {
			ask, callers = func(ctx context.Context) (mvcc.Timestamp, int, error) { return c.many(ctx, l.callers) }, 1
		}
		for range callers {
			g.Go(func() error {
				var own int
				var last mvcc.Timestamp
				for !over.Load() {
					first, n, err := ask(ctx)
					if err != nil {
						return err
					}
					if first <= last {
						return fmt.Errorf("a caller received timestamp %d after timestamp %d; it must be greater", first, last)
					}
					last, own = first+mvcc.Timestamp(n-1), own+n
				}
				count.Add(uint64(own))
				return nil
			})
		}
	}
	err := g.Wait()
	return count.Load(), err
}

// latencies measures single timestamps at constant rates.
func (s *stage) latencies(ctx context.Context) error {
	d, rates := 3*time.Second, []float64{100, 1_000, 10_000, 50_000, 100_000}
	if s.r.Smoke {
		d, rates = 200*time.Millisecond, rates[:2]
	}
	const clients, plot = 16, "latency"
	of, end, err := s.connect(ctx, clients)
	if err != nil {
		return err
	}
	s.r.Axes(plot, "timestamps/s", "latency, ms", true, true)
	for range s.r.Rounds {
		for _, rate := range rates {
			l, err := harness.OpenLoop(ctx, rate, d, 50_000, func(ctx context.Context, i int) error {
				_, err := of[i%clients].one(ctx)
				return err
			})
			if err != nil {
				return errors.Join(fmt.Errorf("%.0f/s: %w", rate, err), end())
			}
			row := fmt.Sprintf("%.0f/s", rate)
			s.r.Value(latencyTable, row, "ms p50", l.Millis(0.5))
			s.r.Value(latencyTable, row, "ms p99", l.Millis(0.99))
			s.r.Point(plot, "p50", rate, l.Millis(0.5))
			s.r.Point(plot, "p99", rate, l.Millis(0.99))
		}
	}
	return end()
}
