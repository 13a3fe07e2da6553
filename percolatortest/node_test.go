package percolatortest_test

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/leaktest"
	"github.com/percolator-go/percolator/node"
	"github.com/percolator-go/percolator/percolatortest"
)

func TestMain(m *testing.M) {
	// The actor library counts dead letters on a goroutine that ends a second after the first.
	leaktest.Main(m)
}

// The shop: a strong observer counts orders per customer and notifies a weak one, which sums
// them in a report.
var (
	item    = percolator.Column{Table: "orders", Name: "item"}
	tally   = percolator.Column{Table: "customers", Name: "tally"}
	changed = percolator.Column{Table: "customers", Name: "changed"}
	report  = percolator.Column{Table: "customers", Name: "report"}
	ran     = percolator.Column{Table: "customers", Name: "ran"}
)

func shop(r *percolator.Registry) {
	r.Strong("tally", item, func(ctx context.Context, tx *percolator.Tx,
		n percolator.Notification) error {
		customer, _, _ := strings.Cut(n.Row, "/")
		if err := add(ctx, tx, customer, tally); err != nil {
			return err
		}
		tx.Notify(customer, changed)
		return nil
	}, percolator.MaxAttempts(3))
	r.Weak("report", changed, func(ctx context.Context, tx *percolator.Tx,
		n percolator.Notification) error {
		v, _, err := tx.Get(ctx, n.Row, tally)
		if err != nil {
			return err
		}
		tx.Set(n.Row, report, v)
		return add(ctx, tx, n.Row, ran)
	}, percolator.MaxAttempts(3))
}

// batches is the shop with batches of up to eight changes.
func batches(r *percolator.Registry) {
	single := percolator.NewRegistry()
	shop(single)
	for _, o := range single.Observers() {
		add := r.StrongBatch
		if o.Weak {
			add = r.WeakBatch
		}
		add(o.Name, o.Column, func(ctx context.Context, tx *percolator.Tx,
			changes []percolator.Notification) error {
			for _, n := range changes {
				if err := o.Func(ctx, tx, n); err != nil {
					return err
				}
			}
			return nil
		}, percolator.MaxAttempts(o.MaxAttempts), percolator.Batch(8))
	}
}

func add(ctx context.Context, tx *percolator.Tx, row string, c percolator.Column) error {
	v, _, err := tx.Get(ctx, row, c)
	if err != nil {
		return err
	}
	n, _ := strconv.Atoi(string(v))
	tx.Set(row, c, []byte(strconv.Itoa(n+1)))
	return nil
}

// orders writes n orders of one customer.
func orders(t *testing.T, n *percolatortest.Node, customer string, count int) {
	t.Helper()
	for i := range count {
		n.Set(t, fmt.Sprintf("%s/%d", customer, i), item, "apple")
	}
}

func want(t *testing.T, n *percolatortest.Node, row string, c percolator.Column, value string) {
	t.Helper()
	if got, _ := n.Get(t, row, c); got != value {
		t.Errorf("%s %s of %q is %q, want %q", c.Table, c.Name, row, got, value)
	}
}

// TestNodes runs dozens of nodes at once, each with its own state; none leaves a goroutine
// (TestMain).
func TestNodes(t *testing.T) {
	for i := range 30 {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			t.Parallel()
			n := percolatortest.Start(t, shop)
			orders(t, n, "ann", i)
			n.RunUntilIdle(t)
			if i > 0 {
				want(t, n, "ann", tally, strconv.Itoa(i))
				want(t, n, "ann", report, strconv.Itoa(i))
			}
			if got := len(n.Column(t, item)); got != i {
				t.Errorf("%d orders, want %d", got, i)
			}
		})
	}
}

// BenchmarkStart measures the start and the end of a node with two observers.
func BenchmarkStart(b *testing.B) {
	for b.Loop() {
		b.Run("", func(b *testing.B) { percolatortest.Start(b, shop) })
	}
}

// TestStartsQuickly: a node starts within 100 ms. On a shared machine it suffices that the
// fastest of several starts does.
func TestStartsQuickly(t *testing.T) {
	best := time.Hour
	for n := 0; n < 5 || n < 100 && best > 100*time.Millisecond; n++ {
		t.Run("start", func(t *testing.T) {
			runtime.GC()
			began := time.Now()
			percolatortest.Start(t, shop)
			best = min(best, time.Since(began))
		})
	}
	t.Logf("%v", best)
	if best > 100*time.Millisecond {
		t.Errorf("the fastest start took %v", best)
	}
}

// TestHelpers: rows, tables, notifications, configuration.
func TestHelpers(t *testing.T) {
	n := percolatortest.Start(t, shop, percolatortest.Tables(percolator.TableSpec{
		Name: "extra", SplitKeys: []string{"m"},
	}),
		percolatortest.Config(func(c *node.Config) {
			c.ObserverWorkers = 2
		}), percolatortest.Timeout(5*time.Second))
	x := percolator.Column{Table: "extra", Name: "x"}
	n.Set(t, "a", x, "1")
	n.Set(t, "z", x, "2")
	// Set creates the missing table.
	n.Set(t, "z", percolator.Column{Table: "made", Name: "x"}, "3")
	if got := fmt.Sprint(n.Column(t, x)); got != "map[a:1 z:2]" {
		t.Error(got)
	}
	n.Delete(t, "a", x)
	if v, ok := n.Get(t, "a", x); ok {
		t.Errorf("the deleted cell has the value %q", v)
	}
	n.Transact(t, func(_ context.Context, tx *percolator.Tx) error {
		tx.Set("b", x, []byte("4"))
		return nil
	})
	want(t, n, "b", x, "4")
	n.Notify(t, "ann", changed)
	n.RunUntilIdle(t)
	want(t, n, "ann", ran, "1")
	if s := n.Stats(t, "report"); s.Runs != 1 || s.Commits != 1 {
		t.Errorf("%+v", s)
	}
	if left := n.Notifications(t, "report"); len(left) > 0 {
		t.Errorf("%+v", left)
	}
	if n.Node().Addr() != "" || n.Node().HTTPAddr() != "" {
		t.Error("the node listens")
	}
}

