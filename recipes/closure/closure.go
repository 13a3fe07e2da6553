// Package closure maintains the nodes of a directed graph that are reachable from marked nodes,
// while edges and marks change: for example the documents that a user may read through nested
// groups and folders, the packages that an advisory affects through dependencies, or the
// targets to rebuild.
//
// A mark is a name with a set of seed nodes. It reaches its seeds and every node with an edge
// from a node that it reaches. The closure stores each mark and node that it reaches as a row of
// its own, so that Has reads one cell. The cost of a change depends on the marks and nodes that
// it affects, not on the size of the graph.
//
// # What a reader sees
//
// Changes of the graph take effect asynchronously. The graph of a snapshot is the edges and
// seeds that the snapshot contains.
//
//   - A reader never misses what was never taken away. While the graph has a path from a seed
//     of the mark to a node that the mark reaches, every snapshot shows the node, whichever
//     paths come, go or change in length. If the last path is deleted and another one is added
//     later, snapshots may miss the node until they are settled again.
//   - A reader never sees in a settled snapshot what was taken away before it: if Settled is
//     true, the snapshot shows exactly what its graph implies. DB.WaitFor with the commit
//     timestamp of a change returns when every later snapshot shows its effect.
//   - A snapshot that is not settled may still show what was just taken away, and may not yet
//     show what was just added.
//
// To exclude the last case, as in a check of permissions that must respect every withdrawal
// before it, read Settled in the same snapshot; if it is false, call DB.WaitFor with the
// snapshot's timestamp and check in a new one.
//
// # How it works
//
// AddEdges, DeleteEdges, Mark and Unmark write the graph and a task, and notify the wave, the
// only observer, of one row. Its runs are serial. A run reads the graph, the records and the
// tasks, which name everything that has changed since earlier runs:
//
//   - added: an edge that marks may follow;
//   - removed: an edge that marks may have followed;
//   - spread: a node of a mark that may have successors without a record;
//   - check: a node of a mark whose record may no longer be justified.
//
// The record of a mark and a node has a parent, the node from which the mark came, and a depth
// greater than the parent's. It is justified if the node is a seed and the depth is 0, or if
// the edge from its parent exists and the parent's record has a smaller depth. The depths make
// this safe on cycles. (Counts of paths would not be: two nodes with edges to each other would
// keep each other.)
//
// A run first finds the suspects: the records that are named by removed and check tasks and not
// justified, their children (the records whose parent they are), and so on. Then it spreads the
// marks: along added edges, from nodes of spread tasks, to suspects that are seeds or have an
// edge from a record that is not suspect, and on from every node that it reaches. A node
// without a record gets one; a suspect gets a new one and stays visible. If nothing is left to
// spread, no path leads to the other suspects, and the run deletes their records. All this is
// computed in memory from one snapshot and committed in one transaction.
//
// A run creates at most Config.Batch records. If that is not enough, it deletes none, and leaves
// tasks for a later run: to spread from the nodes where it stopped, and to check the suspects.
//
// # Why it is right
//
// The runs are serial since each writes the wave's row, so that overlapping runs conflict. The
// snapshot of a run therefore contains the records of all earlier runs; and it contains the
// task of a change if it contains the change, unless an earlier run has processed it. In every
// snapshot:
//
//  1. If an edge leads from a node with a record to a node without, there is an added task for
//     the edge or a spread task for its source. If a seed has no record, it has a spread task.
//  2. Each record is justified, or there is a removed task for the edge from its parent, or a
//     check task for its node.
//
// Changes preserve both by their tasks. Runs preserve 1 since every node with a new record is
// spread, in the same run or by a task, and 2 since the children of a suspect are suspects too,
// and are replaced or deleted in the same transaction or checked later. (A child without an edge
// from the suspect has a removed task.)
//
// In a snapshot without tasks, parents lead from each record to a seed by 2, and no node lacks
// a record by 1: the records are what the graph implies. A run that deletes records has
// processed all added and spread tasks of its snapshot, so that by 1 it has reached every node
// to which a path leads: none of these is deleted.
//
// # Limits
//
// Deletions wait for the additions that were committed before them, of all marks. A run holds
// the suspects of at least one mark, and the records of their neighbours, in memory: a few
// hundred bytes each. If the suspects are more than about a million, or take longer than the
// observer's deadline (percolator.Deadline), the run fails, and the wave is parked: add the
// deleted edge again, replay it, and delete edges farther from the seeds first.
package closure

import (
	"fmt"
	"math/rand/v2"
	"slices"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/tuple"
)

// Bounds of Config.Batch.
const (
	DefaultBatch = 4000
	MaxBatch     = 20_000
)

// Config configures a Closure.
type Config struct {
	// Name is the name of the table and, with the suffix ".wave", of the observer. It must be
	// unique in the cluster.
	Name string
	// Batch is the maximum number of records that a run creates; 1 to MaxBatch. Defaults to
	// DefaultBatch. Other changes wait while a run takes place.
	Batch int
}

// Closure is a graph with its marks and the nodes that they reach. Nodes and marks are
// non-empty strings of any bytes; two nodes, or a mark and a node, must fit into a row. Closure
// is stateless, and its methods are safe for concurrent use.
type Closure struct {
	cfg Config

	edge    percolator.Column              // in rows of the types rowOut and rowIn
	seed    percolator.Column              // in rows of the type rowSeed
	reached percolator.Column              // in rows of the type rowReached
	records percolator.TypedColumn[record] // in rows of the type rowRecord
	tasks   percolator.Column
	wave    percolator.Column // written by every run
	wake    percolator.Column // notifies the wave
}

