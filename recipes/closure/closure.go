// Package closure keeps which nodes of a directed graph can be reached from marked nodes,
// while edges and marks come and go: what an advisory affects through dependencies, who is
// in a group through groups, what has to be built again.
//
// A mark is a name with seeds, the nodes that hold it, and spreads along edges. For every
// node that it reaches there is a record with the node that it came from, its parent, and
// its depth, which is greater than the parent's: so there is a path to show, and cycles
// need no care. (Counts of references would leak on cycles: two nodes that only reach each
// other hold each other.) The cost of a change is that of what it reaches, not of the graph.
//
// # How it works
//
// AddEdges, DeleteEdges, Mark and Unmark only write what they are told and notify. The
// observer of edges finds the marks that a changed edge concerns: those that reach its
// source and not its target, if it is there now, and those that came to its target through
// it. It asks the wave of each to check the target. The wave is the observer of marks. One
// run does one step, of at most Config.Batch nodes and eight times as many edges, and
// notifies its mark again if something is left, behind the other marks that wait. Its
// queues are kept in the repository, by mark:
//
//   - checks, asked for from outside: a record that is no longer justified is to be cut, a
//     node without a record is to be derived;
//   - cuts: the record is deleted, its children (nodes whose parent it is) are cut too, and
//     the node is to be derived;
//   - derivations: a node without a record that is a seed, or has an edge from a node with a
//     record, gets one, and is to be spread;
//   - spreads: if the node's record is not justified it is to be cut; else each node at the
//     end of its edges that has no record gets one, and is to be spread.
//
// A record is justified if it is a seed's, with depth 0, or if the edge from its parent and
// the parent's record exist and that has a smaller depth. (A queue keeps the record with
// which a node was added: while none of the mark's has been deleted since, that and the
// parent's are what they were, and only the edge is looked at.) No record is made while there are
// cuts left: what was held up by a deleted record must be gone first (delete and rederive).
// What a run queues is done by a later run, never by itself.
//
// # Why it is right
//
// Nothing is locked. Of every two changes that concern each other at least one has an
// observer whose snapshot has both. Runs of one mark's wave are serial, because all write
// its state: each has what the runs before it did in its snapshot.
//
// No record is left over. Once nothing is left to run every record is justified, and since
// depths fall along parents, the way ends at a seed. For let a record rest on an edge from
// its parent. After the record is committed its spread looks whether it is justified; let
// that be at the time V. An edge that is deleted after V, or a little before, has an
// observer that sees the record and asks for a check, also if the edge has come back by
// then. (A seed is deleted with a check.) If the parent's record is deleted after V, the
// run that does it cuts the child, which it finds by the edge. If it does not find the edge
// that was deleted after V, and the check that follows comes before that run, and sees that
// the edge is gone, or after it, and sees that the parent's record is, or is a new one: if
// that came by way of the child its depth is greater than the child's, and the record is
// cut; else it holds. If the edge was back before the check, and the run has not found it
// all the same, it was deleted again, after the check, and has one more.
//
// No record lacks. Let a node with a record have an edge to one without. If the edge was
// committed after the record, the edge's observer saw the record, and asked for a check of
// the target, unless that had a record then. If before, the record's spread saw the edge,
// and the target had a record from then on at least. If that was deleted later, the run
// that did it queued a derivation, for a later run, which saw both the edge and the source's
// record, or one of them came later still, and so did its observer or its spread. A spread
// or a derivation that takes several runs, as the node has many edges, is no exception:
// what changes behind it has an observer of its own.
//
// It ends: once changes cease, a record is made only while no cut is left, is justified
// then, and stays so until an older one that it rests on is cut; of those there are no more
// than there were when changes ceased.
//
// Readers may see a wave under way: records that are to be cut, and nodes that are not
// reached yet. Progress tells.
package closure

import (
	"fmt"
	"slices"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/tuple"
)

// DefaultBatch is the default of Config.Batch.
const DefaultBatch = 250

// Config says how a closure is kept.
type Config struct {
	// Name is that of its table, and with ".edges" and ".marks" behind it those of its
	// observers: unique in the cluster.
	Name string
	// Batch is how many nodes a run of a wave takes at most, and how many changes of edges
	// one of the edges' observer; 1 to 1000, default DefaultBatch.
	Batch int
}

