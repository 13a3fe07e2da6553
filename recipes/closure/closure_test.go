package closure_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/node"
	"github.com/percolator-go/percolator/percolatortest"
	"github.com/percolator-go/percolator/recipes/closure"
)

// What a change of a library affects, through all that is built from it.
func Example() {
	affects := closure.New(closure.Config{Name: "affects"})
	register := affects.Register // what app.Main is given
	publish := func(ctx context.Context, db *percolator.DB) error {
		return db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
			affects.AddEdge(tx, "zlib", "libpng") // libpng is built from zlib
			affects.AddEdge(tx, "libpng", "browser")
			affects.Mark(tx, "CVE-1", "zlib")
			return nil
		})
	}
	report := func(ctx context.Context, db *percolator.DB) error {
		s, err := db.Snapshot(ctx)
		if err != nil {
			return err
		}
		defer s.Close()
		for reached, err := range affects.Reached(ctx, s, "CVE-1") {
			if err != nil {
				return err
			}
			fmt.Println(reached.Node, reached.Depth) // browser 2, libpng 1, zlib 0
		}
		path, err := affects.Path(ctx, s, "CVE-1", "browser") // zlib, libpng, browser
		fmt.Println(path)
		return err
	}
	_, _, _ = register, publish, report
}

// graph is what a closure is told, kept beside it.
type graph struct {
	edges, seeds map[[2]string]bool
}

// edit changes some edges and seeds at random, in transactions of their own, from several
// goroutines, each of which has its own edges and marks.
func (g *graph) edit(t *testing.T, n *percolatortest.Node, c *closure.Closure, seed uint64) {
	t.Helper()
	const writers, edits, nodes, marks = 4, 12, 12, 4
	var mu sync.Mutex
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(w)))
			name := func() string { return fmt.Sprintf("n%d", random.IntN(nodes)) }
			for range edits {
				// Sources and marks are the writer's own: what is last does not depend on the order.
				edge := [2]string{fmt.Sprintf("n%d", random.IntN(nodes/writers)*writers+w), name()}
				mark := [2]string{fmt.Sprintf("m%d", w%marks), name()}
				// In every other round more goes than comes, so that waves shrink.
				add, of := random.IntN(5) < 1+3*int((seed+1)%2), random.IntN(4)
				n.Transact(t, func(_ context.Context, tx *percolator.Tx) error {
					switch {
					case of > 0 && add:
						c.AddEdge(tx, edge[0], edge[1])
					case of > 0:
						c.DeleteEdge(tx, edge[0], edge[1])
					case add:
						c.Mark(tx, mark[0], mark[1])
					default:
						c.Unmark(tx, mark[0], mark[1])
					}
					return nil
				})
				mu.Lock()
				if of > 0 {
					g.edges[edge] = add
				} else {
					g.seeds[mark] = add
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
}

// reach computes for each mark what it reaches.
func (g *graph) reach() map[string][]string {
	out := map[string][]string{}
	for e, there := range g.edges {
		if there {
			out[e[0]] = append(out[e[0]], e[1])
		}
	}
	found := map[string]map[string]bool{}
	var visit func(mark, node string)
	visit = func(mark, node string) {
		if found[mark] == nil {
			found[mark] = map[string]bool{}
		}
		if found[mark][node] {
			return
		}
		found[mark][node] = true
		for _, next := range out[node] {
			visit(mark, next)
		}
	}
	for s, there := range g.seeds {
		if there {
			visit(s[0], s[1])
		}
	}
	result := map[string][]string{}
	for mark, nodes := range found {
		result[mark] = slices.Sorted(maps.Keys(nodes))
	}
	return result
}

// check compares all that can be read with a search of the graph.
func (g *graph) check(t *testing.T, n *percolatortest.Node, c *closure.Closure) {
	t.Helper()
	s, err := n.DB().Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	want := g.reach()
	for m := range 4 {
		mark := fmt.Sprintf("m%d", m)
		var got []string
		for r, err := range c.Reached(t.Context(), s, mark) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, r.Node)
			g.checkPath(t, s, c, r)
		}
		if !slices.Equal(got, want[mark]) {
			t.Errorf("%s reaches %v, want %v", mark, got, want[mark])
		}
		p, err := c.Progress(t.Context(), s, mark)
		if err != nil || p.Size != len(got) || p.Waiting != 0 {
			t.Errorf("progress of %s: %+v, %v; it reaches %d", mark, p, err, len(got))
		}
	}
	for node := range 12 {
		name := fmt.Sprintf("n%d", node)
		var got, want2 []string
		for r, err := range c.Marks(t.Context(), s, name) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, r.Mark)
		}
		for _, mark := range slices.Sorted(maps.Keys(want)) {
			if slices.Contains(want[mark], name) {
				want2 = append(want2, mark)
			}
		}
		if !slices.Equal(got, want2) {
			t.Errorf("%s is reached by %v, want %v", name, got, want2)
		}
	}
	for _, kind := range []string{"check", "block"} {
		if left := n.Column(t, percolator.Column{Table: "graph", Name: kind}); len(left) > 0 {
			t.Errorf("%d rows of %s are left", len(left), kind)
		}
	}
}

