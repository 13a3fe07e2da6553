// Package grow contains only tests: a cluster of processes grows from one node to five and
// shrinks to three under writes. See TestGrowAndShrink. Package node has the same test in one
// process.
package grow
