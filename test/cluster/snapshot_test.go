package cluster_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/store"
	"github.com/percolator-go/percolator/test/cluster"
)

var snapshotSeed = flag.Uint64("snapshot-seed", 0,
	"of the moments of TestKilledWhileCatchingUp; 0 picks one")

// More than the log keeps for an absent replica, and the duration of the kills.
const (
	behindRows  = 80 // of 1 MiB; more than two checkpoints
	killRounds  = 4
	killsWithin = 30 * time.Second
)

// catchUp is a cluster of three whose last node is killed repeatedly while it catches up.
type catchUp struct {
	t   *testing.T
	ctx context.Context
	c   *cluster.Cluster
	db  *percolator.DB
	rng *rand.Rand
}

// TestKilledWhileCatchingUp: a node that has missed more than the log keeps is killed at random
// moments while snapshots arrive and are installed, some of them with its old rows cleared already;
// finally it equals the others.
func TestKilledWhileCatchingUp(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes and kills them")
	}
	seed := *snapshotSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-snapshot-seed=%d", seed)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	u := &catchUp{t: t, ctx: ctx, rng: rand.New(rand.NewPCG(seed, 0))}
	u.open()
	tablet := u.tablet()
	u.write(0, 8) // old rows, most of which are gone when the node returns
	u.must("kill", u.c.Node(2).Kill())
	u.must("delete", u.db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
		for i := range 6 {
			tx.Delete(fmt.Sprintf("r%05d", i), cell)
		}
		return nil
	}))
	u.write(8, behindRows)
	u.checkpoints()
	u.write(behindRows, behindRows+1) // which causes the truncation
	staged, installing := 0, 0
	for began, round := time.Now(), 0; round < killRounds &&
		time.Since(began) < killsWithin; round++ {
		u.must("start", u.c.Node(2).Start())
		late := round%2 == 1
		u.catchesUp(late)
		u.must("kill", u.c.Node(2).Kill())
		s, i := u.left()
		t.Logf("round %d: staged %v, installing %v", round, s > 0, i > 0)
		staged, installing = staged+min(s, 1), installing+min(i, 1)
		u.write(behindRows+round, behindRows+round+1)
	}
	if staged+installing == 0 {
		t.Error("no kill came while a snapshot was arriving: this test has not seen what it is for")
	}
	u.must("start", u.c.Node(2).Start())
	u.must("ready", u.c.Ready(ctx))
	v, err := handle.Client(u.db).Admin().VerifyTablet(ctx, &pb.VerifyTabletRequest{TabletId: tablet})
	if err != nil || !v.Equal || len(v.Replicas) != 3 {
		t.Fatalf("%v, %v", v, err)
	}
	// The traffic between nodes is exported, and none of it is refused.
	for i := range 2 {
		sent, refused := u.scrape(i, "percolator_peer_batches_total"),
			u.scrape(i, "percolator_remoting_refused_total")
		if sent == 0 || u.scrape(i, "percolator_remoting_received_batches_total") == 0 ||
			refused != 0 {
			t.Errorf("node %d: %v batches sent, %v messages refused", i, sent, refused)
		}
	}
	t.Logf("equal: %d entries; %d kills while a snapshot arrived, %d of them while it was installed",
		v.Replicas[0].Result.Entries, staged, installing)
}

func (u *catchUp) must(what string, err error) {
	u.t.Helper()
	if err != nil {
		u.t.Fatalf("%s: %v", what, err)
	}
}

func (u *catchUp) open() {
	c, err := cluster.New(cluster.Config{
		Nodes: 3, Dir: u.t.TempDir(), Args: []string{
			"--no-splits", "--snapshot-rate", "24MiB", "--log-level", "warn",
		},
	})
	u.must("make the cluster", err)
	u.t.Cleanup(func() { u.must("close", c.Close()) })
	u.c = c
	u.must("start", c.Start(u.ctx))
	u.db, err = c.Dial(u.ctx)
	u.must("dial", err)
	u.t.Cleanup(func() { _ = u.db.Close() })
	u.must("make the table", u.db.CreateTable(u.ctx, percolator.TableSpec{Name: cell.Table}))
}

