// Package archiver makes scheduled backups. It is a job of the node that leads meta: it reads
// the schedules from meta and records the outcome of each attempt there.
//
// Invariants:
//
//  1. A backup is due at a schedule's first time and every interval after it, and when an operator
//     requests one. One backup makes up for all due times at which no node led meta.
//  2. The record in meta is the only state. Two nodes that both believe for a moment that they
//     lead meta may both make a backup; package backup tolerates that.
//  3. A failed backup is retried retryPause after the failed attempt began, or after the interval
//     if that is shorter. It delays other schedules by no more than the duration of each attempt.
//
// A crash, or the loss of meta's leadership, interrupts the running backup. The next leader
// finds it still due and resumes it (package backup).
//
// Called by: node, which starts and stops the actor.
package archiver
