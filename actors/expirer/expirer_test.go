package expirer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/txn/txntest"
)

// world is a repository in memory with a table of events, the client that writes them, and an
// expiry job that a test executes turn by turn in virtual time.
type world struct {
	t       *testing.T
	cluster *txntest.Cluster
	process *txntest.Process // the job's
	client  *txn.Client
	job     *txn.Client
	work    *work
	stats   *Stats
	table   *pb.Table
	skew    time.Duration // of the clock of the job's node
	scans   int           // requests sent by the job
}

func newWorld(t *testing.T, expiry *pb.TableExpiry) *world {
	w := &world{t: t, cluster: txntest.New()}
	w.table = &pb.Table{Name: "events", Id: uint32(w.cluster.AddTable("events", "m")), Expiry: expiry}
	w.client = txn.NewClient(w.cluster.Process(1, 1), txn.Config{})
	w.process = w.cluster.Process(2, 1)
	w.inject(nil)
	w.job = txn.NewClient(w.process, txn.Config{LockTTL: time.Second})
	w.lead()
	t.Cleanup(func() {
		for _, c := range []*txn.Client{w.client, w.job} {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	return w
}

// inject counts the job's requests and calls before for each.
func (w *world) inject(before func(*pb.TabletRequest) txntest.Fault) {
	w.process.Inject(func(req *pb.TabletRequest) txntest.Fault {
		if req.GetScan() != nil {
			w.scans++
		}
		if before == nil {
			return txntest.Fault{}
		}
		return before(req)
	})
}

// lead creates the job of a node that has just become leader of meta.
func (w *world) lead() {
	w.stats = new(Stats)
	cfg, err := Config{
		Tables: w, Client: w.job, Stats: w.stats,
		Now: func() time.Time { return time.Now().Add(w.skew) },
	}.withDefaults()
	if err != nil {
		w.t.Fatal(err)
	}
	w.work = newWork(cfg)
}

func (w *world) Tables(context.Context) ([]*pb.Table, error) { return []*pb.Table{w.table}, nil }

// set writes cells, named ROW.COLUMN.
func (w *world) set(cells ...string) mvcc.Timestamp {
	w.t.Helper()
	ts, err := w.client.Run(w.t.Context(), txn.Options{}, func(_ context.Context, t *txn.Txn) error {
		for _, cell := range cells {
			t.Set(txn.Key{Table: "events", Row: cell[:1], Column: cell[2:]}, []byte(cell))
		}
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return ts
}

// run runs the job for a duration.
func (w *world) run(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		<-time.After(min(max(w.work.turn(w.t.Context()), time.Millisecond), time.Until(end)))
	}
}

// read lists the cells of a snapshot.
func (w *world) read(s *txn.Snapshot) (cells []string) {
	w.t.Helper()
	for c, err := range s.Scan(w.t.Context(), txn.ScanSpec{Table: "events"}) {
		if err != nil {
			w.t.Fatal(err)
		}
		cells = append(cells, c.Cell.Row+"."+c.Cell.Column)
	}
	return cells
}

// expect compares the existing cells.
func (w *world) expect(want ...string) {
	w.t.Helper()
	s, err := w.client.Snapshot(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if got := w.read(s); !slices.Equal(got, want) {
		w.t.Errorf("EXPIRED-WRONGLY: the cells are %v, want %v", got, want)
	}
}

func bubble(t *testing.T, expiry *pb.TableExpiry, test func(t *testing.T, w *world)) {
	synctest.Test(t, func(t *testing.T) { test(t, newWorld(t, expiry)) })
}

func minutes(n uint64) uint64 { return n * 60_000 }

// ages is an expiry after 2 min; of "long" after 10 min, of "kept" never.
func ages() *pb.TableExpiry {
	return &pb.TableExpiry{AfterMs: minutes(2), Columns: []*pb.ColumnExpiry{
		{Column: []byte("kept")}, {Column: []byte("long"), AfterMs: minutes(10)},
	}}
}

// TestExpiresByColumn: each column expires by its own age, counted from the newest write, and not
// earlier. An older snapshot still reads the cell.
func TestExpiresByColumn(t *testing.T) {
	bubble(t, ages(), func(t *testing.T, w *world) {
		w.set("a.x", "b.x", "z.x", "z.long", "z.kept")
		w.run(time.Minute)
		w.set("b.x")
		before, err := w.client.Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = before.Close() }()
		w.run(59 * time.Second)
		w.expect("a.x", "b.x", "z.kept", "z.long", "z.x")
		w.run(20 * time.Second) // an interval of 6 s, and a pause
		w.expect("b.x", "z.kept", "z.long")
		if got := len(w.read(before)); got != 5 {
			t.Errorf("SNAPSHOT-CHANGED: %d of 5 cells are left in a snapshot", got)
		}
		w.run(time.Minute)
		w.expect("z.kept", "z.long")
		w.run(8 * time.Minute)
		w.expect("z.kept")
		if n := w.stats.Deleted.Load(); n != 4 {
			t.Errorf("deleted %d cells, want 4", n)
		}
	})
}

// TestWhatIsNotDueCostsNothing: between two due times nothing is read.
func TestWhatIsNotDueCostsNothing(t *testing.T) {
	bubble(t, &pb.TableExpiry{AfterMs: minutes(1000)}, func(t *testing.T, w *world) {
		w.set("a.x")
		w.run(time.Minute)
		first := w.scans
		w.run(900 * time.Minute)
		if w.scans != first || first == 0 {
			t.Errorf("%d requests in the first minute, and %d after 15 hours", first, w.scans)
		}
		w.run(102 * time.Minute)
		w.expect()
	})
}

// TestRewrittenInTimeStays: a cell that is rewritten between the search and its deletion is not
// deleted.
func TestRewrittenInTimeStays(t *testing.T) {
	bubble(t, &pb.TableExpiry{AfterMs: minutes(1)}, func(t *testing.T, w *world) {
		w.set("a.x", "b.x", "z.x")
		rewritten := false
		w.inject(func(req *pb.TabletRequest) txntest.Fault {
			// The second pass has found the cells of the first tablet.
			if string(req.GetScan().GetSpan().GetStart()) == "m" && w.stats.Passes.Load() == 1 && !rewritten {
				rewritten = true
				w.set("b.x")
			}
			return txntest.Fault{}
		})
		w.run(80 * time.Second)
		w.expect("b.x")
		if !rewritten {
			t.Error("the cell was never rewritten")
		}
	})
}

// TestClocks: neither an oracle that runs ahead, after a node with a wrong clock led meta, nor a
// node's clock ahead of the oracle expires a cell early. Either may delay expiry.
func TestClocks(t *testing.T) {
	for _, test := range []struct {
		name         string
		oracle, node time.Duration
	}{
		{"oracle ahead", time.Hour, 0}, {"node ahead", 0, time.Hour}, {"node behind", 0, -3 * time.Minute},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble(t, &pb.TableExpiry{AfterMs: minutes(2)}, func(t *testing.T, w *world) {
				w.set("a.x")
				w.cluster.Advance(test.oracle)
				w.skew = test.node
				w.run(119 * time.Second)
				w.expect("a.x")
				w.run(20*time.Second + max(0, -test.node))
				w.expect()
			})
		})
	}
}

// TestNextLeaderGoesOn: a job that crashes halfway, also during a commit, has deleted a prefix of
// the expired cells, and the next leader deletes the rest. Two concurrent jobs are harmless.
func TestNextLeaderGoesOn(t *testing.T) {
	bubble(t, &pb.TableExpiry{AfterMs: minutes(1)}, func(t *testing.T, w *world) {
		for part := range 3 {
			var cells []string
			for i := range 900 {
				cells = append(cells, fmt.Sprintf("%c.%04d", "ahz"[part], i))
			}
			w.set(cells...)
		}
		commits := 0
		w.inject(func(req *pb.TabletRequest) txntest.Fault {
			if req.GetPrewrite() != nil || req.GetOnePhase() != nil {
				commits++
			}
			return txntest.Fault{Lost: commits >= 2}
		})
		ctx, die := context.WithTimeout(t.Context(), 80*time.Second)
		for ctx.Err() == nil {
			<-time.After(min(w.work.turn(ctx), time.Minute))
		}
		die()
		if n := w.stats.Deleted.Load(); n == 0 || n == 2700 {
			t.Fatalf("the first leader deleted %d of 2700 cells, which tests nothing", n)
		}
		w.inject(nil)
		first := w.work
		w.lead()
		for range 20 {
			<-time.After(max(first.turn(t.Context()), w.work.turn(t.Context())))
		}
		w.expect()
	})
}

// TestRestoredTable: nothing is deleted while a table is being restored. Its cells have old
// timestamps, so the search begins at once afterwards, even if the job has not seen the restore.
func TestRestoredTable(t *testing.T) {
	bubble(t, &pb.TableExpiry{AfterMs: minutes(1000)}, func(t *testing.T, w *world) {
		old := mvcc.TimestampAt(time.Now().Add(-2000 * time.Minute).UnixMilli())
		restore := func(row string) {
			t.Helper()
			if err := w.client.Restore(t.Context(), []mvcc.RestoredCell{{
				Cell:    mvcc.Cell{Table: mvcc.TableID(w.table.Id), Row: row, Column: "x"},
				StartTS: old, CommitTS: old + 1, Value: []byte("x"),
			}}); err != nil {
				t.Fatal(err)
			}
		}
		w.table.Restoring = &pb.RestoreMark{Source: "first", At: 7}
		restore("a")
		w.run(time.Minute)
		w.expect("a.x")
		w.table.Restoring, w.table.Restored = nil, w.table.Restoring
		w.run(time.Minute)
		w.expect()
		restore("b")
		w.table.Restored = &pb.RestoreMark{Source: "second", At: 8}
		w.run(time.Minute)
		w.expect()
	})
}

// TestLagGrows: while deletions fail, the lag of their rule grows, and the other table is not
// delayed. A changed rule starts over.
func TestLagGrows(t *testing.T) {
	bubble(t, &pb.TableExpiry{AfterMs: minutes(1)}, func(t *testing.T, w *world) {
		w.set("a.x")
		w.inject(func(req *pb.TabletRequest) txntest.Fault {
			return txntest.Fault{Lost: req.GetOnePhase() != nil || req.GetPrewrite() != nil}
		})
		w.run(2 * time.Minute)
		rules := w.work.status.get(time.Now()).Rules
		if len(rules) != 1 || !rules[0].Others || rules[0].TableName != "events" ||
			time.Duration(rules[0].LagMs)*time.Millisecond < 55*time.Second || rules[0].Error == "" {
			t.Errorf("the rules are %v, want one with a lag of a minute and an error", rules)
		}
		w.inject(nil)
		w.run(time.Minute)
		if rules = w.work.status.get(time.Now()).Rules; rules[0].LagMs != 0 || rules[0].Error != "" {
			t.Errorf("after it has recovered: %v", rules)
		}
		w.expect()
		w.table.Expiry = nil
		w.run(time.Minute)
		if rules = w.work.status.get(time.Now()).Rules; len(rules) != 0 {
			t.Errorf("without an expiry: %v", rules)
		}
	})
}

// TestSpawnNeedsItsParts: Spawn rejects a configuration without a client.
func TestSpawnNeedsItsParts(t *testing.T) {
	if _, err := Spawn(nil, Config{}); !errors.Is(err, ErrInvalid) {
		t.Errorf("%v, want ErrInvalid", err)
	}
}
