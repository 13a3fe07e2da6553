package worker_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/rpc"
	"github.com/percolator-go/percolator/node"
	"github.com/percolator-go/percolator/worker"
)

var (
	input = percolator.Column{Table: "pages", Name: "input"}
	count = percolator.Column{Table: "pages", Name: "count"}
)

// openNode starts a node in memory without observers of its own.
func openNode(t testing.TB, change func(*node.Config)) *node.Node {
	t.Helper()
	cfg := node.DefaultConfig()
	cfg.Listen, cfg.HTTP, cfg.Insecure, cfg.Store.InMemory = "127.0.0.1:0", "", true, true
	cfg.Logger = quiet
	if change != nil {
		change(&cfg)
	}
	n, err := node.Open(within(t, time.Minute), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(within(t, time.Minute)); err != nil {
			t.Error(err)
		}
	})
	return n
}

var quiet = slog.New(slog.DiscardHandler)

func within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// running is a worker of a test.
type running struct {
	cancel context.CancelFunc
	done   chan error
	once   sync.Once
	err    error
}

// run starts a worker, and returns once a node has accepted its observers.
func run(t testing.TB, addr string, register func(*percolator.Registry), cfg worker.Config) *running {
	t.Helper()
	cfg.Client.Insecure, cfg.Client.Logger = true, quiet
	ready := make(chan struct{})
	cfg.Ready = func() { close(ready) }
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{cancel: cancel, done: make(chan error, 1)}
	go func() { r.done <- worker.Run(ctx, []string{addr}, register, cfg) }()
	t.Cleanup(func() { _ = r.stop() })
	select {
	case <-ready:
	case err := <-r.done:
		t.Fatalf("the worker has ended: %v", err)
	case <-time.After(20 * time.Second):
		t.Fatal("no node has accepted the worker")
	}
	return r
}

// stop drains the worker.
func (r *running) stop() error {
	r.once.Do(func() {
		r.cancel()
		r.err = <-r.done
	})
	return r.err
}

// counting registers an observer that adds to the row's count.
func counting(version int, ran func(n percolator.Notification)) func(*percolator.Registry) {
	return func(r *percolator.Registry) {
		r.Strong("count", input, func(ctx context.Context, tx *percolator.Tx, n percolator.Notification) error {
			v, _, err := tx.Get(ctx, n.Row, count)
			if err != nil {
				return err
			}
			tx.Set(n.Row, count, append(v, '+'))
			if ran != nil {
				ran(n)
			}
			return nil
		}, percolator.Version(version))
	}
}

