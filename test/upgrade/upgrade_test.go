package upgrade

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/backup"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/health"
	"github.com/percolator-go/percolator/internal/version"
	"github.com/percolator-go/percolator/test/cluster"
	"github.com/percolator-go/percolator/test/workload"
)

func TestMain(m *testing.M) {
	cluster.Main(nil)
	os.Exit(m.Run())
}

// upgrade is a cluster whose nodes are switched between two builds.
type upgrade struct {
	*cluster.Cluster
	t     *testing.T
	ctx   context.Context
	db    *percolator.DB
	rng   *rand.Rand
	early string // the binary of the earlier build; this program is the later one
	load  *load
	// format is the format of the first directory that unused read.
	format string
}

// TestRollingUpgrade: three nodes of an earlier build are upgraded one by one under load, each
// terminated or killed, then rolled back, and so on until DURATION is over. No feature unknown to
// the earlier build is used. Then the upgrade is finalised, which was refused before; new features
// are used, and the earlier build is refused. No history of the load contradicts snapshot
// isolation.
func TestRollingUpgrade(t *testing.T) {
	duration, err := time.ParseDuration(cmp.Or(os.Getenv("DURATION"), "0s"))
	if err != nil {
		t.Fatal(err)
	}
	seed, err := strconv.ParseUint(cmp.Or(os.Getenv("SEED"), "1"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), duration+5*time.Minute)
	defer cancel()
	u := &upgrade{t: t, ctx: ctx, rng: rand.New(rand.NewPCG(seed, 0)), early: earlier(ctx, t)}
	u.Cluster, err = cluster.New(cluster.Config{Nodes: 3, Dir: t.TempDir()})
	must(t, err)
	t.Cleanup(func() {
		if err := u.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, p := range u.Nodes() {
		p.Binary = u.early
	}
	must(t, u.Start(ctx))
	if u.db, err = u.Dial(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = u.db.Close() })
	u.load = begin(ctx, t, u.db, seed)
	u.sound("the cluster has begun")
	u.unused("at the beginning")

	began := time.Now()
	u.exchange(0, "")
	u.unused("one node is upgraded")
	u.notFinal(u.Node(0).Listen, fmt.Sprintf("not every node supports version %d", version.Known().Newest))
	u.exchange(0, u.early) // rolled back
	for {
		for i := range u.Nodes() {
			u.exchange(i, "")
		}
		u.unused("all nodes are upgraded")
		u.told(health.UpgradeOpen)
		if time.Since(began) >= duration {
			break
		}
		for i := range u.Nodes() {
			u.exchange(i, u.early)
		}
		u.unused("all nodes are rolled back")
		t.Logf("%v: upgraded and rolled back", time.Since(began).Round(time.Second))
	}
	u.finalize()
	u.refused(u.rng.IntN(3))
	u.load.end(t)
}

// earlier builds the binary of the earlier build.
func earlier(ctx context.Context, t *testing.T) string {
	t.Helper()
	out, source := filepath.Join(t.TempDir(), "percolator"), filepath.Join("..", "..")
	const pkg = "github.com/percolator-go/percolator/internal/version"
	flags := "-X " + pkg + ".stamped=earlier -X " + pkg + ".stampedRange=2-2"
	if from := os.Getenv("FROM"); from != "" {
		at := filepath.Join(t.TempDir(), "source")
		must(t, run(ctx, source, "git", "worktree", "add", "--detach", at, from))
		t.Cleanup(func() {
			must(t, run(context.Background(), source, "git", "worktree", "remove", "--force", at))
		})
		source, flags = at, "-X "+pkg+".stamped="+from
		if knows := os.Getenv("KNOWS"); knows != "" {
			flags += " -X " + pkg + ".stampedRange=" + knows
		}
	}
	must(t, run(ctx, source, "go", "build", "-buildvcs=false", "-ldflags", flags, "-o", out, "./cmd/node"))
	return out
}

func run(ctx context.Context, dir, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", name, err, out)
	}
	return nil
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// exchange terminates or kills a node and starts it with a binary; empty: this program.
func (u *upgrade) exchange(i int, binary string) {
	u.t.Helper()
	p := u.Node(i)
	if u.rng.IntN(2) == 0 {
		must(u.t, p.Kill())
	} else {
		must(u.t, p.Terminate(time.Minute))
	}
	p.Binary = binary
	must(u.t, p.Start())
	u.load.more(u.ctx, u.t)
	u.sound(fmt.Sprintf("node %d was exchanged", i))
}

// status returns the state of the cluster.
func (u *upgrade) status() *pb.ClusterStatusResponse {
	ctx, cancel := context.WithTimeout(u.ctx, 5*time.Second)
	defer cancel()
	s, err := handle.Client(u.db).Admin().ClusterStatus(ctx, &pb.ClusterStatusRequest{})
	if err != nil {
		return &pb.ClusterStatusResponse{Survives: -1}
	}
	return s
}

// sound waits until all nodes answer and any one of them may fail.
func (u *upgrade) sound(when string) {
	u.t.Helper()
	var s *pb.ClusterStatusResponse
	defer func() {
		if u.t.Failed() {
			u.t.Logf("the cluster: survives %d, %v", s.GetSurvives(), s.GetFindings())
		}
	}()
	u.until(when+", and the cluster survives the next", func() bool {
		s = u.status()
		for _, n := range s.Nodes {
			if n.Status == nil {
				return false
			}
		}
		return len(s.Nodes) == 3 && s.Survives >= 1
	})
}

// told waits for a finding of the kind.
func (u *upgrade) told(kind string) {
	u.t.Helper()
	u.until("a finding "+kind, func() bool {
		for _, f := range u.status().Findings {
			if f.Kind == kind {
				return true
			}
		}
		return false
	})
}

func (u *upgrade) until(what string, ok func() bool) {
	u.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-u.ctx.Done():
			u.t.Fatalf("not in time: %s", what)
		}
	}
}

