// Package leaderjobs starts and stops the background work of the node that leads meta:
// placement, collection of history, splits, merges, back-fills, timers, expiry and scheduled
// backups.
//
// Invariants:
//  1. Jobs run by the policy of the cluster as it was when they started; a change of the policy
//     restarts them.
//  2. No job starts before those of the term before have ended on this node. Two nodes may run
//     the same job for a moment, so that jobs change meta by conditional writes only.
//
// Called by: package node. Its worker of changes (node/changes.go) calls Follow; operators'
// requests wake jobs; statuses and scrapes read them. A crash ends the jobs; the next leader of
// meta starts its own.
package leaderjobs
