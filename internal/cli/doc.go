// Package cli implements the command line of the percolator binary and, through app.Main, of every
// program that links its own observers (§2.4).
//
// Invariants:
//  1. A command exits with 0 (success), 1 (failure), 2 (wrong usage) or 3 (no node could serve it),
//     and prints the next step after an error for which it knows one.
//  2. A setting comes from its flag, else from the environment, else from the configuration file, else
//     from its default. An unknown name is an error in all three; empty variables, and those
//     that Kubernetes sets for a service named percolator, are ignored.
//  3. Rows, columns and values may hold any bytes, in arguments (shell/arguments.go) and in
//     output (shell/text.go).
//  4. Standard output contains only the requested data; everything else goes to standard error.
//  5. Commands that only read change nothing: history, why, trace and the listings read the stored
//     data and resolve no lock; trace --search reads like scan.
//  6. Long-running commands can be ended at any moment, even by kill -9, and resume when they are run
//     again: a progress file never counts data that is not durable (bulk/resume.go), and no row is
//     ever partially written.
//  7. Irreversible actions need confirmation, by --yes or by typing the name at a terminal
//     (shell/confirm.go).
//  8. Foreign data reaches a terminal only as text, and advice can be pasted into a shell whatever
//     names it contains (shell/text.go).
//
// # Structure
//
// A program fills a shell.App, and Run executes one command line with it. This package contains the
// command tree (app.go), settings from the environment and the configuration file (settings.go),
// completion, and error reports (report.go). Commands are in packages by purpose:
//
//	shell       shared by all commands: printer, connection, errors, arguments, progress
//	cells       get, set, delete, scan, watch, table, column, subscription
//	bulk        load, export, backup, restore
//	inspectcmd  history, why, trace, status, doctor, top, jobs, debug, verify
//	admin       cluster, node, tablet, observer, notify, lock, client, grant, revoke, grants, token,
//	            recover
//	nodecmd     start, dev, cert
//
// Only admin, which reads the directories of stopped nodes, depends on actors or storage; package app
// injects the function that starts a node (App.Start). Client commands use the public gRPC API like any
// other remote client.
//
// # Output
//
// Tables are for people and may change. Every command supports -o json: one object per line, even if
// there can be only one; export to standard output is always JSON lines. Fields are added, not renamed.
// Timestamps are numbers; bytes are text if they are UTF-8 and {"base64": "…"} otherwise.
//
// # A crash
//
// A client command that dies leaves at most its unfinished transactions, whose locks expire and are
// resolved by the transactions that encounter them, a progress file next to the data, for 1 min the
// lease of an export's snapshot, and an unfinished backup, restore or load --bulk (package bulk).
// For a node that dies see package node; its ready file remains.
package cli
