// Package archiver makes backups by the clock: a job of the node that leads meta, which reads
// the schedules from meta and notes there what has come of them.
//
// Invariants:
//
//  1. A backup is due at a schedule's first time and every interval after it. Times that nobody
//     led meta are made up for by one backup.
//  2. Nothing but the record in meta says what has been done. Two nodes that take themselves for
//     the leader of meta for a moment may both make a backup; package backup allows for that.
//  3. A backup that fails is tried again after retryPause, or the interval if that is shorter.
//     Other schedules do not wait for it longer than its attempt takes.
//
// A crash, or the loss of meta's leadership, interrupts the backup that is being made. The next
// leader finds it due still, and goes on with it where it was (package backup).
//
// Called by: node, which starts and stops the actor.
package archiver