// formatLine matches the format in a directory's file VERSION.
var formatLine = regexp.MustCompile(`(?m)^format \d+$`)

// unused checks that no node uses a feature unknown to the earlier build: directories keep the format
// of the beginning, and in format 2 nodes refuse backups.
func (u *upgrade) unused(when string) {
	u.t.Helper()
	for _, p := range u.Nodes() {
		text, err := os.ReadFile(filepath.Join(p.Dir, "VERSION"))
		format := formatLine.FindString(string(text))
		u.format = cmp.Or(u.format, format)
		if err != nil || format == "" || format != u.format {
			u.t.Errorf("FEATURE-BEFORE-FINAL: %s: the directory of node %d is %q, %v, want %s",
				when, p.Index, text, err, u.format)
		}
		if format != "format 2" {
			continue
		}
		err = u.backUp(p.Listen)
		if err == nil || !strings.Contains(err.Error(), "needs the cluster to be at version 3, and it is at 2") {
			u.t.Errorf("FEATURE-BEFORE-FINAL: %s: a backup through node %d: %v", when, p.Index, err)
		}
	}
}

// backUp makes a backup through one node.
func (u *upgrade) backUp(addr string) error {
	db, err := percolator.Dial(u.ctx, []string{addr}, u.ClientConfig())
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	l, err := backup.Open(u.ctx, u.t.TempDir())
	if err != nil {
		return err
	}
	_, err = backup.Create(u.ctx, handle.Client(db), l, backup.CreateOptions{})
	return err
}

// dial connects to one node, until the test ends.
func (u *upgrade) dial(addr string) *percolator.DB {
	u.t.Helper()
	db, err := percolator.Dial(u.ctx, []string{addr}, u.ClientConfig())
	must(u.t, err)
	u.t.Cleanup(func() { _ = db.Close() })
	return db
}

// notFinal checks that the node at addr refuses to finalise the upgrade, for the reason why.
func (u *upgrade) notFinal(addr, why string) {
	u.t.Helper()
	r, err := handle.Client(u.dial(addr)).Admin().FinalizeUpgrade(u.ctx, &pb.FinalizeUpgradeRequest{})
	if err == nil || !strings.Contains(err.Error(), why) {
		u.t.Errorf("FINALISED-WITHOUT-ALL: %v, %v, want %q", r, err, why)
	}
}

