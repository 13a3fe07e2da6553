package closure_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/percolatortest"
	"github.com/percolator-go/percolator/recipes/closure"
)

// view is the content of a snapshot.
type view struct {
	at      percolator.Timestamp
	settled bool
	reached map[[2]string]bool // mark, node
}

// watch reads everything that marks reach, in at most 50 snapshots one after the other, until stop
// is closed or the node ends.
func watch(t *testing.T, db *percolator.DB, c *closure.Closure,
	stop <-chan struct{}) (views []view) {
	for range 50 {
		v, err := look(t.Context(), db, c)
		if err != nil {
			return views
		}
		views = append(views, v)
		select {
		case <-stop:
			return views
		default:
		}
	}
	return views
}

func look(ctx context.Context, db *percolator.DB, c *closure.Closure) (v view, err error) {
	s, err := db.Snapshot(ctx)
	if err != nil {
		return v, err
	}
	defer s.Close()
	v = view{at: s.StartTS(), reached: map[[2]string]bool{}}
	for r, err := range c.All(ctx, s) {
		if err != nil {
			return v, err
		}
		v.reached[[2]string{r.Mark, r.Node}] = true
	}
	v.settled, err = c.Settled(ctx, s)
	return v, err
}

// verify compares the contents of snapshots with the graph at their timestamps: a settled one has
// all of the graph's content, and later ones have all that the graph contained ever since.
func (g *graph) verify(t *testing.T, views []view) {
	t.Helper()
	slices.SortFunc(g.edits, func(a, b edit) int { return cmp.Compare(a.at, b.at) })
	slices.SortFunc(views, func(a, b view) int { return cmp.Compare(a.at, b.at) })
	now := graph{edges: map[[2]string]bool{}, seeds: map[[2]string]bool{}}
	reach, kept := now.pairs(), map[[2]string]bool{} // kept: reached since a settled snapshot
	done := 0
	for _, v := range views {
		for ; done < len(g.edits) && g.edits[done].at <= v.at; done++ {
			now.apply(g.edits[done])
			reach = now.pairs()
			maps.DeleteFunc(kept, func(p [2]string, _ bool) bool { return !reach[p] })
		}
		for p := range kept {
			if !v.reached[p] {
				t.Errorf("CLOSURE-MISSES: %v at %d", p, v.at)
			}
		}
		if !v.settled {
			continue
		}
		for p := range v.reached {
			if !reach[p] {
				t.Errorf("CLOSURE-SHOWS: %v at %d, which is settled", p, v.at)
			}
		}
		for p := range reach {
			if !v.reached[p] {
				t.Errorf("CLOSURE-LACKS: %v at %d, which is settled", p, v.at)
			}
		}
		kept = maps.Clone(reach)
	}
}

// pairs returns the marks and the nodes that they reach.
func (g *graph) pairs() map[[2]string]bool {
	all := map[[2]string]bool{}
	for mark, nodes := range g.reach() {
		for _, node := range nodes {
			all[[2]string{mark, node}] = true
		}
	}
	return all
}

