// Package inspectcmd implements the commands that display the state and contents of a cluster.
//
// They change nothing: history, why and trace read stored entries and resolve no lock; trace --search
// reads like scan. A listing pages through the tablets: it is not one snapshot, and a concurrent split
// may list an entry twice.
//
// Each file implements one command. Package
// inspect explains rows, histories and traces and gives advice; the commands print its results.
//
// A crash loses nothing but the output.
package inspectcmd
