// Package corpus makes the example's default input: the Go toolchain's own
// standard-library documentation as a tree of HTML pages with links between packages and
// symbols, on two hosts, with mirrored pages, redirect stubs, chains and loops of them.
// It also edits trees, for recrawls.
//
// Invariants:
//  1. Deterministic: the same toolchain sources give the same bytes, the same tree, share and seed the same edits.
//  2. A tree is complete or absent: it is written beside its place and renamed, with a marker file next to it.
//
// A crash leaves a directory ending in ".part", which the next run removes.
package corpus
