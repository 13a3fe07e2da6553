// Package soak runs one node, a real process on a real directory, for minutes or hours under
// load and faults: it loads, edits and deletes documents, splits tables, kills the node and
// clients during writes, pauses observers, parks notifications and replays them, holds snapshots
// open across collection, and reads the past. After every cycle it waits until no notification
// is pending, recomputes the observers' results from the documents in one snapshot, and compares.
//
// It is the fault "soak" of test/torture, which starts the cluster:
//
//	make soak DURATION=10m SEED=1
//
// Invariants after each cycle:
//  1. Counts, links and degrees follow exactly from the documents (§2.4); each document is the
//     one last acknowledged, or one whose outcome is unknown; two tables written by one
//     transaction agree; the sum of the bank's accounts, which killed clients write, is constant.
//  2. No lock, intent or notification remains except those parked on purpose.
//  3. A snapshot that is held open reads the same as at first, and so does one of the past
//     inside the history. Below the bound the answer is ErrSnapshotTooOld.
//  4. After a warm-up the node's heap, goroutines and descriptors, the bytes and files on its
//     disk, and the old versions in its store stay under bounds (limits.go).
//
// If the program crashes, the node ends with it; nothing is kept.
package soak
