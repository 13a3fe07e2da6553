// Package cli is the command line: of the percolator binary and, through app.Main, of
// every program that links observers of its own (§2.4).
//
// Invariants:
//  1. A command ends with 0 (done), 1 (failed), 2 (wrong usage) or 3 (nobody could serve
//     it), and an error says what to do next.
//  2. A setting comes from its flag, else from the environment, else from the configuration
//     file, else from its default. A name that no command knows is an error in all three.
//  3. Rows, columns and values may hold any bytes, in arguments (shell/arguments.go) and in
//     output (shell/text.go).
//  4. Standard output holds what was asked for and nothing else; everything else goes to
//     standard error.
//  5. Commands that only read change nothing: history, why, trace and the listings read what
//     is stored and resolve no lock; trace --search reads as scan does.
//  6. Commands that take long can be ended at any moment, also by kill -9, and continue when
//     they are run again: a progress file never claims more than is durable
//     (bulk/resume.go), and no row is ever half written.
//  7. What can't be undone has to be confirmed, by --yes or by typing its name at a terminal
//     (shell/confirm.go).
//  8. Foreign data reaches a terminal as text only, and advice can be pasted into a shell
//     whatever the names in it are (shell/terminal.go).
//
// # Structure
//
// A program fills a shell.App, and Run executes one command line over it. This package has the
// command tree (app.go), what the command line leaves out (settings.go), completion, and the
// report of an error (report.go). Commands live in packages by what they are for:
//
//	shell       what all commands share: printer, connection, errors, arguments, progress
//	cells       get, set, delete, scan, table
//	bulk        load, export, backup, restore
//	inspectcmd  history, why, trace, status, doctor, top, jobs, debug, client, tablet, verify,
//	            observer, notify, lock
//	admin       cluster, node, grant, revoke, grants, token, recover
//	nodecmd     start, dev, cert
//
// No package here but admin, which reads the directories of stopped nodes, knows anything of
// actors or storage; package app injects what starts a node (App.Start). Client commands use the
// public gRPC API like any other remote client.
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
