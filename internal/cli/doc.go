// Package cli is the command line: of the percolator binary and, through node.Main, of every program that links
// observers of its own (§2.4).
//
// Invariants:
//  1. A command ends with 0 (done), 1 (failed), 2 (wrong usage) or 3 (nobody could serve it), and an error says what
//     to do next.
//  2. A setting comes from its flag, else from the environment, else from the configuration file, else from its
//     default. A name that no command knows is an error in all three places.
//  3. Rows, columns and values may hold any bytes and survive the way in and out (bytetext.go).
//  4. Standard output holds what was asked for and nothing else; everything else goes to standard error.
//
// The package knows nothing of actors or storage. What starts a node is injected (App.Start), since package node
// imports this one. Client commands speak the public gRPC API like any other remote client.
package cli