// checkPath checks that the path to a node begins at a seed and goes along edges.
func (g *graph) checkPath(t *testing.T, r percolator.Reader, c *closure.Closure,
	to closure.Reached) {
	t.Helper()
	path, err := c.Path(t.Context(), r, to.Mark, to.Node)
	if err != nil {
		t.Fatal(err)
	}
	if len(path) == 0 || path[len(path)-1] != to.Node || !g.seeds[[2]string{to.Mark, path[0]}] {
		t.Errorf("the path from %s to %s is %v", to.Mark, to.Node, path)
	}
	for i := 1; i < len(path); i++ {
		if !g.edges[[2]string{path[i-1], path[i]}] {
			t.Errorf("the path from %s to %s has an edge that does not exist: %v", to.Mark,
				to.Node, path)
		}
	}
}

// rounds edits again and again, waits at some moments, and compares.
func rounds(t *testing.T, n *percolatortest.Node, c *closure.Closure, count int, between func()) {
	t.Helper()
	g := &graph{edges: map[[2]string]bool{}, seeds: map[[2]string]bool{}}
	for i := range count {
		g.edit(t, n, c, uint64(i))
		between()
		n.RunUntilIdle(t)
		g.check(t, n, c)
		if t.Failed() {
			t.Fatalf("in round %d", i)
		}
	}
}

// TestEqualsBatch edits graphs with cycles while the observers run, under each fault that a
// run may meet. Steps are of two nodes, so that every wave takes many runs and every node
// has more edges than one run reads.
func TestEqualsBatch(t *testing.T) {
	for _, kind := range []percolatortest.Kind{
		0, percolatortest.CommitConflicts, percolatortest.CommitReplyLost,
		percolatortest.CommitUnknown, percolatortest.CommitLost, percolatortest.ClearLost,
		percolatortest.RunFails, percolatortest.RunPanics, percolatortest.TabletUnavailable,
		percolatortest.OracleUnavailable,
	} {
		t.Run(kind.String(), func(t *testing.T) {
			t.Parallel()
			c := closure.New(closure.Config{Name: "graph", Batch: 2})
			n := percolatortest.Start(t, func(r *percolator.Registry) {
				c.Register(r)
			}, percolatortest.DuplicateHints())
			if kind != 0 {
				for _, observer := range []string{"graph.edges", "graph.marks"} {
					n.Inject(t, percolatortest.Fault{Kind: kind, Observer: observer, Times: 5})
				}
			}
			rounds(t, n, c, 4, func() {})
		})
	}
}

// TestRegisterRefusesBatch: what a run takes is the configuration's to say.
func TestRegisterRefusesBatch(t *testing.T) {
	t.Parallel()
	defer func() {
		if err, _ := recover().(error); !errors.Is(err, percolator.ErrInvalid) {
			t.Errorf("Register with Batch panics with %v", err)
		}
	}()
	closure.New(closure.Config{Name: "graph"}).Register(&percolator.Registry{},
		percolator.MaxAttempts(1), percolator.Batch(10))
}

