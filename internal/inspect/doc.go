// Package inspect reads stored state for diagnosis, and advises. It serves the command line and the
// console, which print what it says, and package health:
//
//	entry.go, figure4.go  all entries of one row, and their layout (Figure 4 of the paper)
//	pages.go              pages of rows as of a time, and of parked notifications
//	chain.go              the transactions and observer runs of a change
//	why.go, verdict.go    why an observer did or did not run for a row
//	observer.go           observers and back-fills
//	diagnose.go           what to do about an error
//	command.go, text.go   commands for pasting into a shell; bytes, times and durations
//
// Results encode as JSON.
//
// It works through the caller's txn.Client, keeps no state, and changes nothing that another reader
// would not. Every answer is bounded and reports truncation.
package inspect
