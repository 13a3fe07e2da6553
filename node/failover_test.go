package node_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/node"
	"github.com/percolator-go/percolator/test/workload"
)

// awaitTrue waits until ok holds.
func awaitTrue(ctx context.Context, t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s: not in time", what)
		}
	}
}

// tablets returns the tablet map of a running node.
func (r *rig) tablets(ctx context.Context) []*pb.TabletDescriptor {
	for _, n := range r.nodes {
		if n != nil {
			found, _ := handle.Client(n.DB()).Transport().Locate(ctx, 0, "", 1000)
			return found
		}
	}
	return nil
}

// spread waits until every tablet has this number of voters.
func (r *rig) spread(ctx context.Context, voters int) {
	r.t.Helper()
	awaitTrue(ctx, r.t, "replicas on all nodes", func() bool {
		for _, d := range r.tablets(ctx) {
			n := 0
			for _, p := range d.Replicas {
				if !p.Learner && !p.Incoming && !p.Outgoing {
					n++
				}
			}
			if n != voters {
				return false
			}
		}
		return true
	})
}

// status returns the report of a tablet's leader; nil if there is none.
func (r *rig) status(ctx context.Context, tablet uint64) *pb.StatusResponse {
	for _, n := range r.nodes {
		if n == nil {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		resp, err := handle.Client(n.DB()).Transport().Send(ctx, &pb.TabletDescriptor{TabletId: tablet},
			&pb.TabletRequest{
				TabletId: tablet, Op: &pb.TabletRequest_Status{Status: &pb.StatusRequest{}},
			})
		if err == nil && resp.GetStatus().GetLeader() {
			return resp.GetStatus()
		}
	}
	return nil
}

// lead transfers the tablet's leadership to a node.
func (r *rig) lead(ctx context.Context, tablet uint64, i int) {
	r.t.Helper()
	id := r.id(i)
	awaitTrue(ctx, r.t, fmt.Sprintf("node %d leads tablet %d", i, tablet), func() bool {
		if s := r.status(ctx, tablet); s != nil && s.NodeId == id {
			return true
		}
		_, _ = handle.Client(r.nodes[i].DB()).Transport().Send(ctx,
			&pb.TabletDescriptor{TabletId: tablet}, &pb.TabletRequest{
				TabletId: tablet, Op: &pb.TabletRequest_TransferLeader{
					TransferLeader: &pb.TransferLeaderRequest{NodeId: id},
				},
			})
		return false
	})
}

// three starts three nodes, with tables of n tablets, and waits until each tablet has three
// replicas.
func three(ctx context.Context, t *testing.T, tablets int,
	change func(i int, c *node.Config)) *rig {
	t.Helper()
	r := newRig(t, 3, func(i int, c *node.Config) {
		// leaders stay where the test puts them
		c.Placement.Busy, c.Placement.Rest = 50*time.Millisecond, time.Hour
		if change != nil {
			change(i, c)
		}
	})
	if err := workload.Prepare(ctx, r.nodes[0].DB(), tablets); err != nil {
		t.Fatal(err)
	}
	if err := workload.OpenBank(ctx, r.nodes[0].DB()); err != nil {
		t.Fatal(err)
	}
	r.spread(ctx, 3)
	return r
}

func (r *rig) handles() (out []*percolator.DB) {
	for _, n := range r.nodes {
		if n != nil {
			out = append(out, n.DB())
		}
	}
	return out
}

// TestThreeNodes: tablets led by different nodes, under workloads through all nodes at once.
func TestThreeNodes(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	r := three(ctx, t, 3, nil)
	for i, d := range r.tablets(ctx) {
		r.lead(ctx, d.TabletId, i%3)
	}
	dbs := r.handles()
	l := workload.Load{Workers: 6, Duration: 2 * time.Second, Seed: 5, Others: dbs[1:]}
	for name, run := range map[string]func(context.Context, *percolator.DB, workload.Load) error{
		"bank": workload.Bank, "list append": workload.ListAppend, "monotonic": workload.Monotonic,
		"lost update": workload.LostUpdate,
	} {
		if err := run(ctx, dbs[0], l); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// stamps takes timestamps from handles, one after the other, and checks that each is above all
// those returned before its request.
type stamps struct {
	mu      sync.Mutex
	highest mvcc.Timestamp
	taken   int
	worst   time.Duration
	last    time.Time
}

func (s *stamps) take(ctx context.Context, db *percolator.DB) error {
	s.mu.Lock()
	floor := s.highest
	s.mu.Unlock()
	attempt, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	ts, err := handle.Client(db).Timestamp(attempt)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if ts <= floor {
		return fmt.Errorf("timestamp %d, and %d had been returned before it was asked for", ts,
			floor)
	}
	now := time.Now()
	if !s.last.IsZero() {
		s.worst = max(s.worst, now.Sub(s.last))
	}
	s.highest, s.last = max(s.highest, ts), now
	s.taken++
	return nil
}

// TestOracleFailsOver: the node that leads meta dies. Timestamps continue through the others,
// strictly increasing.
func TestOracleFailsOver(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	r := three(ctx, t, 1, nil)
	r.lead(ctx, cluster.MetaTablet, 2)
	var s stamps
	running, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	for w := range 4 {
		db := r.nodes[w%2].DB()
		wg.Go(func() {
			for running.Err() == nil {
				if err := s.take(running, db); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	awaitTrue(ctx, t, "timestamps", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.taken > 1000
	})
	r.crash(2)
	s.mu.Lock()
	before := s.taken
	s.mu.Unlock()
	awaitTrue(ctx, t, "timestamps after the oracle's death", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.taken > before+1000
	})
	stop()
	wg.Wait()
	t.Logf("%d timestamps; the longest pause was %v", s.taken, s.worst)
	if s.worst > 10*time.Second {
		t.Errorf("there was no timestamp for %v", s.worst)
	}
}

// TestBankWhileALeaderIsCutOff: the nodes are isolated in turn and reconnected under load. No money
// is lost or created.
func TestBankWhileALeaderIsCutOff(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	r := three(ctx, t, 3, nil)
	done := make(chan error, 1)
	dbs := r.handles()
	l := workload.Load{Workers: 6, Duration: 8 * time.Second, Seed: 6, Others: dbs[1:]}
	began := time.Now()
	go func() { done <- workload.Bank(ctx, dbs[0], l) }()
	tick := time.NewTicker(1500 * time.Millisecond)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case err := <-done:
			r.network.Heal()
			if err != nil {
				t.Error(err)
			}
			if err := workload.CheckBank(ctx, r.nodes[0].DB()); err != nil {
				t.Error(err)
			}
			return
		case <-tick.C:
			if r.network.Heal(); i%2 == 0 && time.Since(began) < l.Duration {
				r.network.Isolate(r.id(i / 2 % 3))
			}
		}
	}
}

// TestRollingRestart: every node in turn transfers its leaderships, stops and returns, under load.
// A client of all three nodes with a timeout of 10 s for each transaction sees no error.
func TestRollingRestart(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	addrs := []string{freeAddr(t), freeAddr(t), freeAddr(t)} // of all lives of a node
	r := three(ctx, t, 2, func(i int, c *node.Config) { c.Listen = addrs[i] })
	remote, err := percolator.Dial(ctx, addrs, percolator.ClientConfig{Insecure: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = remote.Close() }()
	running, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	column := percolator.Column{Table: workload.Table, Name: "rolling"}
	writes := make([]atomic.Int64, 4)
	more := func(what string) {
		var before [4]int64
		for w := range writes {
			before[w] = writes[w].Load()
		}
		awaitTrue(ctx, t, "writes go on "+what, func() bool {
			for w := range writes {
				if writes[w].Load() < before[w]+25 {
					return false
				}
			}
			return true
		})
	}
	for w := range writes {
		wg.Go(func() {
			for running.Err() == nil {
				attempt, cancel := context.WithTimeout(running, 10*time.Second)
				err := remote.Transact(attempt, func(_ context.Context, tx *percolator.Tx) error {
					tx.Set(fmt.Sprintf("%02x/%d", w*60, w), column, []byte("x"))
					return nil
				})
				cancel()
				if err != nil && running.Err() == nil {
					t.Errorf("a patient caller: %v", err)
				}
				writes[w].Add(1)
			}
		})
	}
	for i := range r.nodes {
		more("before the restart")
		began := time.Now()
		r.stop(i)
		t.Logf("node %d ended in %v", i, time.Since(began))
		more("without the node")
		pause := time.Since(began)
		t.Logf("all have written on after %v", pause)
		if pause > 4*time.Second {
			t.Errorf("writes were held up for %v by a node that had handed over", pause)
		}
		r.start(i)
		t.Logf("node %d is back after %v", i, time.Since(began))
		r.spread(ctx, 3)
	}
	more("after the last restart")
	stop()
	wg.Wait()
	if err := workload.CheckBank(ctx, r.nodes[0].DB()); err != nil {
		t.Error(err)
	}
}

// TestDialFailsOver: the node of a remote client dies during its calls. They continue through the
// others, within 10 s of runningTime each; a commit that was under way may return only an unknown
// outcome.
func TestDialFailsOver(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	r := three(ctx, t, 2, nil)
	var addrs []string
	for _, i := range []int{1, 0, 2} { // the first that answers is used
		addrs = append(addrs, r.nodes[i].Addr())
	}
	remote, err := percolator.Dial(ctx, addrs, percolator.ClientConfig{Insecure: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = remote.Close() }()
	running, stop := context.WithCancel(ctx)
	column := percolator.Column{Table: workload.Table, Name: "count"}
	var wg sync.WaitGroup
	var done, unknown [4]atomic.Int64
	ran := runningTime(ctx)
	for w := range 4 {
		row := fmt.Sprintf("%02x/%d", w*60, w)
		wg.Go(func() {
			for running.Err() == nil {
				began := ran()
				attempt, cancel := context.WithTimeout(ctx, time.Minute)
				err := remote.Transact(attempt, func(ctx context.Context, tx *percolator.Tx) error {
					before, _, err := tx.Get(ctx, row, column)
					tx.Set(row, column, append(before, 'x'))
					return err
				})
				cancel()
				if took := ran() - began; took > 10*time.Second {
					t.Errorf("a call took %v", took)
				}
				switch {
				case err == nil:
					done[w].Add(1)
				case errors.Is(err, percolator.ErrCommitUnknown):
					unknown[w].Add(1)
				default:
					t.Errorf("a patient caller: %v", err)
					return
				}
			}
		})
	}
	grown := func(by int64) func() bool {
		before := done[0].Load()
		return func() bool { return done[0].Load() >= before+by }
	}
	awaitTrue(ctx, t, "transactions through the first node", grown(20))
	r.crash(1)
	awaitTrue(ctx, t, "transactions through another node", grown(50))
	stop()
	wg.Wait()
	for w := range 4 {
		var value []byte
		err := r.nodes[0].DB().Transact(ctx,
			func(ctx context.Context, tx *percolator.Tx) (err error) {
				value, _, err = tx.Get(ctx, fmt.Sprintf("%02x/%d", w*60, w), column)
				return err
			})
		least, most := done[w].Load(), done[w].Load()+unknown[w].Load()
		if n := int64(len(value)); err != nil || n < least || n > most {
			t.Errorf("worker %d: %d changes are there, of %d that are known and %d that may be: %v",
				w, n, least, unknown[w].Load(), err)
		}
	}
}