// TestEdgesInMany adds and deletes more edges in one transaction than a notification tells of.
func TestEdgesInMany(t *testing.T) {
	t.Parallel()
	c := closure.New(closure.Config{Name: "graph"})
	n := percolatortest.Start(t, func(r *percolator.Registry) { c.Register(r) })
	g := &graph{edges: map[[2]string]bool{}, seeds: map[[2]string]bool{{"m0", "n0"}: true}}
	var edges [][2]string
	for from := range 12 {
		for to := range 12 {
			edges = append(edges, [2]string{fmt.Sprintf("n%d", from), fmt.Sprintf("n%d", to)})
		}
	}
	change := func(there bool, edges ...[2]string) {
		n.Transact(t, func(_ context.Context, tx *percolator.Tx) error {
			if there {
				c.Mark(tx, "m0", "n0")
				c.AddEdges(tx, edges...)
			} else {
				c.DeleteEdges(tx, edges...)
			}
			return nil
		})
		for _, e := range edges {
			g.edges[e] = there
		}
		n.RunUntilIdle(t)
		g.check(t, n, c)
	}
	change(true, edges...)
	change(false, edges[:100]...)
	change(false)
	change(false, edges...)
}

// TestCyclesDoNotHoldThemselves cuts cycles off, at the seed and at the edge to it.
func TestCyclesDoNotHoldThemselves(t *testing.T) {
	t.Parallel()
	c := closure.New(closure.Config{Name: "graph", Batch: 1})
	n := percolatortest.Start(t, func(r *percolator.Registry) { c.Register(r) })
	g := &graph{edges: map[[2]string]bool{}, seeds: map[[2]string]bool{}}
	edit := func(fn func(tx *percolator.Tx)) {
		n.Transact(t, func(_ context.Context, tx *percolator.Tx) error {
			fn(tx)
			return nil
		})
		n.RunUntilIdle(t)
		g.check(t, n, c)
	}
	edit(func(tx *percolator.Tx) { // n0 → n1 → … → n5 → n1, and some ways across
		for _, e := range [][2]string{
			{"n0", "n1"}, {"n1", "n2"}, {"n2", "n3"}, {"n3", "n4"}, {"n4", "n5"}, {"n5", "n1"},
			{"n4", "n2"}, {"n3", "n1"}, {"n2", "n2"},
		} {
			c.AddEdge(tx, e[0], e[1])
			g.edges[e] = true
		}
		c.Mark(tx, "m0", "n0")
		c.Mark(tx, "m1", "n4")
		g.seeds[[2]string{"m0", "n0"}], g.seeds[[2]string{"m1", "n4"}] = true, true
	})
	edit(func(tx *percolator.Tx) {
		c.DeleteEdge(tx, "n0", "n1")
		delete(g.edges, [2]string{"n0", "n1"})
	})
	edit(func(tx *percolator.Tx) {
		c.Unmark(tx, "m1", "n4")
		delete(g.seeds, [2]string{"m1", "n4"})
	})
}