// TestLargeValues: values may be as large as on other nodes if Config sets MemTableSize to 0.
func TestLargeValues(t *testing.T) {
	x := percolator.Column{Table: "extra", Name: "x"}
	n := percolatortest.Start(t, nil)
	n.Set(t, "a", x, strings.Repeat("x", 1<<20))
	n = percolatortest.Start(t, nil, percolatortest.Config(func(c *node.Config) {
		c.Store.MemTableSize = 0
	}))
	n.Set(t, "a", x, strings.Repeat("x", 4<<20))
}

// recorder is a testing.TB that records failures.
type recorder struct {
	testing.TB
	failed   []string
	cleanups []func()
}

func (r *recorder) Helper()             {}
func (r *recorder) Logf(string, ...any) {}
func (r *recorder) Cleanup(f func())    { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Errorf(format string, args ...any) {
	r.failed = append(r.failed, fmt.Sprintf(format, args...))
}
func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

// inTest runs an example as if it were a test.
func inTest(f func(t testing.TB)) {
	if failed := record(nil, func(r *recorder) { f(r) }); failed != "" {
		fmt.Println(failed)
	}
}

// record runs f and its cleanups with a recorder, and returns the failures.
func record(t testing.TB, f func(t *recorder)) string {
	r := &recorder{TB: t}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f(r)
	}()
	<-ended
	for i := len(r.cleanups) - 1; i >= 0; i-- {
		r.cleanups[i]()
	}
	return strings.Join(r.failed, "\n")
}

// TestFailsTheTest: every method reports its failure to the test, and no goroutine is left.
func TestFailsTheTest(t *testing.T) {
	never := func(r *percolator.Registry) {
		r.Strong("never", item, func(ctx context.Context, _ *percolator.Tx,
			_ percolator.Notification) error {
			return fmt.Errorf("no apples")
		}, percolator.MaxAttempts(1<<20))
	}
	for name, c := range map[string]struct {
		run  func(t *recorder)
		says []string
	}{
		"a fault that never happens": {func(t *recorder) {
			percolatortest.Start(t, shop).Inject(t,
				percolatortest.Fault{Kind: percolatortest.RunFails, Observer: "tally", Times: 1})
		}, []string{`RunFails of observer "tally"`, "never occurred"}},
		"an invalid fault": {func(t *recorder) {
			percolatortest.Start(t, shop).Inject(t, percolatortest.Fault{})
		}, []string{"invalid fault"}},
		"never idle": {func(t *recorder) {
			n := percolatortest.Start(t, never, percolatortest.Timeout(time.Second))
			n.Set(t, "ann/1", item, "apple")
			n.RunUntilIdle(t)
		}, []string{"not idle within 1s", `never waits for row "ann/1"`, "no apples"}},
		"a bad registration": {func(t *recorder) {
			percolatortest.Start(t, func(r *percolator.Registry) { r.Strong("", item, nil) })
		}, []string{"no name", "no function"}},
		"no such observer": {func(t *recorder) {
			percolatortest.Start(t, shop).Stats(t, "who")
		}, []string{`no observer "who"`}},
		"a transaction": {func(t *recorder) {
			percolatortest.Start(t, shop).Transact(t, func(context.Context, *percolator.Tx) error {
				return fmt.Errorf("no apples")
			})
		}, []string{"transaction: no apples"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := record(t, c.run)
			for _, s := range c.says {
				if !strings.Contains(got, s) {
					t.Errorf("%q does not contain %q", got, s)
				}
			}
		})
	}
}

// TestRegisteredTables: the node creates registered tables, including those of observers, with
// their split keys before it serves; a later start creates one again that was dropped.
func TestRegisteredTables(t *testing.T) {
	keys := []string{"m"}
	ctx := t.Context()
	n := percolatortest.Start(t, func(r *percolator.Registry) {
		registerEcho(r)
		r.Table(percolator.TableSpec{Name: "places", SplitKeys: keys})
		r.Table(percolator.TableSpec{Name: said.Table, SplitKeys: []string{"b", "d"}})
	})
	want := fmt.Sprint([]percolator.TableSpec{
		{Name: said.Table, SplitKeys: []string{"b", "d"}}, {Name: "places", SplitKeys: keys},
	})
	got, err := n.DB().Tables(ctx)
	if err != nil || fmt.Sprint(got) != want {
		t.Fatalf("%v, %v, not %v", got, err, want)
	}
	if err := n.DB().DropTable(ctx, "places"); err != nil {
		t.Fatal(err)
	}
	n.Restart(t)
	if got, err = n.DB().Tables(ctx); err != nil || fmt.Sprint(got) != want {
		t.Errorf("after a start without it: %v, %v, not %v", got, err, want)
	}
	n.Set(t, "ann", said, "hello")
	n.RunUntilIdle(t)
	if value, ok := n.Get(t, "ann", heard); !ok || value != "HELLO" {
		t.Errorf("output of the observer of a registered table: %q, %v", value, ok)
	}
}
