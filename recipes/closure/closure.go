// Package closure maintains the nodes of a directed graph that are reachable from marked nodes,
// while edges and marks change: for example the packages that an advisory affects through
// dependencies, the members of nested groups, or the targets to rebuild.
//
// A mark is a name with a set of seed nodes, and spreads along edges. Every node that it
// reaches has a record with its parent, the node from which the mark came, and its depth, which
// is greater than the parent's. The records contain a path to each node and are safe on cycles.
// (Reference counts would leak on cycles: two nodes that reach only each other would keep each
// other.) The cost of a change depends on the nodes that it affects, not on the size of the
// graph.
//
// # How it works
//
// AddEdges, DeleteEdges, Mark and Unmark only write their arguments and notify. The observer of
// edges finds the marks that a changed edge affects: the marks that reach its source but not
// its target, if the edge exists now, and the marks that came to its target through it. It
// requests a check of the target from the wave of each. The wave is the observer of marks. One
// run does one step, of at most Config.Batch nodes and eight times as many edges, and notifies
// its mark again if work is left, behind the other queued marks. It stores its queues in the
// repository, by mark:
//
//   - checks, requested by other transactions: cut the record if it is no longer justified;
//     derive the node if it has no record;
//   - cuts: delete the record, cut its children (the nodes whose parent it is), and derive the
//     node;
//   - derivations: if a node without a record is a seed, or has an edge from a node with a
//     record, create its record and spread the node;
//   - spreads: if the node's record is not justified, cut it; otherwise create a record for each
//     successor without one, and spread that.
//
// A record is justified if it is a seed's, with depth 0, or if the edge from its parent and
// the parent's record exist and the latter has a smaller depth. (A queue stores the record with
// which a node was added. As long as no record of the mark has been deleted since, this record
// and the parent's are unchanged, and only the edge is checked.) No record is created while cuts
// are queued: everything that depended on a deleted record must be deleted first (delete and
// rederive). What a run queues is processed by a later run, never by the same one.
//
// # Why it is right
//
// There are no locks. Of any two changes that affect each other, at least one has an observer
// whose snapshot contains both. The runs of one mark's wave are serial, since all write its
// state: the snapshot of each contains the effects of all earlier ones.
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
// Readers may see an unfinished wave: records that are still to be cut, and nodes that are not
// reached yet. Progress reports whether work is queued.
package closure

import (
	"fmt"
	"slices"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/tuple"
)

// DefaultBatch is the default of Config.Batch.
const DefaultBatch = 250

// Config configures a Closure.
type Config struct {
	// Name is the name of the table and, with the suffixes ".edges" and ".marks", of the
	// observers. It must be unique in the cluster.
	Name string
	// Batch is the maximum number of nodes per run of a wave, and of changed edges per run of
	// the observer of edges; 1 to 1000. Defaults to DefaultBatch.
	Batch int
}

// Closure is a graph with its marks and the nodes that they reach. Nodes and marks are
// non-empty strings of any bytes; two nodes and a mark together must fit into a row. Closure
// is stateless, and its methods are safe for concurrent use.
type Closure struct {
	cfg Config

	edge    percolator.Column              // of an edge, from both ends
	changed percolator.Column              // notifies that an edge has changed
	seed    percolator.Column              // of a mark and a node that holds it
	check   percolator.Column              // requests the check of a node for a mark
	wake    percolator.Column              // notifies that a mark has work
	records percolator.TypedColumn[record] // of a mark and a node, and the other way round
	states  percolator.TypedColumn[state]  // of a mark
	blocks  percolator.TypedColumn[block]  // pieces of a mark's queues
}

// The first element of a row is its type.
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

// New returns a Closure. It panics with percolator.ErrInvalid if cfg is invalid.
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

// Register registers the closure's observers with the options; the node creates their table.
// Use Config.Batch for the batch size: Register panics with percolator.ErrInvalid if opts
// contains percolator.Batch.
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

// AddEdge adds the edge, unless it exists. Marks spread from its source to its target.
func (c *Closure) AddEdge(tx *percolator.Tx, from, to string) {
	c.AddEdges(tx, [2]string{from, to})
}

// AddEdges adds edges, each a source and a target. It costs less than a call of AddEdge for each.
func (c *Closure) AddEdges(tx *percolator.Tx, edges ...[2]string) {
	for _, e := range edges {
		tx.Set(tuple.Pack(rowOut, e[0], e[1]), c.edge, nil)
		tx.Set(tuple.Pack(rowIn, e[1], e[0]), c.edge, nil)
	}
	c.notifyChanged(tx, edges)
}

// DeleteEdge deletes the edge, if it exists.
func (c *Closure) DeleteEdge(tx *percolator.Tx, from, to string) {
	c.DeleteEdges(tx, [2]string{from, to})
}

// DeleteEdges deletes edges, each a source and a target.
func (c *Closure) DeleteEdges(tx *percolator.Tx, edges ...[2]string) {
	for _, e := range edges {
		tx.Delete(tuple.Pack(rowOut, e[0], e[1]), c.edge)
		tx.Delete(tuple.Pack(rowIn, e[1], e[0]), c.edge)
	}
	c.notifyChanged(tx, edges)
}

// maxNotifiedEdges and maxNotifiedBytes bound the edges of one notification.
const (
	maxNotifiedEdges = 16
	maxNotifiedBytes = 1 << 10
)

// notifyChanged notifies the observer of edges of changed edges.
func (c *Closure) notifyChanged(tx *percolator.Tx, edges [][2]string) {
	for len(edges) > 0 {
		n, bytes := 0, 0
		for n < min(len(edges), maxNotifiedEdges) && (n == 0 || bytes < maxNotifiedBytes) {
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
	c.requestCheck(tx, mark, node)
}

// Unmark removes the node from the seeds of the mark. The mark may still reach it from others.
func (c *Closure) Unmark(tx *percolator.Tx, mark, node string) {
	tx.Delete(tuple.Pack(rowSeed, mark, node), c.seed)
	c.requestCheck(tx, mark, node)
}

// requestCheck requests a check of the node from the wave of the mark.
func (c *Closure) requestCheck(tx *percolator.Tx, mark, node string) {
	tx.Set(tuple.Pack(rowCheck, mark, node), c.check, nil)
	tx.Notify(tuple.Pack(rowMark, mark), c.wake)
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

// The queues of a mark.
const (
	cuts = iota
	derivations
	spreads
	queues
)

// state is the state of a mark in addition to its records.
type state struct {
	Size   int           `json:"size"`           // records
	Cuts   uint64        `json:"cuts,omitempty"` // records deleted
	Queues [queues]queue `json:"queues"`
}

// queue describes the blocks of one queue: those with the numbers First to Next-1. A run takes
// the first blocks and appends after the last, so that no run scans deleted rows.
type queue struct {
	First   uint64 `json:"first"`
	Next    uint64 `json:"next"`
	Waiting int    `json:"waiting"` // nodes
}

// waiting is a node in a queue. Its edges up to the node after are processed.
type waiting struct {
	node, after string
	record      *record // record of the node; nil: unknown
}

// block is a part of a queue. While the mark's Cuts equal cuts, no record has been deleted, so
// the records in the block are current.
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
