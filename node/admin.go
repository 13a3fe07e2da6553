package node

import "github.com/percolator-go/percolator/internal/txn"

// admin is what an operator asks of meta, answered by this node.
type admin struct {
	txn.NoAdmin
	n *Node
}
