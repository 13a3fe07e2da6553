package closure_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/percolatortest"
	"github.com/percolator-go/percolator/recipes/closure"
)

// Documents that a user may read through groups and folders. A user is a mark whose seed is the
// user's own node.
func Example() {
	access := closure.New(closure.Config{Name: "access"})
	register := access.Register // what app.Main is given
	hire := func(ctx context.Context, db *percolator.DB) error {
		return db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
			access.Mark(tx, "ann", "ann")
			access.AddEdge(tx, "ann", "engineers")
			access.AddEdge(tx, "engineers", "designs")
			access.AddEdge(tx, "designs", "engine.pdf")
			return nil
		})
	}
	mayRead := func(ctx context.Context, db *percolator.DB, user, document string) (bool, error) {
		s, err := db.Snapshot(ctx)
		if err != nil {
			return false, err
		}
		defer s.Close()
		return access.Has(ctx, s, user, document)
	}
	_, _, _ = register, hire, mayRead
}

// The reason why a node is reached, and all nodes that a mark reaches.
func ExampleClosure_Path() {
	affects := closure.New(closure.Config{Name: "affects"})
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
	_ = report
}

// A check that respects every earlier commit.
func ExampleClosure_Settled() {
	access := closure.New(closure.Config{Name: "access"})
	mayRead := func(ctx context.Context, db *percolator.DB, user, document string) (bool, error) {
		for {
			s, err := db.Snapshot(ctx)
			if err != nil {
				return false, err
			}
			has, err := access.Has(ctx, s, user, document)
			settled, err2 := access.Settled(ctx, s)
			if err := errors.Join(err, err2, s.Close()); err != nil || settled {
				return has, err
			}
			if _, err := db.WaitFor(ctx, s.StartTS()); err != nil {
				return false, err
			}
		}
	}
	_ = mayRead
}

// An observer that sends an e-mail when a user gains or loses access to a document.
func ExampleClosure_ReachedColumn() {
	access := closure.New(closure.Config{Name: "access"})
	register := func(r *percolator.Registry) {
		access.Register(r)
		r.Strong("tell", access.ReachedColumn(), func(ctx context.Context, tx *percolator.Tx,
			n percolator.Notification) error {
			user, document, err := closure.ParseReached(n.Row)
			if err != nil {
				return err
			}
			has, err := access.Has(ctx, tx, user, document)
			if err != nil {
				return err
			}
			fmt.Println(user, document, has)
			return nil
		})
	}
	_ = register
}

// graph is a copy of the closure's input.
type graph struct {
	edges, seeds map[[2]string]bool
	edits        []edit
}

// edit is a change of the graph and its commit time.
type edit struct {
	at        percolator.Timestamp
	pair      [2]string
	edge, add bool
}

func (g *graph) apply(e edit) {
	of := g.seeds
	if e.edge {
		of = g.edges
	}
	of[e.pair] = e.add
}

// edit changes some edges and seeds at random, in separate transactions, from several goroutines,
// each with its own edges and marks.
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
				// Sources and marks are the writer's own, so the last change does not depend on the
				// order of writers.
				e := edit{pair: [2]string{
					fmt.Sprintf("n%d", random.IntN(nodes/writers)*writers+w), name(),
				}}
				if e.edge = random.IntN(4) > 0; !e.edge {
					e.pair[0] = fmt.Sprintf("m%d", w%marks)
				}
				// In every other round there are more deletions than additions, so that waves
				// shrink.
				e.add = random.IntN(5) < 1+3*int((seed+1)%2)
				err := n.DB().Transact(t.Context(), func(_ context.Context, tx *percolator.Tx) error {
					switch {
					case e.edge && e.add:
						c.AddEdge(tx, e.pair[0], e.pair[1])
					case e.edge:
						c.DeleteEdge(tx, e.pair[0], e.pair[1])
					case e.add:
						c.Mark(tx, e.pair[0], e.pair[1])
					default:
						c.Unmark(tx, e.pair[0], e.pair[1])
					}
					return nil
				}, percolator.CommittedAt(&e.at))
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				g.edits = append(g.edits, e)
				g.apply(e)
				mu.Unlock()
			}
		})
	}
	all.Wait()
}

// reach computes the nodes that each mark reaches.
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

