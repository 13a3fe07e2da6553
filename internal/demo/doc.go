// Package demo is the command demo: a throw-away cluster of real processes in one
// terminal, over which the web index runs while a person kills, pauses and adds nodes.
//
// The nodes are processes of this program, which internal/localcluster starts: an environment
// variable has Register link the web index's observers in them, and in no other node of the
// program. The pages are made up: a machine needs nothing else.
//
// Invariants:
//  1. Nothing is left: the nodes end with this process, also if that is killed, and their
//     directories are removed when it ends by itself, unless it could not begin: then it says
//     where they are.
//  2. Without a terminal it runs as well, and has a line of its own for each state if standard
//     output is none. Keys are read from standard input as they come, and none has to.
//
// It runs on Linux only. Everything but the reading of keys, the search page and the
// loading of pages is on the command's goroutine.
package demo