func write(t testing.TB, db *percolator.DB, rows int) {
	t.Helper()
	for i := range rows {
		err := db.Transact(within(t, time.Minute), func(_ context.Context, tx *percolator.Tx) error {
			tx.Set(fmt.Sprintf("row/%05d", i), input, []byte("x"))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// counts returns how many rows have each count.
func counts(t testing.TB, db *percolator.DB) map[string]int {
	t.Helper()
	out := map[string]int{}
	each(t, db, percolator.Rows(count.Table), count, func(c percolator.Cell) { out[string(c.Value)]++ })
	return out
}

// each calls do with all cells of a column, in one snapshot.
func each(t testing.TB, db *percolator.DB, rows percolator.RowRange, col percolator.Column,
	do func(percolator.Cell)) {
	t.Helper()
	var all []percolator.Cell
	err := db.View(within(t, time.Minute), func(ctx context.Context, s *percolator.Snapshot) error {
		all = nil
		for c, err := range s.Scan(ctx, rows, col) {
			if err != nil {
				return err
			}
			all = append(all, c)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		do(c)
	}
}

func TestRunsObserversApartFromTheNode(t *testing.T) {
	n := openNode(t, nil)
	var runs atomic.Int64
	w := run(t, n.Addr(), counting(1, func(percolator.Notification) { runs.Add(1) }), worker.Config{})
	write(t, n.DB(), 200)
	if err := n.DB().WaitIdle(within(t, time.Minute)); err != nil {
		t.Fatal(err)
	}
	if got := counts(t, n.DB()); got["+"] != 200 || len(got) != 1 {
		t.Fatalf("counts %v, want 200 rows with one run", got)
	}
	if err := w.stop(); err != nil {
		t.Fatalf("drain: %v", err)
	}
	t.Log(runs.Load(), "runs")
}

// silentWorker is a worker that accepts cells and never runs them.
type silentWorker struct {
	t        testing.TB
	session  *rpc.WorkSession
	accepted atomic.Int64
	mute     atomic.Bool // it does not even show that it is alive
	ended    chan struct{}
}

func newSilentWorker(t testing.TB, addr string) *silentWorker {
	t.Helper()
	c, err := rpc.Dial(within(t, time.Minute), []string{addr}, rpc.ClientConfig{Insecure: true, Works: true})
	if err != nil {
		t.Fatal(err)
	}
	session, err := c.OpenWork(context.Background(), addr)
	if err != nil {
		t.Fatal(err)
	}
	w := &silentWorker{t: t, session: session, ended: make(chan struct{})}
	t.Cleanup(func() {
		_ = session.Close()
		<-w.ended
		_ = c.Close()
	})
	answers := make(chan *pb.WorkRequest, 1)
	answers <- &pb.WorkRequest{Hello: &pb.WorkHello{
		ClusterId: c.Cluster(), Incarnation: c.Worker().Incarnation, Credit: 1000,
		Observers: []*pb.WorkObserver{{Info: &pb.ObserverInfo{
			Name: "count", TableName: input.Table, Column: []byte(input.Name),
		}, Enough: 1000}},
	}, Scans: true}
	go func() {
		defer close(w.ended)
		for {
			m, err := session.Recv()
			if err != nil {
				return
			}
			answer := &pb.WorkRequest{Applied: m.GetSettings().GetNumber()}
			if o := m.GetOffer(); o != nil {
				n := len(o.GetCells())
				answer.Answers = []*pb.WorkAnswer{{First: o.GetFirst(), Admissions: make([]byte, n)}}
				w.accepted.Add(int64(n))
			}
			select {
			case answers <- answer:
			case <-time.After(time.Second): // mute
			}
		}
	}()
	go func() {
		for {
			select {
			case m := <-answers:
				if !w.mute.Load() && session.Send(m) != nil {
					return
				}
			case <-w.ended:
				return
			}
		}
	}()
	return w
}

// TestHandsOnTheCellsOfADeadWorker has a worker die with cells that it has accepted: when its
// connection breaks, or when it is silent, another worker has them within about a second, long
// before their advisory locks end.
func TestHandsOnTheCellsOfADeadWorker(t *testing.T) {
	for _, tc := range []struct {
		name string
		die  func(*silentWorker)
	}{
		{"its connection breaks", func(w *silentWorker) { _ = w.session.Close() }},
		{"it is silent", func(w *silentWorker) { w.mute.Store(true) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			n := openNode(t, nil)
			if err := n.DB().CreateTable(within(t, time.Minute), percolator.TableSpec{Name: input.Table}); err != nil {
				t.Fatal(err)
			}
			dead := newSilentWorker(t, n.Addr())
			const rows = 100
			eventually(t, "the observer is in the catalogue", func() bool {
				all, err := handle.Client(n.DB()).Transport().Observers(within(t, time.Minute))
				return err == nil && len(all) == 1
			})
			write(t, n.DB(), rows)
			eventually(t, "the silent worker has accepted the cells", func() bool { return dead.accepted.Load() >= rows })
			run(t, n.Addr(), counting(1, nil), worker.Config{})
			if got := counts(t, n.DB()); len(got) != 0 {
				t.Fatalf("counts %v while another worker has the cells", got)
			}
			died := time.Now()
			tc.die(dead)
			eventually(t, "the other worker has run for all cells", func() bool {
				return counts(t, n.DB())["+"] == rows || time.Since(died) > handOver
			})
			took := time.Since(died)
			t.Logf("handed on within %v", took)
			if took > handOver {
				t.Fatalf("handed on within %v, want about a second", took)
			}
		})
	}
}

// handOver is far above a second, since the machine may be busy, and far below the 30 s for which
// advisory locks last.
const handOver = 10 * time.Second

// eventually polls until the condition holds.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	tick, end := time.NewTicker(10*time.Millisecond), time.After(time.Minute)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// stateOf is what the cluster says of the observer.
func stateOf(t testing.TB, n *node.Node) *pb.ObserverState {
	t.Helper()
	all, err := handle.Client(n.DB()).Transport().Observers(within(t, time.Minute))
	if err != nil || len(all) != 1 {
		t.Fatalf("observers %v: %v", all, err)
	}
	return all[0]
}

// TestVersionsSideBySide deploys another version without a change of the node, drains the first one,
// and watches both in the figures.
func TestVersionsSideBySide(t *testing.T) {
	n := openNode(t, nil)
	var runs [3]atomic.Int64
	counter := func(version int) func(*percolator.Registry) {
		return counting(version, func(percolator.Notification) { runs[version].Add(1) })
	}
	first := run(t, n.Addr(), counter(1), worker.Config{Queue: 8})
	second := run(t, n.Addr(), counter(2), worker.Config{Queue: 8})
	written := 0
	more := func(what string, enough func() bool) {
		t.Helper()
		eventually(t, what, func() bool {
			err := n.DB().Transact(within(t, time.Minute), func(_ context.Context, tx *percolator.Tx) error {
				tx.Set(fmt.Sprintf("row/%05d", written), input, []byte("x"))
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			written++
			return enough()
		})
	}
	more("both versions run", func() bool { return runs[1].Load() > 5 && runs[2].Load() > 5 })
	eventually(t, "the figures have both versions", func() bool {
		s := stateOf(t, n)
		return s.Linked && len(s.Versions) == 2 && s.Status.GetCommits() > 0
	})
	if err := first.stop(); err != nil {
		t.Fatal(err)
	}
	before, old := runs[2].Load(), runs[1].Load()
	more("the second version goes on alone", func() bool { return runs[2].Load() > before+20 })
	if runs[1].Load() != old {
		t.Error("the first version has run after its drain")
	}
	if err := n.DB().WaitIdle(within(t, time.Minute)); err != nil {
		t.Fatal(err)
	}
	if got := counts(t, n.DB()); got["+"] != written || len(got) != 1 {
		t.Fatalf("counts %v, want %d rows with one run", got, written)
	}
	if err := second.stop(); err != nil {
		t.Fatal(err)
	}
}

// TestMetricsOfWorkers: a node's metrics count the runs of workers, also of those that have ended.
func TestMetricsOfWorkers(t *testing.T) {
	n := openNode(t, func(cfg *node.Config) { cfg.HTTP = "127.0.0.1:0" })
	metric := func(name string) float64 {
		t.Helper()
		resp, err := http.Get("http://" + n.HTTPAddr() + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			if value, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
				v, err := strconv.ParseFloat(value, 64)
				if err != nil {
					t.Fatal(err)
				}
				return v
			}
		}
		return -1
	}
	const runs = `percolator_worker_runs_total{observer="count"}`
	for i := range 2 {
		before := max(metric(runs), 0)
		fail := atomic.Bool{}
		fail.Store(true)
		w := run(t, n.Addr(), func(r *percolator.Registry) {
			r.Strong("count", input, func(context.Context, *percolator.Tx, percolator.Notification) error {
				if fail.CompareAndSwap(true, false) {
					return errors.New("once")
				}
				return nil
			})
		}, worker.Config{})
		eventually(t, "the worker reports", func() bool {
			return metric("percolator_worker_sessions") == 1 && metric(runs) >= 0
		})
		write(t, n.DB(), 20)
		if err := n.DB().WaitIdle(within(t, time.Minute)); err != nil {
			t.Fatal(err)
		}
		if err := w.stop(); err != nil {
			t.Fatal(err)
		}
		if got := metric(runs) - before; got < 21 || metric("percolator_worker_sessions") != 0 {
			t.Errorf("%v runs of worker %d, want at least 21", got, i)
		}
		if got := metric(`percolator_worker_failures_total{observer="count"}`); got != float64(i+1) {
			t.Errorf("%v failures, want %d", got, i+1)
		}
	}
	if metric(`percolator_worker_run_seconds_total{observer="count"}`) <= 0 {
		t.Error("the runs took no time")
	}
}

// TestDrainWaitsForRuns stops a worker during a run: the run commits, and another worker gets the
// queue.
func TestDrainWaitsForRuns(t *testing.T) {
	n := openNode(t, nil)
	began, release := make(chan struct{}, 100), make(chan struct{})
	slow := run(t, n.Addr(), func(r *percolator.Registry) {
		r.Strong("count", input, func(ctx context.Context, tx *percolator.Tx, n percolator.Notification) error {
			began <- struct{}{}
			<-release
			tx.Set(n.Row, count, []byte("slow"))
			return nil
		}, percolator.Concurrency(1))
	}, worker.Config{})
	const rows = 20
	write(t, n.DB(), rows)
	<-began
	stopped := make(chan error, 1)
	go func() { stopped <- slow.stop() }()
	run(t, n.Addr(), counting(2, nil), worker.Config{})
	eventually(t, "the others run elsewhere", func() bool { return counts(t, n.DB())["+"] == rows-1 })
	close(release)
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
	if got := counts(t, n.DB()); got["slow"] != 1 || got["+"] != rows-1 {
		t.Fatalf("counts %v, want one run of the drained worker", got)
	}
}

// TestPauseReachesWorkers pauses an observer: after the answer no run of a worker starts.
func TestPauseReachesWorkers(t *testing.T) {
	n := openNode(t, nil)
	var runs atomic.Int64
	run(t, n.Addr(), counting(1, func(percolator.Notification) { runs.Add(1) }), worker.Config{})
	write(t, n.DB(), 10)
	eventually(t, "the observer runs", func() bool { return counts(t, n.DB())["+"] == 10 })
	control := func(paused bool) {
		t.Helper()
		_, err := handle.Client(n.DB()).Admin().ControlObserver(within(t, time.Minute),
			&pb.ControlObserverRequest{Name: "count", Paused: &paused})
		if err != nil {
			t.Fatal(err)
		}
	}
	control(true)
	before := runs.Load()
	write(t, n.DB(), 10)
	run(t, n.Addr(), counting(1, func(percolator.Notification) { runs.Add(1) }), worker.Config{})
	if got := runs.Load(); got != before {
		t.Fatalf("%d runs after the pause", got-before)
	}
	control(false)
	eventually(t, "the observer runs again", func() bool { return counts(t, n.DB())["++"] == 10 })
}

// TestRefusesContradictions has Run return why the cluster does not accept its observers.
func TestRefusesContradictions(t *testing.T) {
	n := openNode(t, nil)
	run(t, n.Addr(), counting(1, nil), worker.Config{})
	other := func(r *percolator.Registry) {
		r.Strong("count", count, func(context.Context, *percolator.Tx, percolator.Notification) error { return nil })
	}
	cfg := worker.Config{Client: percolator.ClientConfig{Insecure: true, Logger: quiet}}
	err := worker.Run(within(t, time.Minute), []string{n.Addr()}, other, cfg)
	if !errors.Is(err, percolator.ErrInvalid) {
		t.Errorf("an observer of the same name elsewhere: %v", err)
	}
	err = worker.Run(within(t, time.Minute), []string{n.Addr()}, func(*percolator.Registry) {}, cfg)
	if !errors.Is(err, percolator.ErrInvalid) {
		t.Errorf("no observer: %v", err)
	}
}
