// Package demo implements the command demo: a throw-away cluster of real processes in one
// terminal, which runs the web index while a person kills, pauses and adds nodes.
//
// The nodes are processes of this program, which internal/localcluster starts: an environment
// variable makes Register link the web index's observers in them only. The pages are synthetic.
//
// Invariants:
//  1. Nothing is left behind: the nodes end with this process, even if it is killed, and their
//     directories are removed when it exits normally. If it fails to start, it prints where
//     they are.
//  2. It needs no terminal: without one it prints a line for each state. Keys on standard input
//     are optional.
//
// It runs on Linux only. Reading of keys, the search page and the loading of pages have
// goroutines of their own; the rest runs on the command's.
package demo