// readers checks repeatedly, in new snapshots, whether the user may read some of the documents,
// until stop is closed, and returns the number of checks and of denials.
func readers(t *testing.T, n *percolatortest.Node, c *closure.Closure, documents []string,
	stop <-chan struct{}) (checks, denied int) {
	var mu sync.Mutex
	var all sync.WaitGroup
	for r := range 2 {
		all.Go(func() {
			for i := r; ; i++ {
				s, err := n.DB().Snapshot(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				ok, err := c.Has(t.Context(), s, "user", documents[i*31%len(documents)])
				if err := errors.Join(err, s.Close()); err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				checks++
				if !ok {
					denied++
				}
				mu.Unlock()
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	all.Wait()
	return checks, denied
}

// TestOneOfTwoWays removes one of two paths to 500 documents while readers check them, in one run
// and in many: none is denied. Then it removes the other: all are denied once it has settled.
func TestOneOfTwoWays(t *testing.T) {
	t.Parallel()
	for _, batch := range []int{0, 40} {
		t.Run(fmt.Sprint(batch), func(t *testing.T) {
			t.Parallel()
			c := closure.New(closure.Config{Name: "graph", Batch: batch})
			n := percolatortest.Start(t, func(r *percolator.Registry) { c.Register(r) })
			documents := make([]string, 500)
			change := func(fn func(tx *percolator.Tx)) {
				var at percolator.Timestamp
				if err := n.DB().Transact(t.Context(), func(_ context.Context, tx *percolator.Tx) error {
					fn(tx)
					return nil
				}, percolator.CommittedAt(&at)); err != nil {
					t.Fatal(err)
				}
				if left, err := n.DB().WaitFor(t.Context(), at); err != nil || len(left) > 0 {
					t.Fatal(left, err)
				}
			}
			change(func(tx *percolator.Tx) {
				c.Mark(tx, "user", "user")
				for _, team := range []string{"red", "blue"} {
					c.AddEdge(tx, "user", team)
					for i := range documents {
						documents[i] = fmt.Sprintf("document%d", i)
						c.AddEdge(tx, team, documents[i])
					}
				}
			})
			stop := make(chan struct{})
			var checks, denied int
			var reading sync.WaitGroup
			reading.Go(func() { checks, denied = readers(t, n, c, documents, stop) })
			for range 2 { // the records are based on one, and then on the other
				for _, team := range []string{"red", "blue"} {
					change(func(tx *percolator.Tx) { c.DeleteEdge(tx, "user", team) })
					change(func(tx *percolator.Tx) { c.AddEdge(tx, "user", team) })
				}
			}
			close(stop)
			reading.Wait()
			if denied > 0 || checks == 0 {
				t.Errorf("CLOSURE-MISSES: %d of %d checks were denied", denied, checks)
			}
			change(func(tx *percolator.Tx) {
				c.DeleteEdge(tx, "user", "red")
				c.DeleteEdge(tx, "user", "blue")
			})
			s, err := n.DB().Snapshot(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			for _, d := range documents {
				if ok, err := c.Has(t.Context(), s, "user", d); ok || err != nil {
					t.Fatalf("CLOSURE-SHOWS: %s, %v", d, err)
				}
			}
		})
	}
}

// TestNewWayReplacesOld replaces the edge to a document by a path longer than one run may write: it
// is never denied.
func TestNewWayReplacesOld(t *testing.T) {
	t.Parallel()
	c := closure.New(closure.Config{Name: "graph", Batch: 3})
	n := percolatortest.Start(t, func(r *percolator.Registry) { c.Register(r) })
	n.Transact(t, func(_ context.Context, tx *percolator.Tx) error {
		c.Mark(tx, "user", "user")
		c.AddEdge(tx, "user", "document")
		return nil
	})
	n.RunUntilIdle(t)
	stop := make(chan struct{})
	var checks, denied int
	var reading sync.WaitGroup
	reading.Go(func() { checks, denied = readers(t, n, c, []string{"document"}, stop) })
	n.Transact(t, func(_ context.Context, tx *percolator.Tx) error {
		c.DeleteEdge(tx, "user", "document")
		from := "user"
		for i := range 40 {
			to := fmt.Sprintf("folder%d", i)
			c.AddEdge(tx, from, to)
			from = to
		}
		c.AddEdge(tx, from, "document")
		return nil
	})
	n.RunUntilIdle(t)
	close(stop)
	reading.Wait()
	if denied > 0 || checks == 0 {
		t.Errorf("CLOSURE-MISSES: %d of %d checks were denied", denied, checks)
	}
}

// TestReachedIsObserved observes which documents a user reaches.
func TestReachedIsObserved(t *testing.T) {
	t.Parallel()
	c := closure.New(closure.Config{Name: "graph"})
	log := percolator.Column{Table: "log", Name: "entry"}
	n := percolatortest.Start(t, func(r *percolator.Registry) {
		c.Register(r)
		r.Table(percolator.TableSpec{Name: "log"})
		r.Strong("audit", c.ReachedColumn(), func(ctx context.Context, tx *percolator.Tx,
			n percolator.Notification) error {
			mark, node, err := closure.ParseReached(n.Row)
			if err != nil {
				return err
			}
			has, err := c.Has(ctx, tx, mark, node)
			before, _, err2 := tx.Get(ctx, node, log)
			tx.Set(node, log, append(before, fmt.Sprintf("%s %t;", mark, has)...))
			return cmp.Or(err, err2)
		})
	})
	change := func(fn func(tx *percolator.Tx)) {
		n.Transact(t, func(_ context.Context, tx *percolator.Tx) error {
			fn(tx)
			return nil
		})
		n.RunUntilIdle(t)
	}
	change(func(tx *percolator.Tx) {
		c.Mark(tx, "user", "team")
		c.AddEdges(tx, [2]string{"team", "folder"}, [2]string{"folder", "document"})
	})
	change(func(tx *percolator.Tx) { c.AddEdge(tx, "team", "document") })
	change(func(tx *percolator.Tx) { c.DeleteEdge(tx, "team", "folder") })
	want := map[string]string{
		"team": "user true;", "folder": "user true;user false;", "document": "user true;",
	}
	if got := n.Column(t, log); !maps.Equal(got, want) {
		t.Errorf("observed %v, want %v", got, want)
	}
}
