// Package grow holds no code but a test: a cluster of processes that grows from one node
// to five and shrinks to three while it is written to. See TestGrowAndShrink. The same in
// one process is in package node.
package grow