// tablet returns the tablet with the rows, once it has three voters.
func (u *catchUp) tablet() uint64 {
	u.t.Helper()
	last := ""
	for u.ctx.Err() == nil {
		all, err := handle.Client(u.db).Transport().Locate(u.ctx, 16, "r", 1)
		last = fmt.Sprint(all, err)
		if err == nil && len(all) == 1 && voters(all[0]) == 3 {
			return all[0].TabletId
		}
		<-time.After(50 * time.Millisecond)
	}
	u.t.Fatal("no three voters: ", last)
	return 0
}

// voters returns the number of voters; 0 during a change.
func voters(d *pb.TabletDescriptor) (n int) {
	for _, r := range d.Replicas {
		if r.Learner || r.Incoming || r.Outgoing {
			return 0
		}
		n++
	}
	return n
}

// write writes rows of 1 MiB.
func (u *catchUp) write(from, to int) {
	u.t.Helper()
	value := make([]byte, 1<<20)
	for i := from; i < to; i++ {
		value[0] = byte(i)
		u.must("write", u.db.Transact(u.ctx, func(_ context.Context, tx *percolator.Tx) error {
			tx.Set(fmt.Sprintf("r%05d", i), cell, value)
			return nil
		}))
	}
}

// checkpoints waits until the running nodes have made a checkpoint of nearly all of their entries:
// the log may be truncated up to it.
func (u *catchUp) checkpoints() {
	u.t.Helper()
	const name = "percolator_log_replay_bytes"
	for u.scrape(0, name) > 32<<20 || u.scrape(1, name) > 32<<20 {
		select {
		case <-u.ctx.Done():
			u.t.Fatal("out of time")
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// catchesUp waits until a random part of a snapshot has been sent since the call; late means all of
// it, and some time for its installation. The node may also have caught up before.
func (u *catchUp) catchesUp(late bool) {
	u.t.Helper()
	const name = "percolator_snapshot_sent_bytes_total"
	sent := func() float64 { return u.scrape(0, name) + u.scrape(1, name) }
	part := u.rng.Float64() * (behindRows - 6)
	if late {
		part = behindRows - 8
	}
	before := sent()
	end := time.NewTimer(10 * time.Second)
	defer end.Stop()
	for sent()-before < part*(1<<20) {
		select {
		case <-end.C:
			return // it has installed one that was nearly complete, or continues from a marker
		case <-u.ctx.Done():
			u.t.Fatal("out of time")
		case <-time.After(5 * time.Millisecond):
		}
	}
	if late {
		<-time.After(time.Duration(u.rng.Int64N(int64(1500 * time.Millisecond))))
	}
}

// scrape reads a metric without labels from a node.
func (u *catchUp) scrape(i int, name string) float64 {
	u.t.Helper()
	metrics, err := u.c.Node(i).Metrics(u.ctx)
	u.must("scrape", err)
	value, there := metrics[name]
	if !there {
		u.t.Fatalf("node %d exports no %s", i, name)
	}
	return value
}

// left returns the killed node's remains of a snapshot: tablets with staged entries, and with an
// installation that has begun.
func (u *catchUp) left() (staged, installing int) {
	u.t.Helper()
	st, err := store.Open(store.Options{Dir: u.c.Node(2).Dir, ReclaimInterval: -1})
	u.must("open the killed node's store", err)
	snap := st.Snap()
	ids, err := snap.StagedTablets()
	u.must("look at it", err)
	for _, err := range snap.Installings() {
		u.must("look at it", err)
		installing++
	}
	snap.Close()
	u.must("close it", st.Close())
	return len(ids), installing
}
