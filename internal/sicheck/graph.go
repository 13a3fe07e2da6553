package sicheck

import (
	"fmt"
	"slices"
	"strings"
)

// edge leads to a node; why is its kind.
type edge struct {
	to  int
	why string
}

// graph contains the begins and commits of the transactions, and nodes for points in time.
type graph struct {
	edges [][]edge
}

func (g *graph) add(from, to int, why string) {
	g.edges[from] = append(g.edges[from], edge{to, why})
}

func begin(t int) int  { return 2 * t }
func commit(t int) int { return 2*t + 1 }

// checkOrder builds the graph and searches for a cycle.
func (c *checker) checkOrder() {
	g := &graph{edges: make([][]edge, 2*len(c.history))}
	for t := range c.history {
		if c.counts[t] {
			g.add(begin(t), commit(t), "program")
		}
	}
	unread := c.addWrites(g)
	c.addReads(g, unread)
	c.addTime(g)
	if cycle := g.cycle(); cycle != nil {
		c.reportCycle(cycle)
	}
}

// addWrites adds the WW edges along each key's order, and returns the unread appends by key: they
// follow everything that was read, in an unknown order.
func (c *checker) addWrites(g *graph) (unread map[string][]int) {
	read := map[version]bool{}
	last := map[string]int{}
	for key, order := range c.orders {
		for i, value := range order {
			read[version{key, value}] = true
			w := c.writers[version{key, value}]
			if i > 0 {
				if before := last[key]; before != w {
					g.add(commit(before), begin(w), "WW "+key)
				}
			}
			last[key] = w
		}
	}
	unread = map[string][]int{}
	for v, w := range c.writers {
		if !c.counts[w] || read[v] || slices.Contains(unread[v.key], w) {
			continue
		}
		unread[v.key] = append(unread[v.key], w)
		if before, ok := last[v.key]; ok && before != w {
			g.add(commit(before), begin(w), "WW "+v.key)
		}
	}
	for _, list := range unread {
		slices.Sort(list) // for reproducible reports
	}
	return unread
}

// addReads adds the WR and RW edges.
func (c *checker) addReads(g *graph, unread map[string][]int) {
	for t := range c.history {
		if !c.counts[t] {
			continue
		}
		for _, op := range c.history[t].Ops {
			if op.Append {
				continue
			}
			order := c.orders[op.Key]
			n := len(op.List)
			for n > 0 && c.writers[version{op.Key, order[n-1]}] == t {
				n-- // skip the appends of the reading transaction itself
			}
			if n > 0 {
				g.add(commit(c.writers[version{op.Key, order[n-1]}]), begin(t), "WR "+op.Key)
			}
			c.addOverwriters(g, t, op.Key, order[n:], unread[op.Key])
		}
	}
}

// addOverwriters adds the RW edges of a read: to the writer of the next version or, if that is
// unread, to all that may have written it.
func (c *checker) addOverwriters(g *graph, t int, key string, later []int64, unread []int) {
	for _, value := range later {
		if w := c.writers[version{key, value}]; w != t {
			g.add(begin(t), commit(w), "RW "+key)
			return
		}
	}
	for _, w := range unread {
		if w != t {
			g.add(begin(t), commit(w), "RW "+key)
		}
	}
}

// addTime adds the real-time edges through a chain of nodes for points in time, so that n
// transactions need at most n such nodes and 3n edges, not n² edges. At equal times begins come
// first, because the clock may be coarse.
func (c *checker) addTime(g *graph) {
	type event struct {
		at  int64
		end bool
		t   int
	}
	var events []event
	for t := range c.history {
		if !c.counts[t] {
			continue
		}
		events = append(events, event{at: c.history[t].Began, t: t})
		if c.history[t].Outcome == Committed {
			events = append(events, event{at: c.history[t].Ended, end: true, t: t})
		}
	}
	slices.SortFunc(events, func(a, b event) int {
		switch {
		case a.at != b.at:
			return int(min(max(a.at-b.at, -1), 1))
		case a.end != b.end && b.end:
			return -1
		case a.end != b.end:
			return 1
		}
		return a.t - b.t
	})
	point := -1 // the newest
	for _, e := range events {
		if !e.end {
			if point >= 0 {
				g.add(point, begin(e.t), "time")
			}
			continue
		}
		g.edges = append(g.edges, nil)
		next := len(g.edges) - 1
		if point >= 0 {
			g.add(point, next, "time")
		}
		g.add(commit(e.t), next, "time")
		point = next
	}
}

// cycle returns a shortest cycle through the first node found on one, or nil if there is none.
func (g *graph) cycle() []edge {
	const (
		fresh = iota
		open
		closed
	)
	state := make([]uint8, len(g.edges))
	type frame struct{ node, next int }
	for root := range g.edges {
		if state[root] != fresh {
			continue
		}
		stack := []frame{{node: root}}
		state[root] = open
		for len(stack) > 0 {
			top := &stack[len(stack)-1]
			if top.next == len(g.edges[top.node]) {
				state[top.node] = closed
				stack = stack[:len(stack)-1]
				continue
			}
			to := g.edges[top.node][top.next].to
			top.next++
			switch state[to] {
			case open:
				return g.shortest(to)
			case fresh:
				state[to] = open
				stack = append(stack, frame{node: to})
			}
		}
	}
	return nil
}

// shortest returns a shortest path from the node back to itself. The last edge of the list leads
// into the node itself.
func (g *graph) shortest(node int) []edge {
	type step struct {
		from int
		why  string
	}
	came := map[int]step{}
	queue := []int{node}
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		for _, e := range g.edges[at] {
			if _, seen := came[e.to]; seen {
				continue
			}
			came[e.to] = step{at, e.why}
			if e.to != node {
				queue = append(queue, e.to)
				continue
			}
			var back []edge
			for n := node; ; {
				s := came[n]
				back = append(back, edge{n, s.why})
				if n = s.from; n == node {
					slices.Reverse(back)
					return back
				}
			}
		}
	}
	return nil // cannot happen: the node is on a cycle
}

// reportCycle reports the transactions and edge kinds along the cycle.
func (c *checker) reportCycle(cycle []edge) {
	var txns []int
	var text strings.Builder
	for _, e := range cycle {
		if e.to >= 2*len(c.history) {
			continue // a point in time
		}
		t := e.to / 2
		if !slices.Contains(txns, t) {
			txns = append(txns, t)
		}
		what := "begin"
		if e.to%2 == 1 {
			what = "commit"
		}
		fmt.Fprintf(&text, " —%s→ %s(%d)", e.why, what, c.history[t].ID)
	}
	c.report(Cycle, "", txns, "these precede one another:%s", text.String())
}