// Closure is a graph, its marks, and what they reach. Nodes and marks are strings of any
// bytes, not empty; two nodes and a mark have to fit into a row together. It holds no state,
// and its methods may be called concurrently.
type Closure struct {
	cfg Config

	edge    percolator.Column              // of an edge, from both ends
	changed percolator.Column              // notifies that an edge has changed
	seed    percolator.Column              // of a mark and a node that holds it
	check   percolator.Column              // of a mark and a node that is to be checked
	wake    percolator.Column              // notifies that a mark has something to do
	records percolator.TypedColumn[record] // of a mark and a node, and the other way round
	states  percolator.TypedColumn[state]  // of a mark
	blocks  percolator.TypedColumn[block]  // pieces of a mark's queues
}

// The first element of a row says what it is.
const (
	rowOut    = iota // then source, target of an edge
	rowIn            // then target, source
	rowMark          // then a mark
	rowMarks         // then a node, a mark that reaches it
	rowRecord        // then a mark, a node that it reaches
	rowSeed          // then a mark, a node
	rowCheck         // then a mark, a node
	rowBlock         // then a mark, a queue, a number
	rowEdges         // then a mark or nothing, and edges, each as source, target
)

// New returns the closure. A faulty configuration is a fault of the program: it panics with
// percolator.ErrInvalid.
func New(cfg Config) *Closure {
	if cfg.Batch == 0 {
		cfg.Batch = DefaultBatch
	}
	if cfg.Name == "" || cfg.Batch < 1 || cfg.Batch > percolator.MaxBatch {
		panic(fmt.Errorf("%w: closure %q: it needs a name, and a batch of 1 to %d",
			percolator.ErrInvalid, cfg.Name, percolator.MaxBatch))
	}
	column := func(name string) percolator.Column {
		return percolator.Column{Table: cfg.Name, Name: name}
	}
	return &Closure{
		cfg: cfg, edge: column("edge"), changed: column("changed"), seed: column("seed"),
		check: column("check"), wake: column("wake"),
		records: percolator.Typed[record](column("record"), recordCodec{}),
		states:  percolator.Typed(column("state"), percolator.JSON[state]()),
		blocks:  percolator.Typed[block](column("block"), blockCodec{}),
	}
}

// Register adds the closure's observers, with these options, and with them its table. Batches
// are Config.Batch's: with percolator.Batch it panics with percolator.ErrInvalid.
func (c *Closure) Register(r *percolator.Registry, opts ...percolator.ObserverOption) {
	var given percolator.ObserverSpec
	for _, opt := range opts {
		opt(&given)
	}
	if given.Batch != 0 {
		panic(fmt.Errorf("%w: closure %q: its batches are of Config.Batch, not of an option",
			percolator.ErrInvalid, c.cfg.Name))
	}
	batch := append([]percolator.ObserverOption{percolator.Batch(c.cfg.Batch)}, opts...)
	r.WeakBatch(c.cfg.Name+".edges", c.changed, c.edgesChanged, batch...)
	r.Weak(c.cfg.Name+".marks", c.wake, c.advance, opts...)
}

// AddEdge adds the edge, if it is not there yet, in the direction in which marks spread.
func (c *Closure) AddEdge(tx *percolator.Tx, from, to string) {
	c.AddEdges(tx, [2]string{from, to})
}

// AddEdges adds edges, each a source and a target. It costs less than to add each by itself.
func (c *Closure) AddEdges(tx *percolator.Tx, edges ...[2]string) {
	for _, e := range edges {
		tx.Set(tuple.Pack(rowOut, e[0], e[1]), c.edge, nil)
		tx.Set(tuple.Pack(rowIn, e[1], e[0]), c.edge, nil)
	}
	c.tell(tx, edges)
}

// DeleteEdge deletes the edge, if it is there.
func (c *Closure) DeleteEdge(tx *percolator.Tx, from, to string) {
	c.DeleteEdges(tx, [2]string{from, to})
}

// DeleteEdges deletes edges, each a source and a target.
func (c *Closure) DeleteEdges(tx *percolator.Tx, edges ...[2]string) {
	for _, e := range edges {
		tx.Delete(tuple.Pack(rowOut, e[0], e[1]), c.edge)
		tx.Delete(tuple.Pack(rowIn, e[1], e[0]), c.edge)
	}
	c.tell(tx, edges)
}