// The first element of a row is its type.
const (
	rowOut     = iota // then source, target of an edge
	rowIn             // then target, source
	rowSeed           // then a mark, one of its seeds
	rowReached        // then a mark, a node that it reaches
	rowRecord         // then a node, a mark that reaches it
	rowTasks          // then a kind of task, a random number
	rowWave
)

// New returns a Closure. It panics with percolator.ErrInvalid if cfg is invalid.
func New(cfg Config) *Closure {
	if cfg.Batch == 0 {
		cfg.Batch = DefaultBatch
	}
	if cfg.Name == "" || cfg.Batch < 1 || cfg.Batch > MaxBatch {
		panic(fmt.Errorf("%w: closure %q: Name is required and Batch must be between 1 and %d",
			percolator.ErrInvalid, cfg.Name, MaxBatch))
	}
	column := func(name string) percolator.Column {
		return percolator.Column{Table: cfg.Name, Name: name}
	}
	return &Closure{
		cfg: cfg, edge: column("edge"), seed: column("seed"), reached: column("reached"),
		records: percolator.Typed[record](column("record"), recordCodec{}),
		tasks:   column("tasks"), wave: column("wave"), wake: column("wake"),
	}
}

// Register registers the closure's observer, with the options, and its table.
func (c *Closure) Register(r *percolator.Registry, opts ...percolator.ObserverOption) {
	r.Weak(c.cfg.Name+".wave", c.wake, c.advance, opts...)
}

// AddEdge adds the edge, unless it exists. Marks spread from its source to its target.
func (c *Closure) AddEdge(tx *percolator.Tx, from, to string) {
	c.AddEdges(tx, [2]string{from, to})
}

// AddEdges adds edges, each a source and a target. It costs less than a call of AddEdge for each.
func (c *Closure) AddEdges(tx *percolator.Tx, edges ...[2]string) {
	tasks := make([]task, len(edges))
	for i, e := range edges {
		tx.Set(tuple.Pack(rowOut, e[0], e[1]), c.edge, nil)
		tx.Set(tuple.Pack(rowIn, e[1], e[0]), c.edge, nil)
		tasks[i] = task{a: e[0], b: e[1]}
	}
	c.put(tx, added, tasks)
}

// DeleteEdge deletes the edge, if it exists.
func (c *Closure) DeleteEdge(tx *percolator.Tx, from, to string) {
	c.DeleteEdges(tx, [2]string{from, to})
}

// DeleteEdges deletes edges, each a source and a target.
func (c *Closure) DeleteEdges(tx *percolator.Tx, edges ...[2]string) {
	tasks := make([]task, len(edges))
	for i, e := range edges {
		tx.Delete(tuple.Pack(rowOut, e[0], e[1]), c.edge)
		tx.Delete(tuple.Pack(rowIn, e[1], e[0]), c.edge)
		tasks[i] = task{a: e[0], b: e[1]}
	}
	c.put(tx, removed, tasks)
}

// Mark makes the node a seed of the mark.
func (c *Closure) Mark(tx *percolator.Tx, mark, node string) {
	tx.Set(tuple.Pack(rowSeed, mark, node), c.seed, nil)
	c.put(tx, spread, []task{{a: mark, b: node}})
}

// Unmark removes the node from the seeds of the mark. The mark may still reach it from others.
func (c *Closure) Unmark(tx *percolator.Tx, mark, node string) {
	tx.Delete(tuple.Pack(rowSeed, mark, node), c.seed)
	c.put(tx, check, []task{{a: mark, b: node}})
}

// record is the path by which a mark reached a node.
type record struct {
	depth  int // length of the path, in edges; 0 for a seed
	parent string
}

type recordCodec struct{}

func (recordCodec) Encode(r record) ([]byte, error) {
	return []byte(tuple.Pack(r.depth, r.parent)), nil
}

func (recordCodec) Decode(data []byte) (r record, err error) {
	return r, tuple.Unpack(string(data), &r.depth, &r.parent)
}

// The kinds of tasks.
const (
	added   = iota // an edge from a to b; the marks up to task.after are done
	removed        // an edge from a to b; the marks up to task.after are done
	spread         // spread the mark a from the node b; the successors up to task.after are done
	check          // check the record of the mark a at the node b
	kinds
)

// task is a change of the graph, or work that a run has left.
type task struct{ a, b, after string }

// maxTasks and taskBytes bound the tasks of one row.
const (
	maxTasks  = 1000
	taskBytes = 64 << 10
)

// put writes tasks, in as few rows as possible, and notifies the wave. The rows have random
// numbers, so that no writer conflicts with another or with a run.
func (c *Closure) put(tx *percolator.Tx, kind int, tasks []task) {
	if len(tasks) == 0 {
		return
	}
	for len(tasks) > 0 {
		var elements []any
		n, bytes := 0, 0
		for n < min(len(tasks), maxTasks) && bytes < taskBytes {
			t := tasks[n]
			elements = append(elements, t.a, t.b, t.after)
			bytes += len(t.a) + len(t.b) + len(t.after)
			n++
		}
		row := tuple.Pack(rowTasks, kind, rand.Uint64())
		tx.Set(row, c.tasks, []byte(tuple.Pack(elements...)))
		tasks = tasks[n:]
	}
	tx.Notify(tuple.Pack(rowWave), c.wake)
}

func parseTasks(data []byte) (tasks []task, err error) {
	elements, err := tuple.Parse(string(data))
	for three := range slices.Chunk(elements, 3) {
		var t task
		for i, into := range []*string{&t.a, &t.b, &t.after} {
			if i < len(three) {
				*into, _ = three[i].(string)
			}
		}
		tasks = append(tasks, t)
	}
	return tasks, err
}