// TestEdgeThatComesBack deletes an edge of a cycle, has the seed go while nobody has looked
// at the edge, and adds it again: what rested on it then rests only on itself.
func TestEdgeThatComesBack(t *testing.T) {
	t.Parallel()
	c := closure.New(closure.Config{Name: "graph"})
	n := percolatortest.Start(t, func(r *percolator.Registry) {
		c.Register(r, percolator.MaxAttempts(1<<20))
	})
	g := &graph{edges: map[[2]string]bool{}, seeds: map[[2]string]bool{}}
	edit := func(fn func(tx *percolator.Tx)) {
		n.Transact(t, func(_ context.Context, tx *percolator.Tx) error {
			fn(tx)
			return nil
		})
	}
	edit(func(tx *percolator.Tx) {
		for _, e := range [][2]string{{"n0", "n1"}, {"n1", "n2"}, {"n2", "n3"}, {"n3", "n1"}} {
			c.AddEdge(tx, e[0], e[1])
			g.edges[e] = true
		}
		c.Mark(tx, "m0", "n0")
	})
	n.RunUntilIdle(t)
	hold := n.Inject(t, percolatortest.Fault{Kind: percolatortest.RunFails, Observer: "graph.edges"})
	edit(func(tx *percolator.Tx) { c.DeleteEdge(tx, "n1", "n2") })
	edit(func(tx *percolator.Tx) { c.Unmark(tx, "m0", "n0") })
	deadline := time.Now().Add(percolatortest.DefaultTimeout)
	for len(n.Notifications(t, "graph.marks")) > 0 {
		if time.Now().After(deadline) {
			t.Fatal("the wave does not end")
		}
		runtime.Gosched()
	}
	edit(func(tx *percolator.Tx) { c.AddEdge(tx, "n1", "n2") })
	hold.Stop()
	n.RunUntilIdle(t)
	g.check(t, n, c)
}

// TestEqualsBatchAfterCrashes ends the node in the middle of waves.
func TestEqualsBatchAfterCrashes(t *testing.T) {
	t.Parallel()
	c := closure.New(closure.Config{Name: "graph", Batch: 3})
	n := percolatortest.Start(t, func(r *percolator.Registry) { c.Register(r) })
	rounds(t, n, c, 6, func() { n.Crash(t) })
}

// BenchmarkSpread marks and unmarks a node that reaches so many others, with four edges to
// each, on a node on disk. ms/cascade is from the commit of a mark until nothing is left.
func BenchmarkSpread(b *testing.B) {
	for _, nodes := range []int{100, 10_000} {
		b.Run(fmt.Sprint(nodes), func(b *testing.B) {
			c := closure.New(closure.Config{Name: "graph"})
			cfg := node.DefaultConfig()
			cfg.Dir, cfg.Listen, cfg.HTTP, cfg.Insecure = b.TempDir(), "127.0.0.1:0", "", true
			cfg.Observers = func(r *percolator.Registry) { c.Register(r) }
			n, err := node.Open(b.Context(), cfg)
			if err != nil {
				b.Fatal(err)
			}
			defer func() {
				if err := n.Close(context.Background()); err != nil {
					b.Error(err)
				}
			}()
			db, random := n.DB(), rand.New(rand.NewPCG(1, 1))
			do := func(fn func(tx *percolator.Tx)) {
				if err := db.Transact(b.Context(), func(_ context.Context, tx *percolator.Tx) error {
					fn(tx)
					return nil
				}); err != nil {
					b.Fatal(err)
				}
			}
			for first := 1; first < nodes; first += 500 {
				do(func(tx *percolator.Tx) {
					for to := first; to < min(first+500, nodes); to++ {
						for range 4 {
							c.AddEdge(tx, fmt.Sprint(random.IntN(to)), fmt.Sprint(to))
						}
					}
				})
			}
			idle := func() {
				if err := db.WaitIdle(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
			idle()
			var used time.Duration // of processors
			for b.Loop() {
				before := processorTime(b)
				do(func(tx *percolator.Tx) { c.Mark(tx, "m", "0") })
				idle()
				b.StopTimer()
				used += processorTime(b) - before
				s, err := db.Snapshot(b.Context())
				if err != nil {
					b.Fatal(err)
				}
				if p, err := c.Progress(b.Context(), s, "m"); err != nil || p.Size != nodes {
					b.Fatalf("%+v, %v", p, err)
				}
				do(func(tx *percolator.Tx) { c.Unmark(tx, "m", "0") })
				idle()
				b.StartTimer()
			}
			b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N), "ms/cascade")
			b.ReportMetric(float64(used.Microseconds())/float64(b.N*nodes), "cpu-µs/node")
		})
	}
}

// processorTime is what this process has used.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