// edgesTold and bytesTold bound the edges of one notification.
const (
	edgesTold = 16
	bytesTold = 1 << 10
)

// tell notifies that edges have changed.
func (c *Closure) tell(tx *percolator.Tx, edges [][2]string) {
	for len(edges) > 0 {
		n, bytes := 0, 0
		for n < min(len(edges), edgesTold) && (n == 0 || bytes < bytesTold) {
			bytes += len(edges[n][0]) + len(edges[n][1])
			n++
		}
		tx.Notify(changed{edges: edges[:n]}.row(), c.changed)
		edges = edges[n:]
	}
}

// Mark makes the node a seed of the mark.
func (c *Closure) Mark(tx *percolator.Tx, mark, node string) {
	tx.Set(tuple.Pack(rowSeed, mark, node), c.seed, nil)
	c.ask(tx, mark, node)
}

// Unmark makes the node no seed of the mark. It may be reached from others all the same.
func (c *Closure) Unmark(tx *percolator.Tx, mark, node string) {
	tx.Delete(tuple.Pack(rowSeed, mark, node), c.seed)
	c.ask(tx, mark, node)
}

// ask has the wave of the mark check a node.
func (c *Closure) ask(tx *percolator.Tx, mark, node string) {
	tx.Set(tuple.Pack(rowCheck, mark, node), c.check, nil)
	tx.Notify(tuple.Pack(rowMark, mark), c.wake)
}

// record says how a mark has come to a node.
type record struct {
	depth  int // of the path by which it came, in edges; 0 for a seed
	parent string
}

type recordCodec struct{}

func (recordCodec) Encode(r record) ([]byte, error) {
	return []byte(tuple.Pack(r.depth, r.parent)), nil
}

func (recordCodec) Decode(data []byte) (r record, err error) {
	return r, tuple.Unpack(string(data), &r.depth, &r.parent)
}

// The queues of a mark.
const (
	cuts = iota
	derivations
	spreads
	queues
)

// state is what is kept of a mark besides its records.
type state struct {
	Size   int           `json:"size"`           // records
	Cuts   uint64        `json:"cuts,omitempty"` // records deleted
	Queues [queues]queue `json:"queues"`
}

// queue counts the blocks of one queue that wait: those with numbers from First to Next-1.
// A run takes the first and adds behind the last, so that no run passes over the rows that
// others have deleted.
type queue struct {
	First   uint64 `json:"first"`
	Next    uint64 `json:"next"`
	Waiting int    `json:"waiting"` // nodes
}

// waiting is a node in a queue. Of its edges, those up to the node after are done.
type waiting struct {
	node, after string
	record      *record // that it has; nil: not known
}

// block is a piece of a queue. While the mark's Cuts stay as they are no record is another,
// and what rests on an edge rests on a record.
type block struct {
	cuts  uint64
	nodes []waiting
}

type blockCodec struct{}

func (blockCodec) Encode(b block) ([]byte, error) {
	elements := append(make([]any, 0, 1+4*len(b.nodes)), b.cuts)
	for _, n := range b.nodes {
		r := record{depth: -1}
		if n.record != nil {
			r = *n.record
		}
		elements = append(elements, n.node, n.after, r.depth, r.parent)
	}
	return []byte(tuple.Pack(elements...)), nil
}

func (blockCodec) Decode(data []byte) (b block, err error) {
	elements, err := tuple.Parse(string(data))
	if err == nil && len(elements)%4 != 1 {
		err = fmt.Errorf("closure: a block of %d elements", len(elements))
	}
	if err != nil {
		return b, err
	}
	cuts, _ := elements[0].(int64)
	b.cuts = uint64(cuts)
	for four := range slices.Chunk(elements[1:], 4) {
		var n waiting
		var r record
		n.node, _ = four[0].(string)
		n.after, _ = four[1].(string)
		depth, _ := four[2].(int64)
		if r.depth = int(depth); r.depth >= 0 {
			r.parent, _ = four[3].(string)
			n.record = &r
		}
		b.nodes = append(b.nodes, n)
	}
	return b, nil
}