// check compares everything readable with a search of the graph.
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
			t.Errorf("CLOSURE-SHOWS: %s reaches %v, want %v", mark, got, want[mark])
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
	if settled, err := c.Settled(t.Context(), s); err != nil || !settled {
		t.Errorf("not settled, %v", err)
	}
}

// checkPath checks that the path to a node begins at a seed and follows edges.
func (g *graph) checkPath(t *testing.T, r percolator.Reader, c *closure.Closure,
	to closure.Reached) {
	t.Helper()
	path, err := c.Path(t.Context(), r, to.Mark, to.Node)
	if err != nil {
		t.Fatal(err)
	}
	if len(path) == 0 || path[len(path)-1] != to.Node || !g.seeds[[2]string{to.Mark, path[0]}] {
		t.Errorf("CLOSURE-SHOWS: the path from %s to %s is %v", to.Mark, to.Node, path)
	}
	for i := 1; i < len(path); i++ {
		if !g.edges[[2]string{path[i-1], path[i]}] {
			t.Errorf("CLOSURE-SHOWS: the path from %s to %s has an edge that does not exist: %v",
				to.Mark, to.Node, path)
		}
	}
}

// rounds edits repeatedly, waits at some moments, and compares, including snapshots taken in
// between.
func rounds(t *testing.T, n *percolatortest.Node, c *closure.Closure, count int, between func()) {
	t.Helper()
	g := &graph{edges: map[[2]string]bool{}, seeds: map[[2]string]bool{}}
	var views []view
	for i := range count {
		stop := make(chan struct{})
		var watching sync.WaitGroup
		watching.Go(func() { views = append(views, watch(t, n.DB(), c, stop)...) })
		g.edit(t, n, c, uint64(i))
		between()
		n.RunUntilIdle(t)
		close(stop)
		watching.Wait()
		views = append(views, watch(t, n.DB(), c, stop)...)
		g.check(t, n, c)
		g.verify(t, views)
		if t.Failed() {
			t.Fatalf("in round %d", i)
		}
	}
}

// TestEqualsBatch edits graphs with cycles while the observers run, under each fault of a run.
// Steps are limited to two nodes, so that every wave takes many runs and every node has more edges
// than one run reads.
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
				for _, observer := range []string{"graph.wave"} {
					n.Inject(t, percolatortest.Fault{Kind: kind, Observer: observer, Times: 5})
				}
			}
			rounds(t, n, c, 4, func() {})
		})
	}
}

// TestDenseGraph adds and deletes all edges of a graph in one transaction, with runs that create
// and read everything or very little.
func TestDenseGraph(t *testing.T) {
	for _, batch := range []int{0, 1} {
		t.Run(fmt.Sprint(batch), func(t *testing.T) {
			t.Parallel()
			denseGraph(t, closure.New(closure.Config{Name: "graph", Batch: batch}))
		})
	}
}

func denseGraph(t *testing.T, c *closure.Closure) {
	t.Helper()
	n := percolatortest.Start(t, func(r *percolator.Registry) { c.Register(r) })
	g := &graph{edges: map[[2]string]bool{}, seeds: map[[2]string]bool{}}
	var edges [][2]string
	for from := range 12 {
		for to := range 12 {
			edges = append(edges, [2]string{fmt.Sprintf("n%d", from), fmt.Sprintf("n%d", to)})
		}
	}
	change := func(there bool, edges ...[2]string) {
		n.Transact(t, func(_ context.Context, tx *percolator.Tx) error {
			for m := range 4 {
				seed := [2]string{fmt.Sprintf("m%d", m), fmt.Sprintf("n%d", m)}
				c.Mark(tx, seed[0], seed[1])
				g.seeds[seed] = true
			}
			if there {
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

// TestCyclesDoNotHoldThemselves disconnects cycles, at the seed and at the edge to them.
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

// TestEqualsBatchAfterCrashes crashes the node during waves.
func TestEqualsBatchAfterCrashes(t *testing.T) {
	t.Parallel()
	c := closure.New(closure.Config{Name: "graph", Batch: 3})
	n := percolatortest.Start(t, func(r *percolator.Registry) { c.Register(r) })
	rounds(t, n, c, 6, func() { n.Crash(t) })
}
