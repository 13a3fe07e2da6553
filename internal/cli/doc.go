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
//  5. A command that only looks changes nothing: history and the listings read what is stored and resolve no lock.
//
// # Structure
//
// App is what a program injects, and Run executes one command line over it. A command is a method of run, which holds
// the flags that commands share: one process executes one command, so they need not be apart. settings.go fills in what
// the command line left out, client.go connects, errors.go turns an error into a text and an exit code; a file for each
// noun has the commands about it.
//
// The package knows nothing of actors or storage. What starts a node is injected (App.Start), since package node
// imports this one. Client commands speak the public gRPC API like any other remote client, and need no node in the
// process. A listing pages through the tablets; what it shows is not one snapshot, and a split on the way may show an
// entry twice.
//
// # Output
//
// Tables are for people and may change. JSON (-o json) is one object a line, also where there can be only one; fields
// are added, not renamed. Timestamps are numbers, bytes are text where they are UTF-8 and {"base64": "…"} where not.
//
// # A crash
//
// A client command that dies leaves at most a transaction of its own behind, whose locks expire and are resolved by
// whoever meets them. A node that dies is package node's business; its ready file stays behind.
package cli