// finalize finalises the upgrade, after which new features are used.
func (u *upgrade) finalize() {
	u.t.Helper()
	r, err := handle.Client(u.db).Admin().FinalizeUpgrade(u.ctx, &pb.FinalizeUpgradeRequest{})
	must(u.t, err)
	if want := uint32(version.Known().Newest); !r.Changed || r.Agreed.GetActive() != want {
		u.t.Errorf("finalised: %v, want version %d", r, want)
	}
	for _, p := range u.Nodes() {
		text, err := os.ReadFile(filepath.Join(p.Dir, "VERSION"))
		if err != nil || !strings.Contains(string(text), raisedLine()) {
			u.t.Errorf("the directory of node %d is %q, %v", p.Index, text, err)
		}
		if err := u.backUp(p.Listen); err != nil {
			u.t.Errorf("a backup through node %d: %v", p.Index, err)
		}
	}
}

// refused checks that the earlier build does not start on the node's directory, and that the node's
// log has the reason. Then it restarts the node with the later build.
func (u *upgrade) refused(i int) {
	u.t.Helper()
	p := u.Node(i)
	must(u.t, p.Kill())
	p.Binary = u.early
	must(u.t, p.Start())
	// The texts of this build, of the first builds with version numbers, and of earlier ones.
	newest := version.Known().Newest
	u.ends(p, fmt.Sprintf("has disk version %d, and this build supports", newest),
		fmt.Sprintf("is of version %d, and this build knows 2", newest),
		fmt.Sprintf("has disk format %d, this version needs format 2", newest))
	p.Binary = ""
	must(u.t, p.Start())
	u.sound("a node that was refused is back")
}

// ends waits until a node has exited with one of the texts in its log.
func (u *upgrade) ends(p *cluster.Process, texts ...string) {
	u.t.Helper()
	u.until(fmt.Sprintf("node %d ends", p.Index), func() bool { return !p.Running() })
	log, err := os.ReadFile(p.Log())
	must(u.t, err)
	for _, text := range texts {
		if strings.Contains(string(log[max(0, len(log)-4096):]), text) {
			return
		}
	}
	u.t.Errorf("WRONG-VERSION-LET-IN: node %d ended (%v), and its log has none of %q", p.Index, p.Died(), texts)
}

// load runs workloads repeatedly, each time with a check of the whole history.
type load struct {
	stop   chan struct{}
	runs   sync.WaitGroup
	tally  workload.Tally
	rounds atomic.Int64
}

// round is the duration of a workload before its history is checked.
const round = 3 * time.Second

// begin starts the load.
func begin(ctx context.Context, t *testing.T, db *percolator.DB, seed uint64) *load {
	t.Helper()
	must(t, workload.Prepare(ctx, db, 3))
	must(t, workload.OpenBank(ctx, db))
	l := &load{stop: make(chan struct{})}
	for i, w := range []workload.Workload{
		{Name: "bank", Run: workload.Bank}, {Name: "list append", Run: workload.ListAppend},
		{Name: "register", Run: workload.Register}, {Name: "lost update", Run: workload.LostUpdate},
	} {
		l.runs.Go(func() {
			for n := uint64(0); !l.ended() && ctx.Err() == nil; n++ {
				err := w.Run(ctx, db, workload.Load{
					Workers: 4, Duration: round, Seed: seed<<32 + n<<8 + uint64(i), Pause: 20 * time.Millisecond,
					Tally: &l.tally,
				})
				if err != nil && ctx.Err() == nil {
					t.Errorf("ISOLATION: %s: %v", w.Name, err)
					return
				}
				l.rounds.Add(1)
			}
		})
	}
	t.Cleanup(func() { l.end(t) })
	return l
}

func (l *load) ended() bool {
	select {
	case <-l.stop:
		return true
	default:
		return false
	}
}

// more waits for a hundred more operations.
func (l *load) more(ctx context.Context, t *testing.T) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for want := l.tally.Figures().Done + 100; l.tally.Figures().Done < want; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("the load does not continue: %+v", l.tally.Figures())
		}
	}
}

// end stops the load, and waits for its last checks.
func (l *load) end(t *testing.T) {
	if l.ended() {
		return
	}
	close(l.stop)
	l.runs.Wait()
	t.Logf("%d checked histories of %+v", l.rounds.Load(), l.tally.Figures())
}
