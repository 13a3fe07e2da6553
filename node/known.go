package node

import (
	"context"
	"slices"
	"sync"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/internal/wire"
)

// What operators ask for is partly kept in meta, and meta may be without a quorum just when they
// ask. A node then answers with what it was told last, and how long ago that was. This file owns
// those last answers: whoever asks meta on any goroutine of the node leaves its answer here.

// lastAnswer is the last answer to one question. Values are shared, not to be changed. The zero
// value has none. Safe for concurrent use.
type lastAnswer[T any] struct {
	mu    sync.Mutex
	value T
	at    time.Time // when it came; zero: there was none
}

func (l *lastAnswer[T]) set(value T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.value, l.at = value, time.Now()
}

// forget drops the last answer: somebody else has a better one.
func (l *lastAnswer[T]) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	var none T
	l.value, l.at = none, time.Time{}
}

// get returns the last answer and its age; ok is false if there was none.
func (l *lastAnswer[T]) get() (value T, age time.Duration, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.value, time.Since(l.at), !l.at.IsZero()
}

// known are the last answers that a node keeps.
type known struct {
	nodes     lastAnswer[[]*wire.NodeRecord]
	linked    lastAnswer[[]string] // observers, sorted
	observers lastAnswer[[]*pb.ObserverState]
	placement lastAnswer[*pb.PlacementStatus]
}

const (
	// linkedPatience bounds the question to meta that a status is made with, nodesPatience that
	// of a list of nodes.
	linkedPatience = 300 * time.Millisecond
	nodesPatience  = 1500 * time.Millisecond
)

// ageMs is an age in a message: -1 for what is not known.
func ageMs(age time.Duration, ok bool) int64 {
	if !ok {
		return -1
	}
	return age.Milliseconds()
}

// nodeTable fills in the node table: as meta has it, else as it had it when this node read it last,
// with whoever holds replicas by the tablet map.
func (n *Node) nodeTable(ctx context.Context, out *pb.NodesResponse) error {
	asking, cancel := context.WithTimeout(ctx, nodesPatience)
	defer cancel()
	records, err := n.meta.Nodes(asking)
	if err == nil {
		n.known.nodes.set(records)
	} else {
		if ctx.Err() != nil {
			return err
		}
		var age time.Duration
		var ok bool
		records, age, ok = n.known.nodes.get()
		out.Unavailable, out.AgeMs = err.Error(), ageMs(age, ok)
	}
	for _, r := range records {
		out.Nodes = append(out.Nodes, nodePB(r))
	}
	if out.Unavailable != "" {
		out.Nodes = withHolders(out.Nodes, n.router.All())
	}
	return nil
}

// withHolders adds the nodes that have replicas and are not among the others.
func withHolders(nodes []*pb.Node, tablets []*pb.TabletDescriptor) []*pb.Node {
	for _, d := range tablets {
		for _, r := range d.GetReplicas() {
			if !slices.ContainsFunc(nodes, func(x *pb.Node) bool { return x.NodeId == r.NodeId }) {
				nodes = append(nodes, &pb.Node{NodeId: r.NodeId})
			}
		}
	}
	return nodes
}

// rememberNodes reads the node table for later.
func (n *Node) rememberNodes(ctx context.Context) error {
	records, err := n.meta.Nodes(ctx)
	if err == nil {
		n.known.nodes.set(records)
	}
	return err
}

// metaStatus fills in which observers are linked, and whether meta, which knows that, answers.
func (n *Node) metaStatus(ctx context.Context, out *pb.NodeStatusResponse) {
	asking, cancel := context.WithTimeout(ctx, linkedPatience)
	defer cancel()
	began := time.Now()
	linked, err := n.linked(asking)
	if err == nil {
		names := make([]string, 0, len(linked))
		for name := range linked {
			names = append(names, name)
		}
		slices.Sort(names)
		n.known.linked.set(names)
	}
	names, age, ok := n.known.linked.get()
	out.Linked, out.LinkedAgeMs = names, ageMs(age, ok)
	if err == nil {
		out.LinkedAgeMs = 0
	}
	if n.peers == nil {
		return // meta was not asked: it is here
	}
	if ctx.Err() == nil {
		n.changes.sight.record(began, err)
	}
	out.Meta = n.changes.sight.status()
	out.Meta.LeaderNode = n.router.Leader(cluster.MetaTablet)
}
