// Package cli is the command line: of the percolator binary and, through app.Main, of
// every program that links observers of its own (§2.4).
//
// Invariants:
//  1. A command ends with 0 (done), 1 (failed), 2 (wrong usage) or 3 (nobody could serve
//     it), and an error says what to do next.
//  2. A setting comes from its flag, else from the environment, else from the configuration
//     file, else from its default. A name that no command knows is an error in all three.
//  3. Rows, columns and values may hold any bytes, in arguments (arguments.go) and in output
//     (text.go).
//  4. Standard output holds what was asked for and nothing else; everything else goes to
//     standard error.
//  5. Commands that only read change nothing: history, why, trace and the listings read what
//     is stored and resolve no lock; trace --search reads as scan does.
//  6. Commands that take long can be ended at any moment, also by kill -9, and continue when
//     they are run again: a progress file never claims more than is durable (checkpoint.go),
//     and no row is ever half written.
//  7. What can't be undone has to be confirmed, by --yes or by typing its name at a terminal
//     (confirm.go).
//  8. Foreign data reaches a terminal as text only, and advice can be pasted into a shell
//     whatever the names in it are (terminal.go).
//
// # Structure
//
// App is what a program injects, and Run executes one command line over it. A command is
// a function that returns a *cobra.Command and closes over deps, which holds the two values
// that commands share: the printer (-o, notes, tables; output.go) and the connector
// (--addr, certificates, --timeout, signals; client.go). Flags of its own are variables of
// that function, or fields of a small type where several functions need them. What talks to
// a node gets a session (session.go), one connection, and asks over it.
//
// A file for each noun has the commands about it: cells, tables, tablets (verify.go compares
// their replicas), nodes, status, observers (backfill.go replays one), notifications, locks,
// history, why, trace, cert, cluster. why.go gathers and prints, whyverdict.go judges; trace.go
// finds the steps of a chain, traceview.go shows them. load.go reads
// a file, loadrun.go keeps several transactions under way; export.go and exportfile.go write
// one from one snapshot; rowjson.go is the form of a row in both, checkpoint.go their progress.
// start.go runs a node. settings.go fills in what the command line left out, arguments.go
// decodes, confirm.go asks before what can't be undone, errors.go turns an error into a text
// and an exit code, text.go and terminal.go write for people.
//
// The package knows nothing of actors or storage. What starts a node is injected
// (App.Start) by package app. Client commands speak the public gRPC
// API like any other remote client, and need no node in the process. A listing pages
// through the tablets; what it shows is not one snapshot, and a split on the way may show
// an entry twice.
//
// # Output
//
// Tables are for people and may change. Every command knows -o json: one object a line
// for what was asked for, also where there can be only one; export to standard output is
// JSON lines either way. Fields are added, not renamed. Timestamps are numbers, bytes are
// text where they are UTF-8 and {"base64": "…"} where not.
//
// # A crash
//
// A client command that dies leaves at most transactions of its own behind, whose locks
// expire and are resolved by whoever meets them, a progress file beside the data, and for
// a minute the lease that keeps an export's snapshot. A node that dies is package node's
// business; its ready file stays behind.
package cli
